package validate_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/validate"
)

var completion = (&openaiv1.CompletionsRequest{}).ProtoReflect().Descriptor()

// list is a request whose prompt is an array of the encoded values.
func list(values []byte) []byte {
	within := func(num protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), b)
	}
	return within(2, within(6, values)) // prompt, list_value
}

// 8 MiB of empty values are 4 million messages, and took 400 MB to decode.
func TestMessagesAreCountedBeforeTheyAreDecoded(t *testing.T) {
	empty := []byte{0x0A, 0}                                    // values: Value{}
	number := append([]byte{0x0A, 9, 0x11}, make([]byte, 8)...) // values: Value{number_value: 0}
	nested := empty
	for range 100 {
		nested = protowire.AppendBytes([]byte{0x0A}, protowire.AppendBytes([]byte{0x32}, nested)) // values: Value{list_value}
	}
	for _, c := range []struct {
		name string
		in   []byte
		ok   bool
	}{
		{"nothing", nil, true},
		{"one value", list(empty), true},
		{"as many token ids as are allowed", list(bytes.Repeat(number, validate.MaxTokenIDs)), true},
		{"as many messages as are allowed", list(bytes.Repeat(empty, validate.MaxInside-2)), true}, // prompt and its list are two
		{"one more", list(bytes.Repeat(empty, validate.MaxInside-1)), false},
		{"4 million", list(bytes.Repeat(empty, 4<<20)), false},
		{"200 deep", list(nested), false},
		{"cut off", list(bytes.Repeat(number, 10))[:20], true},
		{"no encoding", []byte{0xFF, 0xFF, 0xFF}, true},
	} {
		err := validate.Wire(c.in, completion)
		if e, is := apierr.As(err); (err == nil) != c.ok || err != nil && (!is || e.HTTP != 400) {
			t.Errorf("%s: %v, want it to pass: %v", c.name, err, c.ok)
		}
	}
}

// Every request that is small passes, whatever it is; and no bytes are too strange.
func TestWireTakesWhatIsSmall(t *testing.T) {
	whole, err := proto.Marshal(&openaiv1.CompletionsRequest{Model: "m", Stop: structpb.NewStringValue("x"), LogitBias: map[string]float64{"5": 1},
		Prompt: structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("Once")}})})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 10000 {
		b := bytes.Clone(whole)
		for range i % 8 {
			b[rnd.IntN(len(b))] = byte(rnd.Uint32())
		}
		if err := validate.Wire(b, completion); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
	}
}
