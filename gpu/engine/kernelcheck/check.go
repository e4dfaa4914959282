//go:build cgo && amd64

package kernelcheck

// #cgo CXXFLAGS: -std=c++17 -Wall -Wextra
// #cgo !simde CXXFLAGS: -O3
// #cgo simde CXXFLAGS: -O1 -DLH_EMULATE_AVX512
// #include "check.h"
import "C"

import "errors"

// SIMD is a path, as engine.h numbers them.
type SIMD uint32

// The paths.
const (
	AVX2   SIMD = 1
	AVX512 SIMD = 2
)

func (s SIMD) String() string {
	if s == AVX512 {
		return "avx512"
	}
	return "avx2"
}

// Type is a ggml tensor type.
type Type uint32

// The types that can be checked.
const (
	Q40 Type = 2
	Q41 Type = 3
	Q80 Type = 8
)

var errLacking = errors.New("this machine or build lacks the SIMD path")

// Has says whether s can be checked here.
func Has(s SIMD) bool { return C.lh_check_has(C.uint32_t(s)) != 0 }

func result(n C.int64_t) (int, error) {
	if n < 0 {
		return 0, errLacking
	}
	return int(n), nil
}

// Gemm returns, as the others do, how many values differ in a bit from the scalar order.
func Gemm(s SIMD, t Type, rows, cols, n int, seed uint64) (int, error) {
	return result(C.lh_check_gemm(C.uint32_t(s), C.uint32_t(t), C.uint32_t(rows), C.uint32_t(cols), C.uint32_t(n), C.uint64_t(seed)))
}

// Norm is RMSNorm and quantisation.
func Norm(s SIMD, rows, cols int, seed uint64) (int, error) {
	return result(C.lh_check_norm(C.uint32_t(s), C.uint32_t(rows), C.uint32_t(cols), C.uint64_t(seed)))
}

// GateUp is the gated unit with ffn features.
func GateUp(s SIMD, t Type, rows, cols, ffn int, seed uint64) (int, error) {
	return result(C.lh_check_gate_up(C.uint32_t(s), C.uint32_t(t), C.uint32_t(rows), C.uint32_t(cols), C.uint32_t(ffn), C.uint64_t(seed)))
}

// Append is RoPE and the store of a token in slot t of a page.
func Append(s SIMD, t int, seed uint64) (int, error) {
	return result(C.lh_check_append(C.uint32_t(s), C.uint32_t(t), C.uint64_t(seed)))
}

// Decode is attention of one position, lanes over keys.
func Decode(s SIMD, heads, pos int, seed uint64) (int, error) {
	return result(C.lh_check_decode(C.uint32_t(s), C.uint32_t(heads), C.uint32_t(pos), C.uint64_t(seed)))
}

// Prefill is attention of the 16 positions around pos, lanes over queries.
func Prefill(s SIMD, pos int, seed uint64) (int, error) {
	return result(C.lh_check_prefill(C.uint32_t(s), C.uint32_t(pos), C.uint64_t(seed)))
}

// PartialPrefill is Prefill up to pos, in a page whose later rows were never written.
func PartialPrefill(s SIMD, pos int, seed uint64) (int, error) {
	return result(C.lh_check_partial_prefill(C.uint32_t(s), C.uint32_t(pos), C.uint64_t(seed)))
}

// SparsePrefill is Prefill where most factors are 0. Zeros of either sign are taken for equal.
func SparsePrefill(s SIMD, pos int, seed uint64) (int, error) {
	return result(C.lh_check_sparse_prefill(C.uint32_t(s), C.uint32_t(pos), C.uint64_t(seed)))
}
