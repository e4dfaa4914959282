package mover

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"time"

	"leasehold.dev/protos/errs"
)

// What goes over a raw lane. All integers are little endian.
const (
	rawMagic     = "LHRL"
	rawVersion   = 2
	preambleSize = len(rawMagic) + 4 + 4 + TokenSize // magic, version, lane, token
	// A bundle is a header and the bytes of its pages, one page after the other: small pages share one, since each write, read
	// and record of TLS has its price. The header counts the pages and has an entry for each; one with no page ends the lane.
	bundleCount = 4
	bundleEntry = 4 + 4     // place, length
	bundleBytes = 256 << 10 // of pages that are sent together, but for the last
	maxBundle   = 64        // pages
	// RawLaneOpening is the most time that a lane may take from its connection to its preamble.
	RawLaneOpening = 5 * time.Second
)

// Preamble names a raw lane.
type Preamble struct {
	Lane  uint32
	Token [TokenSize]byte
}

// ReadPreamble reads what a receiver says first on a raw lane. The caller bounds the time.
func ReadPreamble(from io.Reader) (Preamble, error) {
	var b [preambleSize]byte
	if _, err := io.ReadFull(from, b[:]); err != nil {
		return Preamble{}, errs.New(errs.Unavailable, "raw lane: its preamble: %v", err)
	}
	version := binary.LittleEndian.Uint32(b[len(rawMagic):])
	if string(b[:len(rawMagic)]) != rawMagic || version != rawVersion {
		return Preamble{}, errs.New(errs.Invalid, "raw lane: it begins with %x, want %q and version %d", b[:len(rawMagic)+4], rawMagic, rawVersion)
	}
	p := Preamble{Lane: binary.LittleEndian.Uint32(b[len(rawMagic)+4:])}
	copy(p.Token[:], b[preambleSize-TokenSize:])
	return p, nil
}

func (p Preamble) bytes() []byte {
	b := append(make([]byte, 0, preambleSize), rawMagic...)
	b = binary.LittleEndian.AppendUint32(b, rawVersion)
	b = binary.LittleEndian.AppendUint32(b, p.Lane)
	return append(b, p.Token[:]...)
}

// bundleHeader is the header of a bundle of pages with their lengths. There is always room for one entry, which lets a
// receiver read the header of one page at once.
func bundleHeader(places, lengths []uint32) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, bundleCount+bundleEntry*max(1, len(places))), uint32(len(places)))
	for i, place := range places {
		b = binary.LittleEndian.AppendUint32(b, place)
		b = binary.LittleEndian.AppendUint32(b, lengths[i])
	}
	return b[:cap(b)]
}

// Sever closes a connection so that whoever reads from it or writes to it returns at once. TLS gets no goodbye, for which it
// might wait: a lane's end is marked in its bytes.
func Sever(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
