package decode

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
)

func TestStops(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stops []string
		parts []string
		shown []string // after each part
		hit   bool
		rest  string
	}{
		{name: "no stop strings hold nothing back", parts: []string{"a", "b"}, shown: []string{"a", "b"}},
		{name: "a stop inside one part", stops: []string{"END"}, parts: []string{"one END two"}, shown: []string{"one "}, hit: true},
		{name: "a stop at once", stops: []string{"END"}, parts: []string{"END"}, shown: []string{""}, hit: true},
		{name: "a stop across two parts", stops: []string{"END"}, parts: []string{"one E", "ND two"}, shown: []string{"one ", ""}, hit: true},
		{name: "a stop across many parts", stops: []string{"END"}, parts: []string{"E", "N", "D"}, shown: []string{"", "", ""}, hit: true},
		{name: "a beginning that goes on otherwise", stops: []string{"END"}, parts: []string{"one E", "N", "X"}, shown: []string{"one ", "", "ENX"}},
		{name: "a beginning at the end of the text", stops: []string{"END"}, parts: []string{"one EN"}, shown: []string{"one "}, rest: "EN"},
		{name: "a beginning within a beginning", stops: []string{"aab"}, parts: []string{"aa", "a", "b"}, shown: []string{"", "a", ""}, hit: true},
		{name: "the earliest of two", stops: []string{"two", "one"}, parts: []string{"zero one two"}, shown: []string{"zero "}, hit: true},
		{name: "one is the beginning of the other", stops: []string{"\n\n", "\n"}, parts: []string{"a\n\nb"}, shown: []string{"a"}, hit: true},
		{name: "two end at once, the longer starts earlier", stops: []string{"D", "END"}, parts: []string{"an EN", "D"}, shown: []string{"an ", ""}, hit: true},
		{name: "characters of several bytes", stops: []string{"größe"}, parts: []string{"die gr", "ö", "ße"}, shown: []string{"die ", "", ""}, hit: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stops{list: tt.stops}
			hit := false
			for i, part := range tt.parts {
				var show string
				if show, hit = s.push(part); show != tt.shown[i] {
					t.Errorf("push(%q) shows %q, want %q", part, show, tt.shown[i])
				}
				if hit != (tt.hit && i == len(tt.parts)-1) {
					t.Errorf("push(%q) hits: %v", part, hit)
				}
			}
			if rest := s.rest(); rest != tt.rest {
				t.Errorf("rest is %q, want %q", rest, tt.rest)
			}
		})
	}
}

// However a text is cut into parts, what is shown is the text up to the first stop string.
func TestStopsDoNotDependOnTheParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 0, 40, -1).Draw(t, "text")
		list := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 4, -1), 0, 3).Draw(t, "stops")
		want, found := text, false
		for _, stop := range list {
			if i := strings.Index(text, stop); i >= 0 && i <= len(want) {
				want, found = text[:i], true
			}
		}
		s := stops{list: list}
		var shown strings.Builder
		left, hit := text, false
		for left != "" && !hit {
			n := rapid.IntRange(1, len(left)).Draw(t, "bytes")
			var show string
			show, hit = s.push(left[:n])
			shown.WriteString(show)
			left = left[n:]
			if !strings.HasPrefix(want, shown.String()) {
				t.Fatalf("%q is shown, want %q", shown.String(), want)
			}
		}
		if !hit {
			shown.WriteString(s.rest())
		}
		if shown.String() != want || hit != found {
			t.Fatalf("shown %q, hit %v, want %q, %v", shown.String(), hit, want, found)
		}
	})
}

func TestCheckStops(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stops []string
		ok    bool
	}{
		{"none", nil, true},
		{"as many as may be", strings.Split(strings.Repeat("x", maxStops), ""), true},
		{"too many", strings.Split(strings.Repeat("x", maxStops+1), ""), false},
		{"an empty one", []string{"a", ""}, false},
		{"the longest", []string{strings.Repeat("x", maxStopSize)}, true},
		{"too long a one", []string{strings.Repeat("x", maxStopSize+1)}, false},
		{"broken UTF-8", []string{"a\xff"}, false},
	} {
		err := checkStops(tt.stops)
		if (err == nil) != tt.ok || err != nil && errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: checkStops = %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}
