package chat_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"leasehold.dev/model/chat"
)

func parse(t *testing.T, src string) *chat.Template {
	t.Helper()
	tmpl, err := chat.Parse(src)
	if err != nil {
		t.Fatalf("Parse(%q): %v", src, err)
	}
	return tmpl
}

// smollm is SmolLM2's template.
const smollm = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}" +
	"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

func TestRender(t *testing.T) {
	hi := []chat.Message{{Role: "user", Content: "hi"}}
	for _, c := range []struct {
		name, src string
		messages  []chat.Message
		generate  bool
		want      string
	}{
		{"the model's own template, with its system turn", smollm, hi, true,
			"<|im_start|>system\nBe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
		{"without a generation prompt", smollm, []chat.Message{{"system", "x"}}, false, "<|im_start|>system\nx<|im_end|>\n"},
		{"no messages", smollm, nil, false, ""},
		{"template marks in a message stay text", "{{ messages[0].content }}", []chat.Message{{"user", "{{ 1 + 1 }}{% raw %}"}}, true, "{{ 1 + 1 }}{% raw %}"},
		{"markup in a message is not escaped", "{{ messages[0].content }}", []chat.Message{{"user", "<a href=\"x\">&amp;"}}, true, "<a href=\"x\">&amp;"},
		{"a newline and spaces around a block are no text, as where these templates are made", "a\n  {% if true %}\nx{% endif %}", nil, true, "a\nx"},
		{"dashes trim", "a  {%- if true -%}  b {%- endif %}", nil, true, "ab"},
		{"filters", "{{ messages[0].content | trim | upper }}", []chat.Message{{"user", " x "}}, true, "X"},
		{"namespaces and range", "{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", nil, true, "6"},
		{"range down", "{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}", nil, true, "321"},
		{"a macro that is called", "{% macro turn(m) %}[{{ m.role }}]{% endmacro %}{{ turn(messages[0]) }}", hi, true, "[user]"},
		{"a macro that calls an earlier one", "{% macro a(x) %}{{ x }}{% endmacro %}{% macro b(x) %}<{{ a(x) }}>{% endmacro %}{{ b('y') }}", nil, true, "<y>"},
		{"tokens are empty unless set", "{{ bos_token }}|{{ eos_token }}", nil, true, "|"},
		{"the clock is not there", "{% if strftime_now is defined %}now{% else %}never{% endif %}", nil, true, "never"},
	} {
		got, err := parse(t, c.src).Render(c.messages, c.generate)
		if err != nil || got != c.want {
			t.Errorf("%s: Render = %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestWithTokens(t *testing.T) {
	plain := parse(t, "{{ bos_token }}x{{ eos_token }}")
	set := plain.WithTokens("<s>", "</s>")
	for _, c := range []struct {
		tmpl *chat.Template
		want string
	}{{plain, "x"}, {set, "<s>x</s>"}} {
		if got, err := c.tmpl.Render(nil, false); err != nil || got != c.want {
			t.Errorf("Render = %q, %v, want %q", got, err, c.want)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	secret := []chat.Message{{Role: "user", Content: "my secret"}}
	for _, c := range []struct {
		name, src string
		messages  []chat.Message
		want      string
	}{
		{"what the template raises in its own words", "{{ raise_exception('Roles must alternate') }}", secret, "invalid conversation: Roles must alternate"},
		{"what it raises in the caller's words, without them", "{{ raise_exception('no: ' + messages[0].content) }}", secret, "invalid conversation: the template refused it"},
		{"an exception that is the caller's content alone", "{{ raise_exception(messages[0].content) }}", secret, "invalid conversation: the template refused it"},
		{"an exception without a text", "{{ raise_exception() }}", secret, "invalid conversation: the template refused it"},
		{"a range over its limit", "{% for i in range(1000000000000) %}{% endfor %}", secret, "invalid conversation: the template failed on it"},
		{"ranges over the limit together", "{% for i in range(60000) %}{% endfor %}{% for i in range(60000) %}{% endfor %}", secret, "invalid conversation: the template failed on it"},
		{"a range that never ends", "{% for i in range(1, 5, 0) %}{% endfor %}", secret, "invalid conversation: the template failed on it"},
		{"a range of text", "{% for i in range(messages[0].content) %}{% endfor %}", secret, "invalid conversation: the template failed on it"},
		{"a panic in the engine", "{{ 'x' * -1 }}", secret, "invalid conversation: the template failed on it"},
		{"a function that is not there", "{{ messages[0].content.nothing() }}", secret, "invalid conversation: the template failed on it"},
		{"an answer over the limit", "{% for m in messages %}{% for n in messages %}{{ m.content }}{% endfor %}{% endfor %}",
			repeat(chat.Message{Role: "user", Content: strings.Repeat("x", 1<<16)}, 32), "invalid conversation: it renders to 67108864 bytes; at most 33554432 allowed"},
		{"contents over the limit", "", []chat.Message{{"user", strings.Repeat("x", chat.MaxText)}}, "invalid conversation: 33554436 bytes; at most 33554432 allowed"},
		{"too many messages", "", make([]chat.Message, chat.MaxMessages+1), "invalid conversation: 65537 messages; at most 65536 allowed"},
	} {
		got, err := parse(t, c.src).Render(c.messages, true)
		if !errors.Is(err, chat.ErrInvalid) || err.Error() != c.want || got != "" {
			t.Errorf("%s: Render = %.40q, %v, want %q", c.name, got, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the caller's text is in the error: %v", c.name, err)
		}
	}
}

func repeat(m chat.Message, n int) []chat.Message {
	ms := make([]chat.Message, n)
	for i := range ms {
		ms[i] = m
	}
	return ms
}

func TestOneTemplateServesManyGoroutines(t *testing.T) {
	tmpl := parse(t, smollm)
	messages := repeat(chat.Message{Role: "user", Content: "hi"}, 20)
	want, err := tmpl.Render(messages, true)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if got, err := tmpl.Render(messages, true); err != nil || got != want {
					t.Errorf("Render = %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
