package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// note is an event of tests.
type note struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
}

func (note) Kind() string { return "test.note" }

type endless struct{ F float64 }

func (endless) Kind() string { return "test.endless" }

func config(dir string) Config { return Config{Dir: dir, Service: "decode", Instance: "d1"} }

func open(t *testing.T, c Config) *Log {
	t.Helper()
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func shut(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// verify is Verify with the directory's own key, and the kinds and numbers of what is in it.
func verify(t *testing.T, dir string) (*Report, []string) {
	t.Helper()
	var kinds []string
	r, err := Verify(dir, nil, nil, func(r *Record, _ Place) error {
		text := strings.TrimPrefix(r.Kind, "audit.")
		if r.Kind == "test.note" {
			var n note
			if err := json.Unmarshal(r.Fields, &n); err != nil {
				return err
			}
			text = fmt.Sprint(n.N)
		}
		kinds = append(kinds, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, kinds
}

func clean(t *testing.T, dir, want string) *Report {
	t.Helper()
	r, kinds := verify(t, dir)
	for _, f := range r.Findings {
		t.Errorf("%v", f)
	}
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("the log has %q, want %q", got, want)
	}
	return r
}

func TestWhatIsAppendedIsThereInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	l := open(t, config(dir))
	for i := range 5 {
		l.Append(note{N: i})
	}
	shut(t, l)
	r := clean(t, dir, "opened 0 1 2 3 4 closed")
	if r.Service != "decode" || r.Instance != "d1" || r.Records != 7 || r.Last.Seq != 7 || r.Head.Seq != 7 || r.Heads != 2 || r.Unsigned != 0 || !r.OwnKey {
		t.Errorf("report %+v", r)
	}
}

func TestAReopenedLogGoesOn(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		l := open(t, config(dir))
		l.Append(note{N: i})
		shut(t, l)
	}
	if r := clean(t, dir, "opened 0 closed opened 1 closed opened 2 closed"); r.Files != 1 || r.Last.Seq != 9 {
		t.Errorf("report %+v", r)
	}
}

func TestManyAppendAtOnce(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.FileSize = 20_000
	l := open(t, c)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 250 {
				l.Append(note{N: 1000*i + j})
			}
		})
	}
	wg.Wait()
	shut(t, l)
	r, kinds := verify(t, dir)
	if len(r.Findings) > 0 || r.Records != 2002 || r.Files < 10 {
		t.Errorf("report %+v", r)
	}
	var last [8]int // each goroutine's own order is kept
	for _, k := range kinds[1 : len(kinds)-1] {
		var n int
		if _, err := fmt.Sscan(k, &n); err != nil {
			t.Fatal(err)
		}
		if i := n / 1000; n%1000 < last[i] {
			t.Fatalf("%d comes after %d of the same goroutine", n%1000, last[i])
		} else {
			last[i] = n % 1000
		}
	}
}

func TestHeadsAreSignedEveryMinuteAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, config(dir))
		first, ok := l.Head()
		if !ok || first.Seq != 1 {
			t.Fatalf("after Open: head %+v, %v", first, ok)
		}
		pub, err := proof.ReadPublicKey(filepath.Join(dir, PublicFile))
		if err != nil || first.Check(pub) != nil {
			t.Fatalf("%v, %v", err, first.Check(pub))
		}
		time.Sleep(10 * SignEvery)
		synctest.Wait()
		if h, _ := l.Head(); h.Seq != 1 || l.unsignedFor(time.Now()) != 0 {
			t.Errorf("without records there is head %d, unsigned for %v", h.Seq, l.unsignedFor(time.Now()))
		}
		l.Append(note{N: 1})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if age := l.unsignedFor(time.Now()); age != 2*time.Second {
			t.Errorf("unsigned for %v, want 2s", age)
		}
		time.Sleep(SignEvery)
		synctest.Wait()
		if h, _ := l.Head(); h.Seq != 2 || l.unsignedFor(time.Now()) != 0 {
			t.Errorf("after a minute there is head %d, unsigned for %v", h.Seq, l.unsignedFor(time.Now()))
		}
		l.Append(note{N: 2})
		shut(t, l)
		if h, _ := l.Head(); h.Seq != 4 || h.Check(pub) != nil {
			t.Errorf("after Close there is head %d, %v", h.Seq, h.Check(pub))
		}
	})
	clean(t, dir, "opened 1 2 closed")
}

func TestRotationKeepsTheChain(t *testing.T) {
	dir := t.TempDir()
	c := config(dir)
	c.FileSize = 1
	l := open(t, c)
	for i := range 4 {
		l.Append(note{N: i})
		wait(t, l)
	}
	shut(t, l)
	if r := clean(t, dir, "opened 0 1 2 3 closed"); r.Files != 6 || r.First.Seq != 1 {
		t.Errorf("report %+v", r)
	}
	all, err := segments(dir)
	if err != nil || all[1].name != "audit-00000000000000000002.jsonl" {
		t.Errorf("files %v, %v", all, err)
	}
}

// wait returns when everything that was appended is written.
func wait(t *testing.T, l *Log) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.failure == nil {
		l.room.Wait()
	}
	if l.failure != nil {
		t.Fatal(l.failure)
	}
}

func TestFilesOverTheNumberToKeepGoWithARecord(t *testing.T) {
	for keep := 1; keep <= 3; keep++ {
		dir := t.TempDir()
		c := config(dir)
		c.FileSize, c.Keep = 1, keep
		l := open(t, c)
		for i := range 9 {
			l.Append(note{N: i})
			wait(t, l)
		}
		shut(t, l)
		r, kinds := verify(t, dir)
		if len(r.Findings) > 0 || r.Files != keep || r.First.Seq == 1 || r.Rotated != r.First.Seq-1 || len(kinds) == 0 {
			t.Errorf("keep %d: %v in %+v", keep, kinds, r)
		}
		l = open(t, c) // the chain goes on from what is left
		shut(t, l)
		if r, _ := verify(t, dir); len(r.Findings) > 0 || r.Files > keep {
			t.Errorf("keep %d, reopened: %+v", keep, r)
		}
	}
}

func TestOneWriterADirectory(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir))
	if _, err := Open(config(dir)); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a second writer: %v, want unavailable", err)
	}
	shut(t, l)
	shut(t, open(t, config(dir)))
}

func TestTheKeyIsTheProcesssAlone(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, config(dir)))
	path := filepath.Join(dir, "key.pem")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("key.pem: %v, %v", st, err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shut(t, open(t, config(dir)))
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the second run has another key (%v)", err)
	}
	for _, c := range []struct {
		why  string
		kind errs.Kind
		do   func() error
	}{
		{"others may read it", errs.Denied, func() error { return os.Chmod(path, 0o640) }},
		{"it is no key", errs.Corrupt, func() error { return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("x"), 0o600)) }},
		{"it is gone, the records are there", errs.Corrupt, func() error { return os.Remove(path) }},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(config(dir)); errs.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %v", c.why, err, c.kind)
		}
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, PublicFile)); err != nil {
		t.Fatal(err)
	}
	if err := writePublic(dir, other); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(config(dir)); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("another public key: %v, want corrupt", err)
	}
}

func TestNoLogTakesEverything(t *testing.T) {
	var l *Log
	l.Append(note{})
	if _, ok := l.Head(); ok || l.Healthy(t.Context()) != nil || l.Close() != nil {
		t.Error("a nil log has a head, is ill, or does not close")
	}
}

func TestOpenRefusesSettingsThatCannotBe(t *testing.T) {
	for _, c := range []Config{{Dir: t.TempDir(), FileSize: -1}, {Dir: t.TempDir(), Keep: -1}} {
		if _, err := Open(c); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v, want invalid", c, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(config(filepath.Join(file, "x"))); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("below a file: %v, want unavailable", err)
	}
}

func TestARecordThatDoesNotEncodeIsCountedAndOnRecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, config(dir))
		l.Append(endless{math.Inf(1)})
		time.Sleep(2 * time.Second)
		l.Append(note{N: 1})
		shut(t, l)
	})
	if r := clean(t, dir, "opened lost 1 closed"); r.Lost != 1 {
		t.Errorf("%d lost, want 1", r.Lost)
	}
}

func TestAfterCloseRecordsAreLost(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir))
	shut(t, l)
	l.Append(note{N: 1})
	if err := l.Healthy(t.Context()); l.lost != 1 || errs.KindOf(err) != errs.Unavailable {
		t.Errorf("%d lost, want 1; Healthy() = %v, want unavailable", l.lost, err)
	}
	clean(t, dir, "opened closed")
}
