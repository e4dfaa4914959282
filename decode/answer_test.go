package decode

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"leasehold.dev/gpu/runner"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	"leasehold.dev/protos/pagesum"
)

// says makes the answer of a model that says ids, as far as the answer wants them.
func says(t *testing.T, m *model.Model, s *decodev1.Sampling, most uint32, ids []int32) (*answer, []*decodev1.Tokens) {
	t.Helper()
	a, err := newAnswer(m.Tokenizer, s, []int32{1, 2, 3}, most)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, m.Tokenizer.Vocab())
	for i, id := range ids {
		row[id] = 50
		next, more, err := a.Step(runner.Outcome{Last: true, Length: uint32(3 + i), Logits: row, LogitDigest: digest(i)})
		row[id] = 0
		if err != nil || next != id {
			t.Fatalf("step %d said %d, %v, want %d", i, next, err, id)
		}
		if !more {
			return a, a.take()
		}
	}
	return a, a.take()
}

func digest(i int) pagesum.Digest { return pagesum.Digest{byte(i + 1)} }

func textOf(ts []*decodev1.Tokens) string {
	var b strings.Builder
	for _, t := range ts {
		b.WriteString(t.Text)
	}
	return b.String()
}

func TestAnswersEnd(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	enc := func(s string) []int32 { return m.Tokenizer.Encode(s, false) }
	end := m.Tokenizer.Encode("<|im_end|>", true)[0]
	emoji := enc("🦊") // several tokens, none of which is a character
	if len(emoji) < 2 {
		t.Fatalf("the tokenizer has one token for the emoji: %v", emoji)
	}
	const unset = decodev1.FinishReason_FINISH_REASON_UNSPECIFIED
	const stop, length = decodev1.FinishReason_FINISH_REASON_STOP, decodev1.FinishReason_FINISH_REASON_LENGTH
	for _, tt := range []struct {
		name   string
		s      *decodev1.Sampling
		most   uint32
		ids    []int32
		text   string
		reason decodev1.FinishReason
		tokens int
	}{
		{"an end token", nil, 9, append(enc("one two"), end, 5), "one two", stop, len(enc("one two")) + 1},
		{"an end token that is to be ignored", &decodev1.Sampling{IgnoreEos: true}, 9, append(enc("one two"), end), "one two", unset, len(enc("one two")) + 1},
		{"as many tokens as may be", nil, 2, enc("one two three four"), "one two", length, 2},
		{"an end token as the last that may be", nil, 2, []int32{enc("one")[0], end}, "one", stop, 2},
		{"a stop string across tokens", &decodev1.Sampling{Stop: []string{"o thr"}}, 9, enc("one two three four"), "one tw", stop, 3},
		{"a stop string's beginning when the answer is full", &decodev1.Sampling{Stop: []string{"two three"}}, 2, enc("one two three"), "one two", length, 2},
		{"a stop string's beginning before an end token", &decodev1.Sampling{Stop: []string{"two three"}}, 9, append(enc("one two"), end), "one two", stop, 3},
		{"a character that is whole at the last token", nil, uint32(len(emoji)), emoji, "🦊", length, len(emoji)},
		{"a character that stays broken", nil, uint32(len(emoji) - 1), emoji, "\uFFFD", length, len(emoji) - 1},
		{"a broken character that is asked for", &decodev1.Sampling{Stop: []string{"\uFFFD"}}, uint32(len(emoji) - 1), emoji, "", stop, len(emoji) - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, ts := says(t, m, tt.s, tt.most, tt.ids)
			if got := textOf(ts); got != tt.text {
				t.Errorf("text is %q, want %q", got, tt.text)
			}
			for _, msg := range ts {
				if !utf8.ValidString(msg.Text) {
					t.Errorf("a message's text %q is no UTF-8", msg.Text)
				}
			}
			if a.reason != tt.reason || len(ts) != tt.tokens {
				t.Errorf("ended with %v after %d tokens, want %v after %d", a.reason, len(ts), tt.reason, tt.tokens)
			}
		})
	}
}

func TestAnAnswersLastMessageCountsAndDigests(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	ids := []int32{500, 600, 700}
	a, _ := says(t, m, nil, 3, ids)
	f := a.finished(a.first.Add(-5000))
	out, logits := sha256.New(), sha256.New()
	for i, id := range ids {
		out.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
		d := digest(i)
		logits.Write(d[:])
	}
	if f.PromptTokens != 3 || f.CompletionTokens != 3 || f.FirstTokenUs != 5 {
		t.Errorf("%d prompt and %d completion tokens, first after %d us, want 3, 3, 5", f.PromptTokens, f.CompletionTokens, f.FirstTokenUs)
	}
	if !slices.Equal(f.OutputDigest, out.Sum(nil)) || !slices.Equal(f.LogitDigest, logits.Sum(nil)) {
		t.Error("the digests are not SHA-256 over ids and logit digests in order")
	}
}

func TestLogprobsCarryBytes(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	_, ts := says(t, m, &decodev1.Sampling{Logprobs: true, TopLogprobs: 2}, 1, []int32{500})
	info := ts[0].Tokens[0]
	if info.Id != 500 || info.Logprob > 0 || info.Logprob < -1e-3 || string(info.TokenBytes) != string(m.Tokenizer.Piece(500)) {
		t.Errorf("token is %v", info)
	}
	if len(info.Top) != 2 || info.Top[0].Id != 500 || info.Top[1].Id != 0 || string(info.Top[1].TokenBytes) != string(m.Tokenizer.Piece(0)) {
		t.Errorf("alternatives are %v, want 500 and the lowest id", info.Top)
	}
	_, ts = says(t, m, nil, 1, []int32{500})
	if info := ts[0].Tokens[0]; info.Logprob != 0 || info.TokenBytes != nil || info.Top != nil {
		t.Errorf("a token without logprobs is %v", info)
	}
}

func TestAStepWithoutLogitsIsCorrupt(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	a, err := newAnswer(m.Tokenizer, nil, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]runner.Outcome{
		"no logits":     {Last: true, LogitDigest: digest(1)},
		"a zero digest": {Last: true, Logits: make([]float32, m.Tokenizer.Vocab())},
	} {
		if _, _, err := a.Step(o); errs.KindOf(err) != errs.Corrupt || err == nil {
			t.Errorf("%s: %v, want corrupt", name, err)
		}
	}
	if _, _, err := a.Step(runner.Outcome{}); err != nil || a.count != 0 {
		t.Errorf("a chunk that is not the last: %v, %d tokens", err, a.count)
	}
}

func TestWrongSamplingIsRefusedByName(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	for want, s := range map[string]*decodev1.Sampling{
		"top_p":        {TopP: 2},
		"top_logprobs": {Logprobs: true, TopLogprobs: 1 << 31},
		"logit_bias":   {LogitBias: map[int32]float32{1 << 20: 1}},
		"stop":         {Stop: []string{""}},
	} {
		_, err := newAnswer(m.Tokenizer, s, nil, 3)
		if err == nil || errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want invalid, naming %s", s, err, want)
		}
	}
}
