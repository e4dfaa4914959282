package edge

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/protos/proof"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/keys"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/rest"
	"leasehold.dev/router/shape"
)

// BodyTime is how long a tenant may take to send a body, unless the service says otherwise.
const BodyTime = 30 * time.Second

// Front is the public HTTP handler: REST, gRPC by its content type over HTTP/2, and the health routes.
//
// Nothing of a body is read before the key is known and the tenant has room for one more request, and none is passed on
// before all of it is here, within its size and its time.
type Front struct {
	keys     *keys.Ring
	meter    *meter.Meter
	rest     http.Handler
	grpc     *grpc.Server
	mux      *http.ServeMux
	bodyTime time.Duration
	doors    counters // requests from before their body is read until they are answered; the service counts by itself
}

// NewFront serves service, which is registered at s. conn must lead to s and nowhere else; admin answers /healthz, /readyz
// and /metrics.
func NewFront(ctx context.Context, service *Service, s *grpc.Server, conn *grpc.ClientConn, admin http.Handler) (*Front, error) {
	g, err := gateway(ctx, conn)
	if err != nil {
		return nil, err
	}
	f := &Front{keys: service.Keys, meter: service.Meter, rest: g, grpc: s, mux: http.NewServeMux(), bodyTime: service.BodyTime}
	if f.bodyTime == 0 {
		f.bodyTime = BodyTime
	}
	f.mux.Handle("/v1/chat/completions", f.post("chat.completions", rest.Chat))
	f.mux.Handle("/v1/completions", f.post("completions", rest.Completion))
	f.mux.Handle("/v1/models", f.get())
	f.mux.Handle("/v1/receipts/{id}", f.get())
	f.mux.Handle("/v1/receipts/{id}/report", f.post("receipts.report", rest.Report))
	f.mux.Handle("/.well-known/jwks.json", f.open())
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		f.mux.Handle(path, admin)
	}
	f.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { respond(w, apierr.NoRoute(r.Method, r.URL.Path)) })
	return f, nil
}

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		f.call(w, r)
		return
	}
	f.mux.ServeHTTP(w, r)
}

// post checks method, key, room and body, in this order, before the gateway sees the request.
func (f *Front) post(endpoint string, check func([]byte) (*rest.Body, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant := f.allowed(w, r, http.MethodPost)
		if tenant == nil {
			f.meter.Refused(endpoint)
			return
		}
		leave, ok := f.doors.enter(tenant.Name, tenant.MaxConcurrent)
		if !ok {
			f.meter.Refused(endpoint)
			respond(w, busy(tenant))
			return
		}
		defer leave()
		body, err := f.readBody(w, r, apierr.MaxBody)
		var clean *rest.Body
		if err == nil {
			clean, err = check(body)
		}
		if err != nil {
			f.meter.Refused(endpoint)
			respond(w, apierr.From(err, ""))
			return
		}
		f.forward(w, r, clean.JSON, &answer{usage: clean.IncludeUsage})
	})
}

func (f *Front) get() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.allowed(w, r, http.MethodGet) != nil {
			f.forward(w, r, nil, &answer{})
		}
	})
}

// open is for what everybody may read. No header of the request goes along.
func (f *Front) open() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			notAllowed(w, r, http.MethodGet)
			return
		}
		r.Header.Del("Authorization")
		f.forward(w, r, nil, &answer{})
	})
}

func notAllowed(w http.ResponseWriter, r *http.Request, method string) {
	w.Header().Set("Allow", method)
	e := apierr.NoRoute(r.Method, r.URL.Path)
	respond(w, &apierr.Error{HTTP: http.StatusMethodNotAllowed, GRPC: e.GRPC, Type: e.Type, Message: "Use " + method + " for this URL."})
}

// tenant is whose key the request has, or nil.
func (f *Front) tenant(r *http.Request) *keys.Tenant {
	if a := r.Header.Values("Authorization"); len(a) == 1 {
		return f.keys.Authenticate(a[0])
	}
	return nil
}

// allowed is the request's tenant; nil when the request was answered with why it has none.
func (f *Front) allowed(w http.ResponseWriter, r *http.Request, method string) *keys.Tenant {
	if r.Method != method {
		notAllowed(w, r, method)
		return nil
	}
	tenant := f.tenant(r)
	if tenant == nil {
		respond(w, apierr.InvalidKey())
	}
	return tenant
}

// busy tells a tenant that all requests that it may run at once do run.
func busy(t *keys.Tenant) *apierr.Error {
	return apierr.RateLimit(1, "Rate limit reached: %d requests of yours run at once. Please retry after 1 s.", t.MaxConcurrent)
}

// readBody reads all of a body of at most most bytes.
func (f *Front) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(f.bodyTime)) // not every protocol has one
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if big := (*http.MaxBytesError)(nil); errors.As(err, &big) {
		return nil, apierr.TooLarge(most)
	}
	if err != nil {
		return nil, apierr.Malformed("The request body could not be read to its end.")
	}
	return b, nil
}

// forward hands a request over that has nothing of the tenant's but the key, the pair if one is asked for, and the checked
// body.
func (f *Front) forward(w http.ResponseWriter, r *http.Request, body []byte, a *answer) {
	out := r.Clone(context.WithValue(r.Context(), answerKey{}, a))
	out.Header = http.Header{"Authorization": r.Header.Values("Authorization"), "Content-Type": {typeJSON}}
	if asked := r.Header.Values(HeaderPair); len(asked) > 0 { // the service says who may
		out.Header[http.CanonicalHeaderKey(HeaderPair)] = asked
	}
	out.Host, out.RemoteAddr = "", ""
	out.URL.RawQuery = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not hold tokens back
	f.rest.ServeHTTP(w, out)
}

// respond writes an error. One that no request id was given for yet gets one.
func respond(w http.ResponseWriter, e *apierr.Error) {
	h := w.Header()
	if h.Get(HeaderRequest) == "" {
		h.Set(HeaderRequest, hex.EncodeToString(proof.NewID()))
	}
	if e.RetryAfter > 0 {
		h.Set(headerRetry, strconv.Itoa(int(e.RetryAfter)))
	}
	h.Set("Content-Type", typeJSON)
	w.WriteHeader(e.HTTP)
	_, _ = w.Write(append(shape.Error(e), '\n')) // a client that is gone is no error of ours
}
