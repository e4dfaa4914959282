package audit

import (
	"strings"
	"testing"
)

// TestChain: rows say which records come, by number; a number with a quote mark is another record of that number.
func TestChain(t *testing.T) {
	var good, other [8]Record
	prev := Link{}
	for i := 1; i < len(good); i++ {
		text, link := line(t, uint64(i), prev.Hash, `{}`)
		r, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		good[i] = r
		if text, _ = line(t, uint64(i), prev.Hash, `{"other":1}`); err == nil {
			other[i], err = Decode(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		prev = link
	}
	for _, c := range []struct{ come, flaws string }{
		{"1 2 3 4", ""},
		{"1 2 4 5", "4:removed"},
		{"1 2 7", "7:removed"},
		{"2 3", "2:removed"}, // without a record that says so, 1 is missing
		{"1 3 2 4", "3:removed 2:reordered"},
		{"1 2 2 3", "2:reordered"},
		{"1 2' 3", "3:edited"}, // rehashed after the edit: the next one tells
		{"1 2 3'", ""},         // the newest: only a head tells
		{"4 1 2 3 5", "4:removed 1:reordered 2:reordered 3:reordered"},
	} {
		var chain Chain
		var got []string
		for _, n := range strings.Fields(c.come) {
			r := &good[n[0]-'0']
			if strings.HasSuffix(n, "'") {
				r = &other[n[0]-'0']
			}
			if err := chain.Next(r); err != nil {
				got = append(got, number(r.Seq)+":"+string(flawOf(err)))
			}
		}
		if s := strings.Join(got, " "); s != c.flaws {
			t.Errorf("%s: %q, want %q", c.come, s, c.flaws)
		}
	}
}
