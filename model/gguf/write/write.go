// Package write makes GGUF files in memory. Bytes is what the builder was told, right or wrong; Checked is that, read
// back by package gguf, so that a file which leaves a process is one that a process can load.
package write

import (
	"encoding/binary"
	"math"

	"leasehold.dev/model/gguf"
)

// Builder collects a file. The zero value is an empty version 3 file. Its methods return the builder.
type Builder struct {
	Version uint32 // 3 if 0
	Align   uint64 // 32 if 0; it is not written as a key
	pairs   int
	meta    []byte
	tensors []tensor
}

type tensor struct {
	name   string
	typ    gguf.Type
	dims   []uint64
	data   []byte
	offset *uint64
}

var le = binary.LittleEndian

// Key writes a key and the number of its kind; Raw has to write its value.
func (b *Builder) Key(key string, kind uint32) *Builder {
	b.pairs++
	return b.text(key).u32(kind)
}

// Raw writes bytes into the metadata as they are.
func (b *Builder) Raw(data ...byte) *Builder {
	b.meta = append(b.meta, data...)
	return b
}

func (b *Builder) u32(v uint32) *Builder { b.meta = le.AppendUint32(b.meta, v); return b }
func (b *Builder) u64(v uint64) *Builder { b.meta = le.AppendUint64(b.meta, v); return b }

func (b *Builder) text(s string) *Builder { return b.u64(uint64(len(s))).Raw([]byte(s)...) }

// Uint32 adds an integer.
func (b *Builder) Uint32(key string, v uint32) *Builder { return b.Key(key, 4).u32(v) }

// Float32 adds a float.
func (b *Builder) Float32(key string, v float32) *Builder {
	return b.Key(key, 6).u32(math.Float32bits(v))
}

// Bool adds a boolean.
func (b *Builder) Bool(key string, v bool) *Builder {
	b.Key(key, 7)
	if v {
		return b.Raw(1)
	}
	return b.Raw(0)
}

// String adds a string.
func (b *Builder) String(key, v string) *Builder { return b.Key(key, 8).text(v) }

// Strings adds an array of strings.
func (b *Builder) Strings(key string, vs ...string) *Builder {
	b.Key(key, 9).u32(8).u64(uint64(len(vs)))
	for _, v := range vs {
		b.text(v)
	}
	return b
}

// Int32s adds an array of integers.
func (b *Builder) Int32s(key string, vs ...int32) *Builder {
	b.Key(key, 9).u32(5).u64(uint64(len(vs)))
	for _, v := range vs {
		b.u32(uint32(v))
	}
	return b
}

// Array adds the head of an array, whatever follows.
func (b *Builder) Array(key string, elem uint32, count uint64) *Builder {
	return b.Key(key, 9).u32(elem).u64(count)
}

// Tensor adds a tensor after the last one, aligned.
func (b *Builder) Tensor(name string, typ gguf.Type, data []byte, dims ...uint64) *Builder {
	b.tensors = append(b.tensors, tensor{name: name, typ: typ, dims: dims, data: data})
	return b
}

// Zeros adds a tensor of a known type and as many zero bytes as it takes.
func (b *Builder) Zeros(name string, typ gguf.Type, dims ...uint64) *Builder {
	size, err := typ.Size(dims)
	if err != nil {
		panic(err)
	}
	return b.Tensor(name, typ, make([]byte, size), dims...)
}

// TensorAt adds a tensor that claims the offset. It has no bytes of its own.
func (b *Builder) TensorAt(name string, typ gguf.Type, offset uint64, dims ...uint64) *Builder {
	b.tensors = append(b.tensors, tensor{name: name, typ: typ, dims: dims, offset: &offset})
	return b
}

// Checked is the file, once it has been parsed as a reader would. Errors are gguf's.
func (b *Builder) Checked() ([]byte, error) {
	data := b.Bytes()
	if _, err := gguf.Parse(data); err != nil {
		return nil, err
	}
	return data, nil
}

// Bytes is the file, unchecked.
func (b *Builder) Bytes() []byte {
	align, version := b.Align, b.Version
	if align == 0 {
		align = 32
	}
	if version == 0 {
		version = 3
	}
	out := le.AppendUint32([]byte("GGUF"), version)
	out = le.AppendUint64(out, uint64(len(b.tensors)))
	out = le.AppendUint64(out, uint64(b.pairs))
	out = append(out, b.meta...)
	var section []byte
	for _, t := range b.tensors {
		section = pad(section, align)
		offset := uint64(len(section))
		if t.offset != nil {
			offset = *t.offset
		}
		section = append(section, t.data...)
		out = le.AppendUint64(out, uint64(len(t.name)))
		out = append(out, t.name...)
		out = le.AppendUint32(out, uint32(len(t.dims)))
		for _, d := range t.dims {
			out = le.AppendUint64(out, d)
		}
		out = le.AppendUint32(out, uint32(t.typ))
		out = le.AppendUint64(out, offset)
	}
	if len(b.tensors) == 0 {
		return out
	}
	return append(pad(out, align), section...)
}

func pad(b []byte, align uint64) []byte {
	for uint64(len(b))%align != 0 {
		b = append(b, 0)
	}
	return b
}
