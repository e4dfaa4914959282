package ucx

import (
	"encoding/binary"
	"encoding/hex"
)

// ID names a transfer. It is drawn at random for each and known to the two brokers of it: whoever knows it may offer pages
// for it.
type ID [16]byte

// String is the first half: enough for a log, and not the capability.
func (id ID) String() string { return hex.EncodeToString(id[:4]) }

// headerSize is what uc.h calls UC_HEADER.
const headerSize = 32

// header of a message: the transfer, which of its pages, and the bytes that follow. All little endian.
type header struct {
	id     ID
	place  uint32
	offset uint32 // in the page: 0
	length uint64
}

func (h header) bytes() (b [headerSize]byte) {
	copy(b[:], h.id[:])
	binary.LittleEndian.PutUint32(b[16:], h.place)
	binary.LittleEndian.PutUint32(b[20:], h.offset)
	binary.LittleEndian.PutUint64(b[24:], h.length)
	return b
}

func headerIn(b [headerSize]byte) (h header) {
	copy(h.id[:], b[:])
	h.place = binary.LittleEndian.Uint32(b[16:])
	h.offset = binary.LittleEndian.Uint32(b[20:])
	h.length = binary.LittleEndian.Uint64(b[24:])
	return h
}
