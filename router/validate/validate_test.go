package validate_test

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/validate"
)

const vocab = 1000

func chat(t testing.TB, more string) *openaiv1.ChatCompletionsRequest {
	t.Helper()
	r := &openaiv1.ChatCompletionsRequest{}
	if err := protojson.Unmarshal([]byte(`{"model":"m"`+more+`}`), r); err != nil {
		t.Fatalf("%s: %v", more, err)
	}
	if r.Messages == nil && !strings.Contains(more, "messages") {
		r.Messages = []*openaiv1.Message{{Role: "user", Content: structpb.NewStringValue("Hi")}}
	}
	return r
}

func text(t testing.TB, more string) *openaiv1.CompletionsRequest {
	t.Helper()
	r := &openaiv1.CompletionsRequest{}
	if err := protojson.Unmarshal([]byte(`{"model":"m"`+more+`}`), r); err != nil {
		t.Fatalf("%s: %v", more, err)
	}
	if r.Prompt == nil && !strings.Contains(more, "prompt") {
		r.Prompt = structpb.NewStringValue("Once")
	}
	return r
}

// Each row is a field, and what it must say when it is refused; no param: it is accepted.
func TestFields(t *testing.T) {
	long := strings.Repeat("x", 1025)
	type row struct {
		more, param string
		says        []string
	}
	both := []row{
		{`,"temperature":0`, "", nil}, {`,"temperature":2`, "", nil},
		{`,"temperature":2.01`, "temperature", []string{"0", "2", "2.01"}}, {`,"temperature":-0.1`, "temperature", []string{"-0.1"}}, {`,"temperature":"NaN"`, "temperature", nil}, {`,"temperature":"Infinity"`, "temperature", nil},
		{`,"top_p":1`, "", nil}, {`,"top_p":0.01`, "", nil}, {`,"top_p":0`, "top_p", []string{"above 0", "1"}}, {`,"top_p":1.1`, "top_p", nil}, {`,"top_p":1e-60`, "top_p", []string{"too small"}},
		{`,"min_p":0`, "", nil}, {`,"min_p":1`, "", nil}, {`,"min_p":1.5`, "min_p", nil},
		{`,"top_k":0`, "", nil}, {`,"top_k":1000`, "", nil}, {`,"top_k":1001`, "top_k", []string{"1000", "1001"}},
		{`,"frequency_penalty":-2`, "", nil}, {`,"frequency_penalty":2.1`, "frequency_penalty", []string{"-2", "2", "2.1"}},
		{`,"presence_penalty":2`, "", nil}, {`,"presence_penalty":-2.1`, "presence_penalty", nil},
		{`,"repetition_penalty":1.3`, "", nil}, {`,"repetition_penalty":0`, "repetition_penalty", nil}, {`,"repetition_penalty":9`, "repetition_penalty", nil},
		{`,"seed":-9223372036854775808`, "", nil}, {`,"seed":9223372036854775807`, "", nil},
		{`,"n":1`, "", nil}, {`,"n":8`, "", nil}, {`,"n":0`, "n", []string{"1", "8", "0"}}, {`,"n":9`, "n", []string{"8", "9"}},
		{`,"max_tokens":1`, "", nil}, {`,"max_tokens":0`, "max_tokens", []string{"1", "0"}},
		{`,"stop":"x"`, "", nil}, {`,"stop":["a","b","c","d"]`, "", nil}, {`,"stop":null`, "", nil}, {`,"stop":[]`, "", nil},
		{`,"stop":["a","b","c","d","e"]`, "stop", []string{"4", "5"}}, {`,"stop":""`, "stop", nil}, {`,"stop":5`, "stop", nil}, {`,"stop":["a",5]`, "stop[1]", nil},
		{`,"stop":{"a":1}`, "stop", nil}, {`,"stop":"` + long + `"`, "stop", []string{"1024", "1025"}},
		{`,"logit_bias":{"0":-100,"999":100}`, "", nil}, {`,"logit_bias":{"1000":1}`, "logit_bias", []string{"999"}}, {`,"logit_bias":{"-1":1}`, "logit_bias", nil},
		{`,"logit_bias":{"x":1}`, "logit_bias", nil}, {`,"logit_bias":{"5":101}`, "logit_bias", []string{"5", "100", "101"}}, {`,"logit_bias":{"5":"NaN"}`, "logit_bias", nil},
		{`,"logit_bias":{"5":1,"05":2}`, "logit_bias", []string{"twice"}},
		{`,"stream":true,"stream_options":{"include_usage":true}`, "", nil}, {`,"stream_options":{"include_usage":true}`, "stream_options", nil},
		{`,"user":"someone"`, "", nil},
	}
	check := func(more, param string, says []string, err error) {
		t.Helper()
		if param == "" {
			if err != nil {
				t.Errorf("%s: %v, want it accepted", more, err)
			}
			return
		}
		e, ok := apierr.As(err)
		if !ok || e.HTTP != 400 || e.Type != apierr.TypeInvalid || e.Param != param {
			t.Errorf("%s: %#v, want a refusal of %s", more, err, param)
			return
		}
		for _, s := range says {
			if !strings.Contains(e.Message, s) {
				t.Errorf("%s: %q lacks %q", more, e.Message, s)
			}
		}
	}
	for _, r := range both {
		_, err := validate.Chat(chat(t, r.more), vocab)
		check("chat "+r.more, r.param, r.says, err)
		_, err = validate.Completion(text(t, r.more), vocab)
		check("completion "+r.more, r.param, r.says, err)
	}
	for _, r := range []row{
		{`,"model":""`, "model", nil},
		{`,"messages":[]`, "messages", nil},
		{`,"messages":[{"role":"user","content":"Hi"}]`, "", nil},
		{`,"messages":[{"role":"developer","content":"Hi"}]`, "", nil},
		{`,"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`, "", nil},
		{`,"messages":[{"role":"user","content":[]}]`, "messages[0].content", nil},
		{`,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`, "messages[0].content[0].type", nil},
		{`,"messages":[{"role":"user","content":[{"type":"text"}]}]`, "messages[0].content[0].text", nil},
		{`,"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}]}]`, "messages[0].content[0].x", nil},
		{`,"messages":[{"role":"user","content":["a"]}]`, "messages[0].content[0].type", nil},
		{`,"messages":[{"role":"user","content":"a"},{"role":"user","content":5}]`, "messages[1].content", nil},
		{`,"messages":[{"role":"user"}]`, "messages[0].content", nil},
		{`,"messages":[{"role":"assistant","content":null}]`, "messages[0].content", nil},
		{`,"messages":[{"role":"tool","content":"x"}]`, "messages[0].role", nil},
		{`,"messages":[{"role":"root","content":"x"}]`, "messages[0].role", []string{"system", "user"}},
		{`,"messages":[{"content":"x"}]`, "messages[0].role", nil},
		{`,"messages":[{"role":"user","content":"x","name":"bob"}]`, "messages[0].name", nil},
		{`,"max_completion_tokens":5`, "", nil}, {`,"max_completion_tokens":0`, "max_completion_tokens", nil},
		{`,"max_tokens":5,"max_completion_tokens":5`, "", nil}, {`,"max_tokens":5,"max_completion_tokens":6`, "max_completion_tokens", []string{"5", "6"}},
		{`,"logprobs":true,"top_logprobs":20`, "", nil}, {`,"logprobs":true,"top_logprobs":21`, "top_logprobs", []string{"20", "21"}}, {`,"top_logprobs":1`, "top_logprobs", []string{"logprobs"}},
	} {
		req := chat(t, `,"messages":[{"role":"user","content":"x"}]`)
		if strings.HasPrefix(r.more, `,"model"`) {
			req.Model = ""
		} else {
			req = chat(t, r.more)
		}
		_, err := validate.Chat(req, vocab)
		check(r.more, r.param, r.says, err)
	}
	for _, r := range []row{
		{`,"prompt":"x"`, "", nil}, {`,"prompt":["x"]`, "", nil}, {`,"prompt":[0,999]`, "", nil},
		{`,"prompt":""`, "prompt", nil}, {`,"prompt":[]`, "prompt", nil}, {`,"prompt":null`, "prompt", nil}, {`,"prompt":{}`, "prompt", nil}, {`,"prompt":["a","b"]`, "prompt", nil},
		{`,"prompt":[[1]]`, "prompt", nil}, {`,"prompt":[1,1000]`, "prompt[1]", []string{"999", "1000"}}, {`,"prompt":[-1]`, "prompt[0]", nil}, {`,"prompt":[1.5]`, "prompt[0]", nil},
		{`,"echo":false`, "", nil}, {`,"echo":true`, "echo", nil}, {`,"logprobs":20`, "", nil}, {`,"logprobs":21`, "logprobs", []string{"20", "21"}},
	} {
		_, err := validate.Completion(text(t, r.more), vocab)
		check(r.more, r.param, r.says, err)
	}
}

func TestWhatComesOut(t *testing.T) {
	got, err := validate.Chat(chat(t, `,"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]}],
		"stream":true,"stream_options":{"include_usage":true},"stop":"x","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":1,"presence_penalty":-1,
		"repetition_penalty":1.5,"seed":-1,"max_completion_tokens":7,"n":2,"logprobs":true,"top_logprobs":3,"logit_bias":{"5":-2}`), vocab)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(math.MaxUint64)
	want := &validate.Request{Model: "m", Messages: []validate.Message{{Role: "system", Content: "a"}, {Role: "user", Content: "bc"}}, Stream: true, IncludeUsage: true,
		MaxNew: 7, MaxNewParam: "max_completion_tokens", N: 2, Seed: &seed, Sampling: &decodev1.Sampling{Temperature: .5, TopP: .9, TopK: 40, MinP: .1, FrequencyPenalty: 1,
			PresencePenalty: -1, RepetitionPenalty: 1.5, LogitBias: map[int32]float32{5: -2}, Stop: []string{"x"}, Logprobs: true, TopLogprobs: 3}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	plain, err := validate.Completion(text(t, ""), vocab)
	if err != nil || plain.MaxNew != validate.CompletionDefault || plain.N != 1 || plain.Seed != nil || plain.Sampling.Temperature != 1 || plain.Sampling.TopP != 1 {
		t.Errorf("defaults %+v, %v", plain, err)
	}
	if bare, err := validate.Chat(chat(t, ""), vocab); err != nil || bare.MaxNew != 0 {
		t.Errorf("chat without max_tokens: %+v, %v; the router's default decides", bare, err)
	}
}

func TestFieldsOfANewerServiceAreRefused(t *testing.T) {
	r := chat(t, "")
	r.ProtoReflect().SetUnknown([]byte{0xF8, 0x07, 0x01}) // field 127, varint 1
	if _, err := validate.Chat(r, vocab); err == nil {
		t.Error("an unknown field is taken")
	}
	r = chat(t, "")
	r.Messages[0].ProtoReflect().SetUnknown([]byte{0xF8, 0x07, 0x01})
	if _, err := validate.Chat(r, vocab); err == nil {
		t.Error("an unknown field of a message is taken")
	}
}

// protobuf decodes 10,000 levels; 34 KB of them took 700 MB when each level wrote the path to it.
func TestNestingIsRefusedWithoutWork(t *testing.T) {
	nested := func(levels int, wrap func(*structpb.Value) *structpb.Value) *structpb.Value {
		v := structpb.NewStringValue("x")
		for range levels {
			v = wrap(v)
		}
		return v
	}
	list := func(v *structpb.Value) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
	}
	object := func(v *structpb.Value) *structpb.Value {
		return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": v}})
	}
	for _, c := range []struct {
		name   string
		levels int
		wrap   func(*structpb.Value) *structpb.Value
	}{{"lists", 4900, list}, {"objects", 3200, object}, {"a few lists", 20, list}, {"a few objects", 20, object}} {
		b, err := proto.Marshal(&openaiv1.CompletionsRequest{Model: "m", Prompt: nested(c.levels, c.wrap), Stop: structpb.NewStringValue("x")})
		if err != nil {
			t.Fatal(err)
		}
		r := &openaiv1.CompletionsRequest{}
		if err := proto.Unmarshal(b, r); err != nil {
			t.Fatalf("%s: %d bytes do not arrive: %v", c.name, len(b), err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = validate.Completion(r, vocab)
		runtime.ReadMemStats(&after)
		if e, ok := apierr.As(err); !ok || e.HTTP != 400 || e.Param != "prompt" || !strings.Contains(e.Message, "32") {
			t.Errorf("%s: %v, want a refusal of prompt with the limit of 32", c.name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%s: a request of %d bytes took %d bytes to refuse, want at most 1 MiB", c.name, len(b), took)
		}
	}
}

func TestUnknownFieldsAreFoundInObjects(t *testing.T) {
	inner := structpb.NewStringValue("a")
	inner.ProtoReflect().SetUnknown([]byte{0xF8, 0x07, 0x01})
	r := chat(t, "")
	r.Messages[0].Content = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStructValue(&structpb.Struct{
		Fields: map[string]*structpb.Value{"type": structpb.NewStringValue("text"), "text": inner}})}})
	_, err := validate.Chat(r, vocab)
	if e, ok := apierr.As(err); !ok || e.Code != apierr.CodeUnknown || e.Param != "messages.content.list_value.values.struct_value.fields.(unknown protobuf field)" {
		t.Errorf("%v, want a refusal that names the way to the field", err)
	}
}

// What decode's samplers compute with: decode/sample.Params.Check, which the router does not import. What passes here and
// not there costs the tenant a 500, and counts as a disagreement.
var decodes = map[string]struct {
	least, most float32
	zero        bool // 0 is off, outside of the range as it may be
}{
	"temperature":        {0, 100, false},
	"top_p":              {0, 1, false},
	"min_p":              {0, 1, false},
	"frequency_penalty":  {-100, 100, false},
	"presence_penalty":   {-100, 100, false},
	"repetition_penalty": {0.01, 100, true},
	"logit_bias":         {-1000, 1000, false},
	"top_logprobs":       {0, 20, false},
}

func TestWhatPassesHerePassesAtDecode(t *testing.T) {
	got := func(s *decodev1.Sampling) map[string]float32 {
		return map[string]float32{"temperature": s.Temperature, "top_p": s.TopP, "min_p": s.MinP, "frequency_penalty": s.FrequencyPenalty,
			"presence_penalty": s.PresencePenalty, "repetition_penalty": s.RepetitionPenalty, "logit_bias": s.LogitBias[5], "top_logprobs": float32(s.TopLogprobs)}
	}
	near := []float64{0, 1e-300, 1e-60, 1e-46, 1e-30, 1e-9, 0.001, 0.005, 0.00999999, math.Nextafter(0.01, 0), 0.01, math.Nextafter(0.01, 1), 0.5,
		math.Nextafter(1, 0), 1, math.Nextafter(1, 2), 2, math.Nextafter(2, 3), 20, 21, 100, 101, 1000, 1001, math.MaxFloat32, math.MaxFloat64}
	accepted := map[string]int{}
	for field := range decodes {
		for _, v := range slices.Concat(near, []float64{math.NaN(), math.Inf(1)}) {
			for _, v := range []float64{v, -v} {
				r := chat(t, `,"logprobs":true`)
				switch field {
				case "temperature":
					r.Temperature = &v
				case "top_p":
					r.TopP = &v
				case "min_p":
					r.MinP = &v
				case "frequency_penalty":
					r.FrequencyPenalty = &v
				case "presence_penalty":
					r.PresencePenalty = &v
				case "repetition_penalty":
					r.RepetitionPenalty = &v
				case "logit_bias":
					r.LogitBias = map[string]float64{"5": v}
				case "top_logprobs":
					if v != math.Trunc(v) || v < 0 || v > math.MaxUint32 {
						continue
					}
					r.TopLogprobs = proto.Uint32(uint32(v))
				}
				out, err := validate.Chat(r, vocab)
				if err != nil {
					continue
				}
				accepted[field]++
				if field == "repetition_penalty" && out.Sampling.RepetitionPenalty == 0 || field == "top_p" && out.Sampling.TopP == 0 {
					t.Errorf("%s %v became 0, which is off", field, v)
				}
				for name, x := range got(out.Sampling) {
					if d := decodes[name]; !(x >= d.least && x <= d.most) && (!d.zero || x != 0) {
						t.Errorf("%s %v is accepted and becomes %v; decode takes %v to %v", name, v, x, d.least, d.most)
					}
				}
			}
		}
		if accepted[field] < 2 {
			t.Errorf("%s: %d values are accepted, so nothing was tested", field, accepted[field])
		}
	}
}

// Whatever arrives over gRPC, there is no panic, and what is accepted is within the bounds.
func FuzzChat(f *testing.F) {
	for _, more := range []string{"", `,"n":8,"stop":["a"],"logit_bias":{"1":2}`, `,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]`} {
		b, err := proto.Marshal(chat(f, more))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &openaiv1.ChatCompletionsRequest{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		v, err := validate.Chat(r, vocab)
		if err != nil {
			if e, ok := apierr.As(err); !ok || e.HTTP != 400 {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		s := v.Sampling
		if !(s.Temperature >= 0 && s.Temperature <= 2) || !(s.TopP > 0 && s.TopP <= 1) || v.N < 1 || v.N > validate.MaxChoices || len(s.Stop) > validate.MaxStops ||
			s.TopLogprobs > validate.MaxTopLogprobs || len(v.Messages) == 0 || s.TopK > vocab || !(s.MinP >= 0 && s.MinP <= 1) {
			t.Fatalf("accepted %+v", v)
		}
		for id, b := range s.LogitBias {
			if id < 0 || id >= vocab || !(b >= -100 && b <= 100) {
				t.Fatalf("accepted bias %d: %v", id, b)
			}
		}
	})
}
