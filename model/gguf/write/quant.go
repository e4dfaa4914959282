package write

import (
	"math"
)

// Row is the values of one row of a matrix.
type Row = []float64

// Float32s is the tensor data of F32 values.
func Float32s(row Row) []byte {
	out := make([]byte, 0, 4*len(row))
	for _, x := range row {
		out = le.AppendUint32(out, math.Float32bits(float32(x)))
	}
	return out
}

const blockElems = 32

// Q8 is the tensor data of rows in Q8_0: blocks of 32 elements, each a float16 scale d and 32 signed bytes q, x = q*d.
// The scale is the block's largest magnitude / 127, rounded to float16, so that a block in which every element is 0 or
// of one magnitude keeps its proportions exactly. Rows are whole blocks; others panic.
func Q8(rows ...Row) []byte {
	var out []byte
	for _, row := range rows {
		if len(row)%blockElems != 0 {
			panic("write: a row of Q8_0 is no whole number of blocks of 32")
		}
		for at := 0; at < len(row); at += blockElems {
			out = q8Block(out, row[at:at+blockElems])
		}
	}
	return out
}

func q8Block(out []byte, x Row) []byte {
	var most float64
	for _, v := range x {
		most = max(most, math.Abs(v))
	}
	d := Half(most / 127)
	out = le.AppendUint16(out, d)
	scale := FromHalf(d)
	for _, v := range x {
		q := 0.0
		if scale > 0 {
			q = max(-127, min(127, math.RoundToEven(v/scale)))
		}
		out = append(out, byte(int8(q)))
	}
	return out
}

// Half is x as float16, to nearest, ties to even; beyond its range Inf. NaN stays NaN.
func Half(x float64) uint16 {
	var sign uint16
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	switch {
	case math.IsNaN(x):
		return sign | 0x7e00
	case x >= 65520:
		return sign | 0x7c00
	}
	exp := max(math.Ilogb(x), -14)
	if x == 0 {
		exp = -14
	}
	steps := uint16(math.RoundToEven(math.Ldexp(x, 10-exp))) // of 2^(exp-10): 1024 to 2048, below for subnormals
	return sign | (uint16(exp+14)<<10 + steps)
}

// FromHalf is the value of a float16.
func FromHalf(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&0x3ff)
	var x float64
	switch exp {
	case 0:
		x = math.Ldexp(frac, -24)
	case 31:
		if x = math.Inf(1); frac != 0 {
			return math.NaN()
		}
	default:
		x = math.Ldexp(1024+frac, exp-25)
	}
	if h&0x8000 != 0 {
		return -x
	}
	return x
}
