package gguf

import (
	"cmp"
	"slices"
)

const (
	magic            = 0x46554747 // "GGUF"
	headerSize       = 4 + 4 + 8 + 8
	maxKey           = 1<<16 - 1
	maxTensorName    = 64
	maxDims          = 4
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	minPair          = 8 + 4 + 1             // an empty key, a kind, the smallest value
	minTensor        = 8 + 1 + 4 + 8 + 4 + 8 // a one-letter name, one dimension, a type, an offset
)

// Parse checks a whole file in memory. The file keeps data, which must not change.
func Parse(data []byte) (*File, error) {
	c := &cursor{data: data}
	if m := c.u32(); c.err == nil && m != magic {
		return nil, malformed("no GGUF magic")
	}
	f := &File{data: data, Version: c.u32()}
	if c.err == nil && f.Version != 2 && f.Version != 3 {
		return nil, unsupported("version %d (little endian 2 and 3 are known)", f.Version)
	}
	nTensors, nPairs := c.count(minTensor), c.count(minPair)
	if err := f.readMetadata(c, nPairs); err != nil {
		return nil, err
	}
	if err := f.readTensors(c, nTensors); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) readMetadata(c *cursor, n uint64) error {
	f.meta = map[string]value{}
	for i := uint64(0); i < n && c.err == nil; i++ {
		key := c.text(maxKey)
		v := readValue(c)
		if _, twice := f.meta[key]; twice && c.err == nil {
			return malformed("key %.64q twice", key)
		}
		f.meta[key] = v
	}
	if c.err != nil {
		return c.err
	}
	f.Alignment = defaultAlignment
	if f.Has("general.alignment") {
		a, ok := f.Uint32("general.alignment")
		if !ok || a < 8 || a > maxAlignment || a&(a-1) != 0 {
			return malformed("general.alignment is no power of two in [8, %d]", maxAlignment)
		}
		f.Alignment = uint64(a)
	}
	return nil
}

// extent is where a tensor lies in the data section.
type extent struct {
	tensor     int
	start, end uint64
}

func (f *File) readTensors(c *cursor, n uint64) error {
	f.byName = map[string]int{}
	var extents []extent
	for i := uint64(0); i < n; i++ {
		t, offset := readTensor(c)
		if c.err != nil {
			return c.err
		}
		if _, twice := f.byName[t.Name]; twice {
			return malformed("tensor %q twice", t.Name)
		}
		if offset%f.Alignment != 0 {
			return malformed("tensor %q at offset %d, not aligned to %d", t.Name, offset, f.Alignment)
		}
		f.byName[t.Name] = len(f.tensors)
		extents = append(extents, extent{tensor: len(f.tensors), start: offset})
		f.tensors = append(f.tensors, t)
	}
	if len(extents) == 0 {
		return nil
	}
	start := (uint64(c.pos) + f.Alignment - 1) &^ (f.Alignment - 1)
	if start > uint64(len(f.data)) {
		return malformed("no data section: it would start at %d of %d", start, len(f.data))
	}
	return f.place(extents, f.data[start:])
}

func readTensor(c *cursor) (t Tensor, offset uint64) {
	t.Name = c.text(maxTensorName)
	dims := c.u32()
	if c.err == nil && (t.Name == "" || dims == 0 || dims > maxDims) {
		c.fail(malformed("tensor %q with %d dimensions; 1 to %d allowed", t.Name, dims, maxDims))
	}
	for i := uint32(0); i < dims && c.err == nil; i++ {
		d := c.u64()
		if d == 0 {
			c.fail(malformed("tensor %q has a dimension of 0", t.Name))
		}
		t.Dims = append(t.Dims, d)
	}
	t.Type = Type(c.u32())
	return t, c.u64()
}

// place gives each tensor its bytes and checks that no two share one. A tensor of unknown size gets none, but must
// start inside the section and outside of every tensor of known size.
func (f *File) place(extents []extent, section []byte) error {
	for i := range extents {
		e := &extents[i]
		t := &f.tensors[e.tensor]
		var size uint64
		if t.Type.Known() {
			var err error
			if size, err = t.Type.Size(t.Dims); err != nil {
				return err
			}
		}
		if n := uint64(len(section)); e.start > n || size > n-e.start {
			return malformed("tensor %q: %d bytes at offset %d of a data section of %d", t.Name, size, e.start, n)
		}
		e.end = e.start + size
		if size > 0 {
			t.Data = section[e.start:e.end:e.end]
		}
	}
	slices.SortFunc(extents, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	for i := 1; i < len(extents); i++ {
		if a, b := extents[i-1], extents[i]; a.end > b.start {
			return malformed("tensors %q and %q overlap", f.tensors[a.tensor].Name, f.tensors[b.tensor].Name)
		}
	}
	return nil
}
