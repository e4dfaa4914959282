package layout

// Back ends by name.
const (
	CPU    = "cpu"     // AVX2 or AVX-512, bf16 KV in pair order
	Ref    = "ref"     // scalar, bf16 KV in plain order
	RefF32 = "ref-f32" // scalar, f32 KV in plain order
)

// NumericsClass names the arithmetic of a back end: pages and logits of one class agree bit for bit, whatever the
// machine's SIMD path. Empty for an unknown back end.
func NumericsClass(backend string) string {
	switch backend {
	case CPU:
		return "x86-fma-1"
	case Ref:
		return "ref-1"
	case RefF32:
		return "ref-f32-1"
	}
	return ""
}
