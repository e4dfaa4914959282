package canary

import (
	"fmt"
)

// The vocabulary: End and A, then the bytes that the tokenizer must have, then a range of ids for each tenant.
const (
	Vocabulary = 512
	Tenants    = 16 // ranges that there are
	PerTenant  = 30 // ids of a range: Markers, then fillers
	Markers    = 26

	End int32 = 0 // ends a generation; no prompt has it
	A   int32 = 1 // starts and ends every prompt

	base = Vocabulary - Tenants*PerTenant
)

// Owner is the tenant, counted from 0, whose range id is in. A, End and the byte tokens are nobody's.
func Owner(id int32) (tenant int, ok bool) {
	if id < base || id >= Vocabulary {
		return 0, false
	}
	return int(id-base) / PerTenant, true
}

// marker is the id of a tenant's marker i, in [0, Markers); beyond those, of a filler.
func marker(tenant, i int) int32 { return base + int32(tenant*PerTenant+i) }

// filler reports whether id is a filler of some tenant's.
func filler(id int32) bool { return id >= base && int(id-base)%PerTenant >= Markers }

// silent tokens are never answered with: fillers, and A, since the first token of a prompt, which has none before it,
// finds itself.
func silent(id int32) bool { return filler(id) || id == A }

// Piece is the text of a token: "A", a tenant's letter and two digits, or what a byte token stands for.
func Piece(id int32) string {
	if tenant, ok := Owner(id); ok {
		return fmt.Sprintf("%c%02d", 'a'+tenant, int(id-base)%PerTenant)
	}
	if id >= 0 && int(id) < len(basePieces) {
		return basePieces[id]
	}
	return ""
}

// basePieces are the ids below the tenants' ranges. Text is encoded only if each of its bytes has a token, and the
// tokenizer insists on those of U+FFFD.
var basePieces = func() []string {
	pieces := []string{End: "<|end|>", A: "A"}
	for _, b := range []byte("\xef\xbf\xbd0123456789abcdefghijklmnop ") {
		pieces = append(pieces, string([]byte{b}))
	}
	return pieces
}()

// Unknown stands in Parse's answer for text that is no token of a prompt.
const Unknown int32 = -1

// Text is what ids are in words. The model's tokenizer gives the same ids back.
func Text(ids []int32) string {
	out := make([]byte, 0, 3*len(ids))
	for _, id := range ids {
		out = append(out, Piece(id)...)
	}
	return string(out)
}

// Parse is the ids in a text that the model wrote. What is neither A nor of a tenant's range becomes Unknown, one for
// each byte.
func Parse(text string) []int32 {
	var ids []int32
	for text != "" {
		id, n := first(text)
		ids = append(ids, id)
		text = text[n:]
	}
	return ids
}

func first(text string) (id int32, n int) {
	if text[0] == 'A' {
		return A, 1
	}
	if len(text) >= 3 && text[0] >= 'a' && text[0] < 'a'+Tenants && digit(text[1]) && digit(text[2]) {
		if i := int(text[1]-'0')*10 + int(text[2]-'0'); i < PerTenant {
			return marker(int(text[0]-'a'), i), 3
		}
	}
	return Unknown, 1
}

func digit(b byte) bool { return b >= '0' && b <= '9' }
