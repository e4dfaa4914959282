package pool

import "fmt"

// Tag says whose a page is: slot:23 | sealed:1 | generation:40.
type Tag uint64

// Nobody is the slot of pages that no kernel may touch.
const Nobody uint32 = 0

// Widths.
const (
	slotBits       = 23
	generationBits = 40

	MaxSlot       uint32 = 1<<slotBits - 1
	MaxGeneration uint64 = 1<<generationBits - 1

	sealed Tag = 1 << generationBits
)

// MakeTag packs a slot and a generation, not sealed. The generation wraps at 40 bits; slot <= MaxSlot.
func MakeTag(slot uint32, generation uint64) Tag {
	return Tag(slot&MaxSlot)<<(generationBits+1) | Tag(generation&MaxGeneration)
}

// Slot of the owner.
func (t Tag) Slot() uint32 { return uint32(t >> (generationBits + 1)) }

// Generation of the grant.
func (t Tag) Generation() uint64 { return uint64(t) & MaxGeneration }

// Sealed says that no row may be appended any more.
func (t Tag) Sealed() bool { return t&sealed != 0 }

// WithSealed is t with the sealed bit as given.
func (t Tag) WithSealed(on bool) Tag {
	if on {
		return t | sealed
	}
	return t &^ sealed
}

// Masked is t without its sealed bit: what readers compare.
func (t Tag) Masked() Tag { return t &^ sealed }

// String shows the three parts.
func (t Tag) String() string {
	s := ""
	if t.Sealed() {
		s = " sealed"
	}
	return fmt.Sprintf("slot %d generation %d%s", t.Slot(), t.Generation(), s)
}
