package lease

import (
	"testing"

	"pgregory.net/rapid"
)

// FuzzTable plays the histories that the fuzzer's bytes stand for: the game and its model are those of TestHistories, the inputs
// are chosen by what they cover.
func FuzzTable(f *testing.F) {
	for _, seed := range []string{"", "a table of pages\x00\x01\x02\x03\x04\x05\x06\x07", string(make([]byte, 512))} {
		f.Add([]byte(seed))
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		g := &game{t: t}
		cfg := Config{Pages: rapid.Uint32Range(1, 12).Draw(t, "pages"), Quota: rapid.Uint32Range(0, 6).Draw(t, "quota"),
			QuarantineCap: rapid.Uint32Range(0, 12).Draw(t, "cap"), Generation: rapid.Uint64().Draw(t, "generation")}
		g.play(cfg, rapid.IntRange(1, 200).Draw(t, "events"))
		g.settle()
	}))
}
