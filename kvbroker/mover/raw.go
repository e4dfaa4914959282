package mover

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"math"
	"net"
	"time"

	"leasehold.dev/protos/errs"
)

// What goes over a raw lane. All integers are little endian.
const (
	rawMagic     = "LHRL"
	rawVersion   = 1
	preambleSize = len(rawMagic) + 4 + 4 + TokenSize // magic, version, lane, token
	rawHeader    = 4 + 4                             // place, length
	// endOfLane is the place in the header that ends a lane, with length 0.
	endOfLane = math.MaxUint32
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

func putRawHeader(place, length uint32) (h [rawHeader]byte) {
	binary.LittleEndian.PutUint32(h[:], place)
	binary.LittleEndian.PutUint32(h[4:], length)
	return h
}

// Sever closes a connection so that whoever reads from it or writes to it returns at once. TLS gets no goodbye, for which it
// might wait: a lane's end is marked in its bytes.
func Sever(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
