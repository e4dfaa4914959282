package gguf

import (
	"encoding/binary"
	"math"
)

// kind is a metadata value's type, numbered as in GGUF.
type kind uint32

const (
	kindUint8 kind = iota
	kindInt8
	kindUint16
	kindInt16
	kindUint32
	kindInt32
	kindFloat32
	kindBool
	kindString
	kindArray
	kindUint64
	kindInt64
	kindFloat64
)

// widths are the sizes of the kinds with a fixed one; 0 for strings and arrays.
var widths = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// maxNesting bounds arrays of arrays, and so the recursion of skip.
const maxNesting = 4

// value is one metadata value: its kind and its encoded bytes, already walked once, so that decoding cannot fail.
type value struct {
	kind  kind
	elem  kind   // of an array
	count uint64 // of an array
	raw   []byte // a scalar's bytes, a string's text, an array's elements
	whole []byte // the value as the file has it, all lengths included
}

// readValue walks the value at c and checks every length in it.
func readValue(c *cursor) value {
	v := value{kind: kind(c.u32())}
	start := c.pos
	switch v.kind {
	case kindString:
		v.raw = c.take(c.u64())
	case kindArray:
		v.elem = kind(c.u32())
		v.count = c.count(minSize(v.elem))
		body := c.pos
		skip(c, v.elem, v.count, 1)
		if c.err == nil {
			v.raw = c.data[body:c.pos]
		}
	default:
		if int(v.kind) >= len(widths) {
			c.fail(unsupported("metadata kind %d at offset %d", uint32(v.kind), start))
			break
		}
		v.raw = c.take(widths[v.kind])
	}
	if c.err == nil {
		v.whole = c.data[start:c.pos]
	}
	return v
}

// minSize is the fewest bytes that an element of an array takes.
func minSize(k kind) uint64 {
	switch {
	case k == kindString:
		return 8
	case k == kindArray:
		return 4 + 8
	case int(k) < len(widths):
		return widths[k]
	}
	return 1
}

func skip(c *cursor, elem kind, count uint64, depth int) {
	switch {
	case int(elem) >= len(widths):
		c.fail(unsupported("array of kind %d at offset %d", uint32(elem), c.pos))
	case elem == kindString:
		for i := uint64(0); i < count && c.err == nil; i++ {
			c.take(c.u64())
		}
	case elem == kindArray:
		if depth == maxNesting {
			c.fail(unsupported("arrays nested deeper than %d at offset %d", maxNesting, c.pos))
		}
		for i := uint64(0); i < count && c.err == nil; i++ {
			inner := kind(c.u32())
			skip(c, inner, c.count(minSize(inner)), depth+1)
		}
	default:
		c.take(count * widths[elem]) // no overflow: count was checked against the bytes left
	}
}

// integer decodes b, of kind k, if k is one of the integer kinds and the value fits an int64.
func integer(k kind, b []byte) (int64, bool) {
	switch k {
	case kindUint8:
		return int64(b[0]), true
	case kindInt8:
		return int64(int8(b[0])), true
	case kindUint16:
		return int64(binary.LittleEndian.Uint16(b)), true
	case kindInt16:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case kindUint32:
		return int64(binary.LittleEndian.Uint32(b)), true
	case kindInt32:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case kindUint64, kindInt64:
		u := binary.LittleEndian.Uint64(b)
		return int64(u), k == kindInt64 || u <= math.MaxInt64
	}
	return 0, false
}
