package engine

import (
	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// PageSum digests the first rows tokens of a page at rest, gathered from its layout: the same as package pagesum over
// the rows in logical order. nonzero is how many of those tokens have any bit set. It needs no engine.
func PageSum(l layout.Layout, page []byte, rows uint32, k *pagesum.Keys) (d pagesum.Digest, nonzero uint32, err error) {
	if err := fits(l, page, rows, k); err != nil {
		return d, 0, err
	}
	return pageSum(l, page, nil, rows, k)
}

// CopyPage copies a whole page to dst, and digests what dst got: each byte is read once, so a source that changes
// meanwhile cannot give a digest of other bytes than were written. The two must not overlap.
func CopyPage(l layout.Layout, dst, src []byte, rows uint32, k *pagesum.Keys) (d pagesum.Digest, nonzero uint32, err error) {
	if err := fits(l, src, rows, k); err != nil {
		return d, 0, err
	}
	if len(dst) != len(src) {
		return d, 0, errs.New(errs.Invalid, "copy page: %d bytes into %d", len(src), len(dst))
	}
	return pageSum(l, src, dst, rows, k)
}

func fits(l layout.Layout, page []byte, rows uint32, k *pagesum.Keys) error {
	if err := l.Check(); err != nil {
		return err
	}
	switch {
	case uint64(len(page)) != l.PageBytes():
		return errs.New(errs.Invalid, "page sum: %d bytes, the layout has %d", len(page), l.PageBytes())
	case rows < 1 || rows > layout.PageTokens:
		return errs.New(errs.Invalid, "page sum: %d rows, want 1 to %d", rows, layout.PageTokens)
	case k.Shape() != l.Shape():
		return errs.New(errs.Invalid, "page sum: keys are for %v, the layout is %v", k.Shape(), l.Shape())
	}
	return nil
}

// arrived is what to digest: the page, or its copy once that was made.
func arrived(page, copied []byte) []byte {
	if copied == nil {
		return page
	}
	copy(copied, page)
	return copied
}

// gatherSum is the definition, word for word; page, rows and keys fit.
func gatherSum(l layout.Layout, page []byte, rows uint32, k *pagesum.Keys) (pagesum.Digest, uint32) {
	s, sum := l.Shape(), k.New()
	row := make([]byte, s.RowBytes())
	nonzero := uint32(0)
	for t := range int(rows) {
		any := byte(0)
		for layer := range s.Layers {
			for kv := range 2 {
				for head := range s.KVHeads {
					l.Row(row, page, t, layer, kv, head)
					for _, b := range row {
						any |= b
					}
					sum.Add(s.Row(t, layer, kv, head), row)
				}
			}
		}
		if any != 0 {
			nonzero++
		}
	}
	return sum.Digest(), nonzero
}
