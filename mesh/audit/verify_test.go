package audit

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

// specimen is a log of three files, two records each: 1 opened, 2 to 5 notes, 6 closed; heads at 1 and 6.
type specimen struct {
	dir   string
	key   ed25519.PrivateKey
	files [3]string
	lines [3][]string // with their ends
	heads []string
}

func newSpecimen(t *testing.T) *specimen {
	t.Helper()
	s := &specimen{dir: t.TempDir()}
	l := open(t, config(s.dir))
	l.c.FileSize = 1 << 40
	for i := 2; i <= 5; i++ {
		l.Append(note{N: i})
	}
	s.key = l.store.key
	shut(t, l)
	b, err := os.ReadFile(filepath.Join(s.dir, segmentName(1)))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	if len(lines) != 7 {
		t.Fatalf("%d lines, want 6", len(lines)-1)
	}
	for i := range s.files { // cut it where a rotation would have
		s.files[i] = segmentName(uint64(2*i + 1))
		s.lines[i] = []string{lines[2*i], lines[2*i+1]}
	}
	heads, err := os.ReadFile(filepath.Join(s.dir, headsFile))
	if err != nil {
		t.Fatal(err)
	}
	s.heads = strings.SplitAfter(string(heads), "\n")[:2]
	return s
}

func (s *specimen) write(t *testing.T) {
	t.Helper()
	for i, name := range s.files {
		path := filepath.Join(s.dir, name)
		if s.lines[i] == nil {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(strings.Join(s.lines[i], "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, headsFile), []byte(strings.Join(s.heads, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rechain gives every record from file i, line j on the hash and the chain that it would have: what somebody would do who
// can write everything but has not the key.
func (s *specimen) rechain(t *testing.T, i, j int) {
	t.Helper()
	prev := Hash{}
	for a := range s.lines {
		for b, text := range s.lines[a] {
			var r body
			cut := strings.TrimSuffix(text, "\n")
			if err := json.Unmarshal([]byte(cut[:len(cut)-tailSize]+"}"), &r); err != nil {
				t.Fatal(err)
			}
			if a > i || a == i && b >= j {
				r.Prev = prev
			}
			out, link, err := encode(nil, r)
			if err != nil {
				t.Fatal(err)
			}
			s.lines[a][b], prev = string(out), link.Hash
		}
	}
}

// TestVerify: what was done to a log, and what is found, as file (by its number):line:flaw.
func TestVerify(t *testing.T) {
	for _, c := range []struct {
		what, found string
		do          func(*testing.T, *specimen)
	}{
		{"nothing", "", func(*testing.T, *specimen) {}},
		{"a field edited", "2:1:edited", func(_ *testing.T, s *specimen) { s.lines[1][0] = strings.Replace(s.lines[1][0], `"n":3`, `"n":4`, 1) }},
		{"a hash edited", "1:2:edited 2:1:edited", func(_ *testing.T, s *specimen) {
			text, digit := s.lines[0][1], "0" // another digit, and still one: not every byte beside a digit is
			if text[len(text)-4] == '0' {
				digit = "1"
			}
			s.lines[0][1] = text[:len(text)-4] + digit + text[len(text)-3:]
		}},
		{"a field edited and its hash made anew", "2:1:edited", func(t *testing.T, s *specimen) {
			s.lines[0][1] = strings.Replace(s.lines[0][1], `"n":2`, `"n":8`, 1)
			after := s.lines[1][0]
			s.rechain(t, 0, 1)
			s.lines[1][0] = after
			s.rechainOnly(t, after)
		}},
		{"a field edited and the chain made anew", "3:2:rewritten", func(t *testing.T, s *specimen) {
			s.lines[1][0] = strings.Replace(s.lines[1][0], `"n":3`, `"n":4`, 1)
			s.rechain(t, 1, 0)
		}},
		{"a time edited", "2:2:edited", func(_ *testing.T, s *specimen) {
			s.lines[1][1] = strings.Replace(s.lines[1][1], `"time":"2`, `"time":"3`, 1)
		}},
		{"a line removed", "2:1:removed 2:1:removed", func(_ *testing.T, s *specimen) { s.lines[1] = s.lines[1][1:] }},
		{"a line removed in the midst of a file", "3:1:removed", func(_ *testing.T, s *specimen) { s.lines[1] = s.lines[1][:1] }},
		{"the last line removed", "3:1:cut", func(_ *testing.T, s *specimen) { s.lines[2] = s.lines[2][:1] }},
		{"the last line torn", "3:1:cut", func(_ *testing.T, s *specimen) { s.lines[2][1] = s.lines[2][1][:30] }},
		{"the last file removed", "2:2:cut", func(_ *testing.T, s *specimen) { s.lines[2] = nil }},
		{"the first file removed", "2:1:removed", func(_ *testing.T, s *specimen) { s.lines[0] = nil }},
		{"a file in the middle removed", "3:1:removed", func(_ *testing.T, s *specimen) { s.lines[1] = nil }},
		{"all files removed", "heads:2:cut", func(_ *testing.T, s *specimen) { s.lines = [3][]string{} }},
		{"two lines swapped", "2:1:removed 2:1:reordered 2:2:reordered", func(_ *testing.T, s *specimen) { s.lines[1][0], s.lines[1][1] = s.lines[1][1], s.lines[1][0] }},
		{"two files swapped", "1:1:removed 2:1:removed 2:1:reordered 2:2:reordered 1:1:removed", func(_ *testing.T, s *specimen) { s.lines[0], s.lines[1] = s.lines[1], s.lines[0] }},
		{"a line doubled", "2:2:reordered", func(_ *testing.T, s *specimen) { s.lines[1] = []string{s.lines[1][0], s.lines[1][0], s.lines[1][1]} }},
		{"a line of something else put in", "2:2:garbled", func(_ *testing.T, s *specimen) { s.lines[1] = []string{s.lines[1][0], "hello\n", s.lines[1][1]} }},
		{"an empty line put in", "2:2:garbled", func(_ *testing.T, s *specimen) { s.lines[1] = []string{s.lines[1][0], "\n", s.lines[1][1]} }},
		{"an end of line removed", "2:1:garbled 3:1:removed", func(_ *testing.T, s *specimen) { s.lines[1][0] = strings.TrimSuffix(s.lines[1][0], "\n") }},
		{"an older file torn", "1:2:garbled 2:1:removed", func(_ *testing.T, s *specimen) { s.lines[0][1] = s.lines[0][1][:50] }},
		{"the heads removed", "heads:head", func(_ *testing.T, s *specimen) { s.heads = nil }},
		{"a head edited", "heads:1:head", func(_ *testing.T, s *specimen) { s.heads[0] = strings.Replace(s.heads[0], `"seq":1`, `"seq":2`, 1) }},
		{"the last head edited to a lower record", "heads:2:head", func(_ *testing.T, s *specimen) { s.heads[1] = strings.Replace(s.heads[1], `"seq":6`, `"seq":4`, 1) }},
		{"a head garbled", "heads:1:head", func(_ *testing.T, s *specimen) { s.heads[0] = "hello\n" }},
		{"another process's record", "3:1:stranger 3:2:rewritten", func(t *testing.T, s *specimen) {
			s.lines[2][0] = strings.Replace(s.lines[2][0], `"instance":"d1"`, `"instance":"d2"`, 1)
			s.rechain(t, 2, 0)
		}},
		{"another key's heads over a log made anew", "heads:1:head heads:2:head heads:head", func(t *testing.T, s *specimen) {
			_, key, err := ed25519.GenerateKey(nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range s.heads {
				h, err := ParseHead([]byte(strings.TrimSuffix(s.heads[i], "\n")))
				if err != nil {
					t.Fatal(err)
				}
				if h, err = sign(key, h.headBody); err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(h)
				if err != nil {
					t.Fatal(err)
				}
				s.heads[i] = string(text) + "\n"
			}
		}},
	} {
		s := newSpecimen(t)
		c.do(t, s)
		s.write(t)
		r, _ := verify(t, s.dir)
		if got := found(r); got != c.found {
			t.Errorf("%s: found %q, want %q", c.what, got, c.found)
		}
	}
}

// rechainOnly leaves one line as it was while those after it follow from it.
func (s *specimen) rechainOnly(t *testing.T, _ string) {
	t.Helper()
	prev := s.lines[1][0]
	r, err := Decode([]byte(strings.TrimSuffix(prev, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	last := r.Link()
	for _, p := range []*string{&s.lines[1][1], &s.lines[2][0], &s.lines[2][1]} {
		r, err := Decode([]byte(strings.TrimSuffix(*p, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		r.Prev = last.Hash
		out, link, err := encode(nil, r.body)
		if err != nil {
			t.Fatal(err)
		}
		*p, last = string(out), link
	}
}

func found(r *Report) string {
	var out []string
	for _, f := range r.Findings {
		name := strings.TrimSuffix(filepath.Base(f.File), ".jsonl")
		if n, ok := strings.CutPrefix(name, "audit-"); ok {
			name = fmt.Sprint((len(strings.TrimLeft(n, "0")) + int(n[len(n)-1]-'0')) / 2)
		}
		text := name + ":"
		if f.Line > 0 {
			text += fmt.Sprint(f.Line) + ":"
		}
		out = append(out, text+string(f.Flaw))
	}
	return strings.Join(out, " ")
}

// TestAKeptHeadShowsWhatTheDirectoryHides: whoever can write the directory, key and all, can cut log and heads alike; who
// has kept a head from a receipt sees it.
func TestAKeptHeadShowsWhatTheDirectoryHides(t *testing.T) {
	s := newSpecimen(t)
	last, err := ParseHead([]byte(strings.TrimSuffix(s.heads[1], "\n")))
	if err != nil {
		t.Fatal(err)
	}
	pub := []ed25519.PublicKey{publicOf(s.key)}
	s.write(t)
	look := func(heads ...Head) string {
		r, err := Verify(s.dir, pub, heads, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.OwnKey {
			t.Error("the key was given, and the report says that it was not")
		}
		return found(r)
	}
	if got := look(last); got != "" {
		t.Errorf("the whole log: %q", got)
	}
	s.lines[2], s.heads = nil, s.heads[:1]
	s.write(t)
	if got := look(); got != "" {
		t.Errorf("cut above the last head that is left: %q, and it cannot be seen", got)
	}
	if got := look(last); got != "2:2:cut" {
		t.Errorf("with the head that was kept: %q, want 2:2:cut", got)
	}
	other := last
	other.Instance = "d2"
	if other, err = sign(s.key, other.headBody); err != nil {
		t.Fatal(err)
	}
	if got := look(other); got != "" {
		t.Errorf("with another process's head: %q", got)
	}
	forged := last
	forged.Seq = 9
	if got := look(forged); !strings.HasSuffix(got, "head") {
		t.Errorf("with a forged head: %q, want a finding", got)
	}
}

func TestVerifyHasNothingToLookAt(t *testing.T) {
	dir := t.TempDir()
	if _, err := Verify(dir, nil, nil, nil); errs.KindOf(err) != errs.NotFound {
		t.Errorf("an empty directory: %v, want not found", err)
	}
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(dir, []ed25519.PublicKey{pub}, nil, nil); errs.KindOf(err) != errs.NotFound {
		t.Errorf("an empty directory and a key: %v, want not found", err)
	}
	s := newSpecimen(t)
	if err := os.WriteFile(filepath.Join(s.dir, "audit-3.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(s.dir, nil, nil, nil); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("a file whose name is no number of 20 digits: %v, want corrupt", err)
	}
}

func TestRemovalByRotationMustFit(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.FileSize, c.Keep = 1, 3
	l := open(t, c)
	for i := range 6 {
		l.Append(note{N: i})
		wait(t, l)
	}
	shut(t, l)
	all, err := segments(dir)
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := os.Remove(filepath.Join(dir, all[0].name)); err != nil { // one more than any record says
		t.Fatal(err)
	}
	if r, _ := verify(t, dir); len(r.Findings) != 1 || r.Findings[0].Flaw != Removed || r.Rotated != 0 {
		t.Errorf("%+v, want one removal that no record explains", r)
	}
}
