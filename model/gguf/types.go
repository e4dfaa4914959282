package gguf

import (
	"fmt"
	"math/bits"
)

// Type is the element type of a tensor, numbered as in ggml.
type Type uint32

// The types that this reader knows the size of. A file may hold others; such a tensor has no Data.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q8_0 Type = 8
	BF16 Type = 30
)

// layouts has, for each type, its name, the elements in a block and the bytes of a block.
var layouts = map[Type]struct {
	name         string
	elems, bytes uint64
}{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 2 + 16},
	Q4_1: {"Q4_1", 32, 2 + 2 + 16},
	Q8_0: {"Q8_0", 32, 2 + 32},
}

// String is the type's name in ggml, or its number.
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type(%d)", uint32(t))
}

// Known reports whether the reader knows the type's size.
func (t Type) Known() bool {
	_, ok := layouts[t]
	return ok
}

// Size is the bytes of a tensor of type t. A row (dims[0]) must be a whole number of blocks. Sizes that do not fit 63
// bits are ErrFormat; a type that is not Known is ErrUnsupported.
func (t Type) Size(dims []uint64) (uint64, error) {
	l, ok := layouts[t]
	if !ok {
		return 0, unsupported("tensor type %d", uint32(t))
	}
	if len(dims) == 0 || dims[0]%l.elems != 0 {
		return 0, malformed("a row of %v is no whole number of %s blocks of %d", dims, l.name, l.elems)
	}
	size := l.bytes
	for i, d := range dims {
		if i == 0 {
			d /= l.elems
		}
		hi, lo := bits.Mul64(size, d)
		if hi != 0 || lo>>63 != 0 {
			return 0, malformed("dimensions %v overflow", dims)
		}
		size = lo
	}
	return size, nil
}

// Tensor is one tensor's description and its bytes.
type Tensor struct {
	Name string
	Type Type
	Dims []uint64 // Dims[0] is the innermost: the columns of a row
	Data []byte   // lies in the file; nil if the type is not Known
}

// Rows is the product of all dimensions but the innermost.
func (t Tensor) Rows() uint64 {
	n := uint64(1)
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n
}
