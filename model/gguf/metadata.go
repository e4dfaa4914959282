package gguf

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
)

// Has reports whether the file has the key, of whatever kind.
func (f *File) Has(key string) bool {
	_, ok := f.meta[key]
	return ok
}

// Keys are all metadata keys, sorted.
func (f *File) Keys() []string { return slices.Sorted(maps.Keys(f.meta)) }

// Raw is the value of a key as the file encodes it: GGUF's number of its kind, and its bytes with all lengths, in the
// mapping. Two values are equal if and only if both are.
func (f *File) Raw(key string) (kind uint32, data []byte, ok bool) {
	v, ok := f.meta[key]
	return uint32(v.kind), v.whole, ok
}

// Uint32 is an integer value of any width and sign, if it fits.
func (f *File) Uint32(key string) (uint32, bool) {
	v, ok := f.meta[key]
	if !ok {
		return 0, false
	}
	n, ok := integer(v.kind, v.raw)
	if !ok || n < 0 || n > math.MaxUint32 {
		return 0, false
	}
	return uint32(n), true
}

// Float32 is a float value; a 64-bit one is rounded.
func (f *File) Float32(key string) (float32, bool) {
	switch v := f.meta[key]; {
	case v.kind == kindFloat32 && v.raw != nil:
		return math.Float32frombits(binary.LittleEndian.Uint32(v.raw)), true
	case v.kind == kindFloat64:
		return float32(math.Float64frombits(binary.LittleEndian.Uint64(v.raw))), true
	}
	return 0, false
}

// Bool is a boolean value.
func (f *File) Bool(key string) (value, ok bool) {
	v := f.meta[key]
	if v.kind != kindBool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// String is a string value. It is not checked to be UTF-8.
func (f *File) String(key string) (string, bool) {
	v := f.meta[key]
	if v.kind != kindString {
		return "", false
	}
	return string(v.raw), true
}

// Strings is an array of strings.
func (f *File) Strings(key string) ([]string, bool) {
	v := f.meta[key]
	if v.kind != kindArray || v.elem != kindString {
		return nil, false
	}
	out := make([]string, 0, v.count)
	for c := (cursor{data: v.raw}); c.left() > 0 && c.err == nil; {
		out = append(out, string(c.take(c.u64())))
	}
	return out, true
}

// Int32s is an array of integers of any width and sign, if each fits.
func (f *File) Int32s(key string) ([]int32, bool) {
	v := f.meta[key]
	if v.kind != kindArray || int(v.elem) >= len(widths) || widths[v.elem] == 0 {
		return nil, false
	}
	out := make([]int32, v.count)
	w := widths[v.elem]
	for i := range out {
		n, ok := integer(v.elem, v.raw[uint64(i)*w:])
		if !ok || n < math.MinInt32 || n > math.MaxInt32 {
			return nil, false
		}
		out[i] = int32(n)
	}
	return out, true
}
