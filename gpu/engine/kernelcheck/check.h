// check.h: kernels of a SIMD path (LH_SIMD_*) against scalar code in the order that their headers state. Each returns how
// many values differ in a bit, or -1 if the path is not compiled in or the machine lacks it. Inputs are drawn from seed.
#ifndef LH_KERNELCHECK_CHECK_H_
#define LH_KERNELCHECK_CHECK_H_
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

int lh_check_has(uint32_t simd);
// Quantised activations of rows x cols, then their product with a matrix of n output features of a ggml type.
int64_t lh_check_gemm(uint32_t simd, uint32_t type, uint32_t rows, uint32_t cols, uint32_t n, uint64_t seed);
// RMSNorm and quantisation.
int64_t lh_check_norm(uint32_t simd, uint32_t rows, uint32_t cols, uint64_t seed);
// silu(gate) * up, quantised: ffn features.
int64_t lh_check_gate_up(uint32_t simd, uint32_t type, uint32_t rows, uint32_t cols, uint32_t ffn, uint64_t seed);
// RoPE, rounding, place and digest of one token in slot t.
int64_t lh_check_append(uint32_t simd, uint32_t t, uint64_t seed);
// Attention of `heads` query heads at position pos, over one page after another, as decode does and as prefill does.
int64_t lh_check_decode(uint32_t simd, uint32_t heads, uint32_t pos, uint64_t seed);
int64_t lh_check_prefill(uint32_t simd, uint32_t pos, uint64_t seed);
// The same up to pos alone: the page's later rows hold NaN.
int64_t lh_check_partial_prefill(uint32_t simd, uint32_t pos, uint64_t seed);
// The same where most factors are 0; zeros of either sign are taken for equal.
int64_t lh_check_sparse_prefill(uint32_t simd, uint32_t pos, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
