package layout

// Row copies one row out of a page into dst, in logical order. dst has Shape().RowBytes() bytes, page PageBytes(); t is
// the token's place in the page, kv 0 for K and 1 for V.
func (l Layout) Row(dst, page []byte, t, layer, kv, head int) {
	e := int(l.DType.Bytes())
	if l.Order == Plain {
		copy(dst[:int(l.HeadDim)*e], page[l.offset(t, layer, kv, head, 0):])
		return
	}
	for d := range int(l.HeadDim) {
		copy(dst[d*e:(d+1)*e], page[l.offset(t, layer, kv, head, d):])
	}
}

// SetRow is the inverse of [Layout.Row].
func (l Layout) SetRow(page, src []byte, t, layer, kv, head int) {
	e := int(l.DType.Bytes())
	for d := range int(l.HeadDim) {
		copy(page[l.offset(t, layer, kv, head, d):], src[d*e:(d+1)*e])
	}
}

// offset of element d of a row, in bytes.
func (l Layout) offset(t, layer, kv, head, d int) int {
	e, dims, heads := int(l.DType.Bytes()), int(l.HeadDim), int(l.KVHeads)
	if l.Order == Plain {
		return ((((layer*2+kv)*heads+head)*PageTokens+t)*dims + d) * e
	}
	block := (layer*heads + head) * 2 * PageTokens * dims
	if kv == 0 {
		return (block + (d/2*PageTokens+t)*2 + d%2) * e // [dim pair][token][2 dims]
	}
	return (block + PageTokens*dims + (t/2*dims+d)*2 + t%2) * e // [token pair][dim][2 tokens]
}
