package sample

import "math"

// Split of ln 2 / 64 for the reduction: the high part has 21 trailing zero bits, so that k times it is exact.
const (
	perLn2 = 64 / math.Ln2
	ln2Hi  = 0x1.62e42feep-1 / 64
	ln2Lo  = 0x1.a39ef35793c76p-33 / 64
)

// powers are 2^(i/64).
var powers = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()

// exp is e^z for z in [-700, 0], to 2 units in the last place: z = k ln 2/64 + r, and a polynomial of degree 5 in r. Every
// product is rounded before it is added, so that all machines give the same bits, fused multiply-add or not.
func exp(z float64) float64 {
	k := int64(float64(z*perLn2) - 0.5)
	r := z - float64(float64(k)*ln2Hi) - float64(float64(k)*ln2Lo)
	r2 := float64(r * r)
	odd := 1./6 + float64(r2*(1./120))
	even := 0.5 + float64(r2*(1./24))
	p := r + float64(r2*even) + float64(float64(r2*r)*odd)
	t := math.Float64frombits(math.Float64bits(powers[k&63]) + uint64(k>>6)<<52)
	return t + float64(t*p)
}
