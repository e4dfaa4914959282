package edge_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
)

// watched is a tenant's stream that looks at the record when the last message comes.
type watched struct {
	grpc.ServerStream
	ctx  context.Context
	last func()
}

func (s *watched) Context() context.Context     { return s.ctx }
func (s *watched) SetHeader(metadata.MD) error  { return nil }
func (s *watched) SendHeader(metadata.MD) error { return nil }
func (s *watched) SetTrailer(metadata.MD)       {}
func (s *watched) Send(r *openaiv1.ChatCompletionsResponse) error {
	if r.GetChunk() == nil {
		s.last()
	}
	return nil
}

func TestTheRecordIsClosedBeforeTheLastMessage(t *testing.T) {
	w := newWorld(t)
	w.pair()
	for _, stream := range []bool{false, true} {
		outcome := "nothing was sent"
		s := &watched{ctx: metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer ka")), last: func() { outcome = w.records.Last(1)[0].Outcome }}
		err := w.svc.ChatCompletions(&openaiv1.ChatCompletionsRequest{Model: name, Stream: proto.Bool(stream),
			Messages: []*openaiv1.Message{{Role: "user", Content: structpb.NewStringValue("Hi")}}}, s)
		if err != nil || outcome != "ok" {
			t.Errorf("stream %v: outcome %q at the last message, %v", stream, outcome, err)
		}
	}
}
