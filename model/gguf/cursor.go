package gguf

import "encoding/binary"

// cursor walks a file's bytes. Each read is checked against what is left; the first failure sticks, and every read
// after it gives zero, so that a caller checks err once for a group of reads.
type cursor struct {
	data []byte
	pos  int
	err  error
}

func (c *cursor) left() uint64 { return uint64(len(c.data) - c.pos) }

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// take returns the next n bytes, in place.
func (c *cursor) take(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.fail(malformed("%d bytes wanted at offset %d of %d", n, c.pos, len(c.data)))
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a string of at most limit bytes.
func (c *cursor) text(limit uint64) string {
	n := c.u64()
	if n > limit {
		c.fail(malformed("a name of %d bytes at offset %d; at most %d allowed", n, c.pos, limit))
	}
	return string(c.take(n))
}

// count reads a number of items that take at least size bytes each, and believes it only if so many bytes are left.
func (c *cursor) count(size uint64) uint64 {
	n := c.u64()
	if c.err == nil && n > c.left()/size {
		c.fail(malformed("a count of %d at offset %d, with %d bytes left", n, c.pos, c.left()))
		return 0
	}
	return n
}
