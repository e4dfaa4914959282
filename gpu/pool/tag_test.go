package pool_test

import (
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/gpu/pool"
)

func TestTagBits(t *testing.T) {
	for name, c := range map[string]struct{ got, want pool.Tag }{
		"nobody at generation 0 is zero": {pool.MakeTag(pool.Nobody, 0), 0},
		"generation is in bits 0 to 39":  {pool.MakeTag(0, pool.MaxGeneration), 1<<40 - 1},
		"sealed is bit 40":               {pool.MakeTag(0, 0).WithSealed(true), 1 << 40},
		"slot is in bits 41 to 63":       {pool.MakeTag(1, 0), 1 << 41},
		"the largest slot fills the top": {pool.MakeTag(pool.MaxSlot, 0), 0xfffffe0000000000},
		"the generation wraps":           {pool.MakeTag(3, pool.MaxGeneration+2), 3<<41 | 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x, want %#x", name, uint64(c.got), uint64(c.want))
		}
	}
}

func TestTagPartsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Uint32Max(pool.MaxSlot).Draw(t, "slot")
		gen := rapid.Uint64Max(pool.MaxGeneration).Draw(t, "generation")
		on := rapid.Bool().Draw(t, "sealed")
		tag := pool.MakeTag(slot, gen).WithSealed(on)
		if tag.Slot() != slot || tag.Generation() != gen || tag.Sealed() != on {
			t.Fatalf("%#x gives %v, want slot %d generation %d sealed %v", uint64(tag), tag, slot, gen, on)
		}
		if tag.Masked() != pool.MakeTag(slot, gen) || tag.WithSealed(false) != tag.Masked() {
			t.Fatalf("%v masked is %v", tag, tag.Masked())
		}
	})
}
