package edge

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/validate"
)

const (
	frameHead = 5       // bytes of gRPC before a message
	maxList   = 1 << 10 // of a request that has no field, or an id
	typeGRPC  = "application/grpc"
)

// call hands a gRPC request to the server once its key and its body were checked. The server itself would take in a body
// of any length first, for anybody and as slowly as it comes.
func (f *Front) call(w http.ResponseWriter, r *http.Request) {
	endpoint, most := "", int64(apierr.MaxBody)
	var message proto.Message
	switch r.URL.Path {
	case openaiv1.OpenAIService_ChatCompletions_FullMethodName:
		endpoint, message = "chat.completions", &openaiv1.ChatCompletionsRequest{}
	case openaiv1.OpenAIService_Completions_FullMethodName:
		endpoint, message = "completions", &openaiv1.CompletionsRequest{}
	case openaiv1.OpenAIService_ReportReceipt_FullMethodName:
		endpoint, message = "receipts.report", &openaiv1.ReportReceiptRequest{}
	case openaiv1.OpenAIService_ListModels_FullMethodName, openaiv1.OpenAIService_GetReceipt_FullMethodName,
		openaiv1.OpenAIService_ListReceiptKeys_FullMethodName:
		most = maxList
	}
	fail := func(e *apierr.Error) {
		if endpoint != "" {
			f.meter.Refused(endpoint)
		}
		refuse(w, e)
	}
	tenant := f.tenant(r)
	if tenant == nil && r.URL.Path != openaiv1.OpenAIService_ListReceiptKeys_FullMethodName {
		fail(apierr.InvalidKey())
		return
	}
	if most == apierr.MaxBody { // as over REST, what only lists takes no room
		leave, ok := f.doors.enter(tenant.Name, tenant.MaxConcurrent)
		if !ok {
			fail(busy(tenant))
			return
		}
		defer leave()
	}
	body, err := f.readBody(w, r, most+frameHead)
	if err == nil && message != nil {
		err = whole(body, message)
	}
	if err != nil {
		fail(apierr.From(err, ""))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.grpc.ServeHTTP(w, r)
}

// whole checks that body is one message of m's kind, and how much there is to decode.
func whole(body []byte, m proto.Message) error {
	switch {
	case len(body) < frameHead || int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-frameHead):
		return apierr.Malformed("The request must be one whole message.")
	case body[0] != 0:
		e := apierr.Malformed("Compressed messages are not supported by this server.")
		e.GRPC = codes.Unimplemented // as gRPC wants it
		return e
	}
	return validate.Wire(body[frameHead:], m.ProtoReflect().Descriptor())
}

// refuse answers a call with e: a header, and a trailer with the status. Texts of errors of the front are ASCII without a
// percent sign, so grpc-message needs no escapes.
func refuse(w http.ResponseWriter, e *apierr.Error) {
	h := w.Header()
	h.Set(HeaderRequest, hex.EncodeToString(proof.NewID()))
	if e.RetryAfter > 0 {
		h.Set(headerRetry, strconv.Itoa(int(e.RetryAfter)))
	}
	h.Set("Content-Type", typeGRPC)
	for _, k := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
		h.Add("Trailer", k)
	}
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // without it both would go out as one; a client that is gone is no error of ours
	st := e.GRPCStatus()
	h.Set("Grpc-Status", strconv.Itoa(int(st.Code())))
	h.Set("Grpc-Message", st.Message())
	if b, err := proto.Marshal(st.Proto()); err == nil {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(b))
	}
}
