package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// good is a demo that went as it should: 3 pages for 131 tokens.
const good = `{"requests": [{"prompt_tokens": 131, "outcome": "ok", "choices": [{"route": "split:grpc", "prompt_tokens": 131,
	"prefill_pages": 3, "expected_pages": 3, "pages_moved": 3, "root": "ab", "prefill_root": "ab", "verdicts_equal": true, "guards_on": true}]}]}`

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		from, to   string
		scattering bool
		met        bool
	}{
		"all as it should be":         {"", "", true, true},
		"the answer is beside it":     {"", "", false, false},
		"a page did not move":         {`"pages_moved": 3`, `"pages_moved": 2`, true, false},
		"decode expected fewer":       {`"expected_pages": 3`, `"expected_pages": 2`, true, false},
		"prefill sealed more":         {`"prefill_pages": 3`, `"prefill_pages": 4`, true, false},
		"the verdicts differ":         {`"verdicts_equal": true`, `"verdicts_equal": false`, true, false},
		"the roots differ":            {`"prefill_root": "ab"`, `"prefill_root": "cd"`, true, false},
		"there is no root":            {`"ab"`, `""`, true, false},
		"the halves counted apart":    {`[{"prompt_tokens": 131`, `[{"prompt_tokens": 130`, true, false},
		"the guards are off":          {`"guards_on": true`, `"guards_on": false`, true, false},
		"a prompt that needs no page": {`131`, `1`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var acc account
			text := good
			if c.from != "" {
				text = strings.ReplaceAll(good, c.from, c.to)
			}
			if err := json.Unmarshal([]byte(text), &acc); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			line, err := streams{out: &out}.judge(acc, c.scattering, time.Second)
			var bar struct{ Met bool }
			if jerr := json.Unmarshal([]byte(line), &bar); jerr != nil || bar.Met != c.met || (err == nil) != c.met {
				t.Errorf("judge = %s, %v; want met %v", line, err, c.met)
			}
			if !strings.Contains(out.String(), "what happened") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}
