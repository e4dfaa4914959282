package chat_test

import (
	"errors"
	"strings"
	"testing"

	"leasehold.dev/model/chat"
)

func TestParseRefuses(t *testing.T) {
	rep := strings.Repeat
	for _, c := range []struct{ name, src string }{
		{"a tag that is not closed", "{{ x"},
		{"a block that is not closed", "{% if x %}"},
		{"an end without a block", "{% endfor %}"},
		{"a source over the limit", rep("x", chat.MaxSource+1)},
		{"other files", "{% include '/etc/passwd' %}"},
		{"other templates", "{% extends 'base' %}"},
		{"imports", "{% import 'x' as y %}"},
		{"brackets nested too deep", "{{ " + rep("(", 65) + "1" + rep(")", 65) + " }}"},
		{"lists nested too deep", "{{ " + rep("[", 65) + rep("]", 65) + " }}"},
		{"blocks nested too deep", rep("{% if x %}", 65) + rep("{% endif %}", 65)},
		{"a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
		{"a macro that calls itself in a statement", "{%- macro f() -%}{%- if f() -%}{%- endif -%}{%- endmacro -%}"},
		{"two macros that call each other", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}"},
		{"a macro that is its own argument's default", "{% macro f(x=f) %}{{ x() }}{% endmacro %}"},
		{"a macro under another name", "{% macro f() %}{{ g() }}{% endmacro %}{% set g = f %}"},
		{"a macro handed to itself", "{% macro f(x) %}{{ x(x) }}{% endmacro %}{{ f(f) }}"},
		{"a macro defined twice", "{% macro f() %}{% endmacro %}{% macro f() %}{% endmacro %}"},
		{"a macro inside another", "{% macro f() %}{% macro g() %}{% endmacro %}{% endmacro %}"},
		{"a macro behind a closer in brackets", "{{ {'a': {}} }}{% macro f() %}{{ f() }}{% endmacro %}"},
		{"a macro behind the other kind of closer", "{{ 1 %} }}{% macro f() %}{{ f() }}{% endmacro %}"},
		{"a macro behind a quote in a comment", "{# it's #}{% macro f() %}{{ f() }}{% endmacro %}"},
		{"a call block", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}x{% endcall %}"},
	} {
		if _, err := chat.Parse(c.src); !errors.Is(err, chat.ErrTemplate) {
			t.Errorf("%s: Parse error = %v, want %v", c.name, err, chat.ErrTemplate)
		}
	}
}

func TestParseTakesWhatOnlyLooksDeep(t *testing.T) {
	for _, c := range []struct{ name, src string }{
		{"brackets in text", strings.Repeat("(", 1000)},
		{"brackets in a string", "{{ '" + strings.Repeat("(", 1000) + "' }}"},
		{"an escaped quote in a string", `{{ 'it\'s ((' }}`},
		{"many blocks, one after the other", strings.Repeat("{% if x %}{% endif %}", 1000)},
		{"a macro's name in text and in a comment", "f {# f #}{% macro f() %}f{% endmacro %}{{ f() }}"},
	} {
		if _, err := chat.Parse(c.src); err != nil {
			t.Errorf("%s: Parse: %v", c.name, err)
		}
	}
}

// Sources that recurse without brackets; the limit on a source's length must keep the stack within bounds.
func TestLongSourcesDoNotExhaustTheStack(t *testing.T) {
	for _, unit := range []string{"-", "not ", "1 if 1 else ", "1 ~ ", "x.", "x|", "1 == ", "1 and ", "2 ** "} {
		src := "{{ " + strings.Repeat(unit, (chat.MaxSource-8)/len(unit)) + "1 }}"
		tmpl, err := chat.Parse(src)
		if err != nil {
			continue
		}
		if _, err := tmpl.Render(nil, true); err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q repeated: %v", unit, err)
		}
	}
}

// FuzzTemplate: any source and any message give a prompt or an error, never a crash.
func FuzzTemplate(f *testing.F) {
	for _, src := range []string{
		smollm, "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1) }}", "{{ messages[0].content * 2 }}", "{%- set x = [1,2] -%}{{ x[::-1] }}",
		"{# c #}{{ raise_exception('no') }}", "{% for k, v in messages[0].items() %}{{ k }}{% endfor %}",
	} {
		f.Add(src, "hi")
	}
	f.Fuzz(func(t *testing.T, src, content string) {
		if len(src) > 400 || strings.Count(src, "for") > 2 || strings.Contains(src, "*") {
			return // time and memory of a template are not bounded, see the package's comment
		}
		tmpl, err := chat.Parse(src)
		if err != nil {
			if !errors.Is(err, chat.ErrTemplate) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if _, err := tmpl.Render([]chat.Message{{Role: "user", Content: content}}, true); err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Fatalf("an error of no kind: %v", err)
		}
	})
}
