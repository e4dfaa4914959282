package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/protos/errs"
)

// breakDisk makes every write of l fail until the returned function is called. The log's next turn sees it.
func breakDisk(t *testing.T, l *Log) (repair func()) {
	t.Helper()
	synctest.Wait() // the owner sleeps: the store may be looked at
	whole := l.store.file
	readOnly, err := os.Open(whole.Name())
	if err != nil {
		t.Fatal(err)
	}
	l.store.file = readOnly
	return func() {
		synctest.Wait()
		l.store.file = whole
		readOnly.Close()
	}
}

func TestALogThatCannotBeWrittenSaysSoAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, config(dir))
		l.Append(note{N: 1})
		repair := breakDisk(t, l)
		l.Append(note{N: 2})
		synctest.Wait()
		err := l.Healthy(t.Context())
		if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "1 records wait") {
			t.Fatalf("Healthy() = %v, want unavailable with the number that waits", err)
		}
		l.Append(note{N: 3}) // does not wait for a disk that is broken
		time.Sleep(5 * time.Second)
		repair()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := l.Healthy(t.Context()); err != nil {
			t.Errorf("after the repair: %v", err)
		}
		shut(t, l)
	})
	clean(t, dir, "opened 1 2 3 closed")
}

func TestWhatFindsNoRoomIsCountedAndOnRecord(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, config(dir))
		repair := breakDisk(t, l)
		l.Append(note{N: 0})
		synctest.Wait()
		for i := range maxQueue + 9 { // one is there already
			l.Append(note{N: i + 1})
		}
		if err := l.Healthy(t.Context()); err == nil || !strings.Contains(err.Error(), "10 are lost") {
			t.Errorf("Healthy() = %v, want 10 lost", err)
		}
		repair()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := l.Healthy(t.Context()); err != nil {
			t.Errorf("after the repair: %v", err)
		}
		shut(t, l)
	})
	r, kinds := verify(t, dir)
	if len(r.Findings) > 0 || r.Lost != 10 || len(kinds) != maxQueue+3 {
		t.Errorf("%d records, %d lost: %v", len(kinds), r.Lost, r.Findings)
	}
}

// TestAFullQueueMakesWriters wait: a disk that is merely slow loses nothing.
func TestAFullQueueMakesWritersWait(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir))
	l.mu.Lock()
	for i := range maxQueue {
		l.queue = append(l.queue, pending{"test.note", noon, fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	l.mu.Unlock()
	l.wake <- struct{}{}
	l.Append(note{N: maxQueue}) // returns once the owner has made room
	shut(t, l)
	if r, kinds := verify(t, dir); len(r.Findings) > 0 || len(kinds) != maxQueue+3 || r.Lost != 0 {
		t.Errorf("%d records, %d lost: %v", len(kinds), r.Lost, r.Findings)
	}
}

func TestCloseSaysWhatIsNotWritten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, config(dir))
		breakDisk(t, l)
		l.Append(note{N: 1})
		synctest.Wait()
		if err := l.Close(); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "2 records unwritten") {
			t.Errorf("Close() = %v, want unavailable with the number", err)
		}
	})
	clean(t, dir, "opened")
}

// crash ends a log as SIGKILL would: what is written stays, nothing else is done.
func crash(t *testing.T, l *Log) {
	t.Helper()
	wait(t, l)
	close(l.stop) // its last turn finds nothing to write, but signs: take that away again
	<-l.done
	l.metrics.close()
	l.store.close()
	l.once = func() error { return nil }
}

func TestATornLineIsKeptInARecord(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir))
	l.Append(note{N: 1})
	crash(t, l)
	path := filepath.Join(dir, segmentName(1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := line(t, 3, Hash{}, `{"half":"written"}`)
	if err := os.WriteFile(path, append(whole, next[:60]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := clean(t, dir, "opened 1"); r.Torn != 60 {
		t.Errorf("before the restart: %d torn bytes, want 60", r.Torn)
	}
	l = open(t, config(dir))
	l.Append(note{N: 2})
	shut(t, l)
	r := clean(t, dir, "opened 1 opened torn 2 closed")
	if r.Torn != 0 {
		t.Errorf("after the restart: %d torn bytes", r.Torn)
	}
	kept := ""
	if _, err := Verify(dir, nil, nil, func(r *Record, _ Place) error {
		if r.Kind == KindTorn {
			var e torn
			if err := strict(r.Fields, &e); err != nil {
				return err
			}
			kept = fmt.Sprintf("%s %d %s", e.File, e.Offset, e.Bytes)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%s %d %s", segmentName(1), len(whole), next[:60]); kept != want {
		t.Errorf("the record keeps %q, want %q", kept, want)
	}
}

func TestACrashRightAfterRotationIsNoFlaw(t *testing.T) {
	for _, rest := range []string{"", `{"seq":2,"ti`} {
		dir := t.TempDir()
		l := open(t, config(dir))
		crash(t, l)
		if err := os.WriteFile(filepath.Join(dir, segmentName(2)), []byte(rest), 0o600); err != nil {
			t.Fatal(err)
		}
		l = open(t, config(dir))
		l.Append(note{N: 1})
		shut(t, l)
		want := "opened opened 1 closed"
		if rest != "" {
			want = "opened opened torn 1 closed"
		}
		clean(t, dir, want)
	}
}

func TestATornHeadIsTakenOut(t *testing.T) {
	dir := t.TempDir()
	l := open(t, config(dir))
	crash(t, l)
	f, err := os.OpenFile(filepath.Join(dir, headsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"service":"deco`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	shut(t, open(t, config(dir)))
	if r := clean(t, dir, "opened opened torn closed"); r.Heads != 3 {
		t.Errorf("%d heads, want 3", r.Heads)
	}
}

func TestOpenRefusesWhatNoCrashCanLeave(t *testing.T) {
	make3 := func(t *testing.T) (dir string, lines []string) {
		dir = t.TempDir()
		l := open(t, config(dir))
		l.Append(note{N: 1})
		shut(t, l)
		b, err := os.ReadFile(filepath.Join(dir, segmentName(1)))
		if err != nil {
			t.Fatal(err)
		}
		return dir, strings.SplitAfter(string(b), "\n")[:3]
	}
	for _, c := range []struct {
		why, says string
		change    func([]string) string
	}{
		{"cut below the head", "cut", func(l []string) string { return l[0] + l[1] }},
		{"torn below the head", "cut", func(l []string) string { return l[0] + l[1] + l[2][:20] }},
		{"edited", ":2: edited", func(l []string) string { return l[0] + strings.Replace(l[1], `"n":1`, `"n":2`, 1) + l[2] }},
		{"a line removed", ":2: removed", func(l []string) string { return l[0] + l[2] }},
		{"two lines swapped", ":2: reordered", func(l []string) string { return l[1] + l[0] + l[2] }},
		{"a line of something else", ":2: garbled", func(l []string) string { return l[0] + "\n" + l[1] + l[2] }},
	} {
		dir, lines := make3(t)
		if err := os.WriteFile(filepath.Join(dir, segmentName(1)), []byte(c.change(lines)), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(config(dir))
		if err == nil {
			_ = l.Close()
		}
		if errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want corrupt and %q", c.why, err, c.says)
		}
	}
}
