// cpu_kernels.h: what a SIMD path gives to the forward pass. The avx2 and the avx512 table compute EQUAL BITS (numerics
// class x86-fma-1): integers are exact, every float chain has one order, written down beside each kernel, and nothing
// uses an approximate reciprocal, a rounding mode or a horizontal order of its own.
#ifndef LH_CPU_KERNELS_H_
#define LH_CPU_KERNELS_H_
#include <cstddef>
#include <cstdint>

#include "cpu_pack.h"

namespace lh::cpu {

constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kPage = 64;          // tokens of a page
constexpr uint32_t kChunk = 8;          // pages of one online softmax; chunks are merged in order
constexpr uint32_t kLanes = 16;         // queries of a QueryGroup
constexpr size_t kHeadBlock = 16384;    // K and V of one kv head in one page
constexpr uint32_t kRowBlock = 240;     // rows that share one unpacking of a column group
constexpr uint32_t kMaxTile = 12;       // most rows of a register tile on any path

// Floats between rows: an odd number of cache lines, so that the rows of a tile do not share cache sets.
constexpr size_t stride(size_t cols) { return (cols + 15) / 16 % 2 ? (cols + 15) / 16 * 16 : (cols + 15) / 16 * 16 + 16; }

// Activations, quantised in blocks of 32: x ~ d * q. Rows go in tiles of `tile`; element (row, block) of a tile that
// starts at row t and has R rows is number t * blocks + block * R + (row - t).
struct Act {
  int8_t *q = nullptr;    // 32 for each element
  float *d = nullptr;     // largest |x| / 127
  float *dsum = nullptr;  // d * float(sum of q)
  int32_t *sum = nullptr; // sum of q
  uint32_t rows = 0, blocks = 0, tile = 1;
};

// Un-normalised attention of one head over one chunk: sum of p * v, largest score, sum of p.
struct alignas(64) Part {
  float o[kHeadDim];
  float m, l;
};

// 16 queries at consecutive positions, lane by lane: the current chunk (o, m, l) and the merged ones (O, M, L).
struct alignas(64) QueryGroup {
  float q[kHeadDim][kLanes];
  float o[kHeadDim][kLanes], O[kHeadDim][kLanes];
  float m[kLanes], l[kLanes], M[kLanes], L[kLanes];
  uint32_t pos;           // of lane 0, a multiple of 16
  uint32_t dims;          // dimensions in which some lane's q is not 0
  uint8_t dim[kHeadDim];  // which, ascending
};

// One page's K and V of one kv head in f32, for 16 queries at a time, and room for their scores.
struct alignas(64) WidePage {
  float k[kHeadDim][kPage];
  float v[kPage][kHeadDim];
  float s[kPage][kLanes];
  uint64_t live; // bit k: the V of row k is not all 0
};

struct Kernels {
  const char *name;
  uint32_t max_tile; // rows of its register tile

  // ---- rows
  // x[0, n) += y[0, n)
  void (*add)(float *x, const float *y, uint32_t n);
  // Rows [r0, r1) of act from x * (1 / sqrt(mean(x^2) + eps)) * w; row r is x + ldx * (index ? index[r] : r).
  void (*norm_quantise)(const float *x, size_t ldx, const uint32_t *index, const float *w, float eps, const Act &,
                        uint32_t r0, uint32_t r1);
  void (*quantise)(const float *x, size_t ldx, const Act &, uint32_t r0, uint32_t r1);
  // Turns the pairs (2i, 2i+1) of one head by turn = 64 cosines (each twice), 64 sines (-s, +s); out = turned * scale.
  void (*rope)(const float *x, const float *turn, float scale, float *out);
  // Rounds one token's K and V of one kv head to bf16 (nearest even) into slot t of a head block; with sums, adds the
  // digests of both rows (keys as in internal.h).
  void (*append)(const float *k, const float *v, uint8_t *block, uint32_t t, const uint32_t *nh, const uint32_t *rowkeys,
                 uint32_t k_index, uint32_t v_index, uint64_t *sums);

  // ---- matrices
  // Column groups [g0, g1) of out = act * w for all rows of act; out is row-major, element (r, 16 g + c). scratch is one
  // thread's, gemm_scratch() bytes, aligned to 64.
  void (*gemm)(const Mat &w, const Act &act, float *out, size_t ldo, uint32_t g0, uint32_t g1, void *scratch);
  // Blocks [b0, b1) of hidden = quantised(silu(act * gate) * (act * up)).
  void (*gate_up)(const Mat &w, const Act &act, const Act &hidden, uint32_t b0, uint32_t b1, void *scratch);

  // ---- attention. Queries carry log2(e) / sqrt(head_dim); weights are powers of two.
  // Lanes are keys, then dimensions: `heads` queries of one kv head over the first `valid` rows of a page.
  void (*one_page)(Part *state, const float (*q)[kHeadDim], uint32_t heads, const uint8_t *block, uint32_t valid);
  // Chunks in order, normalised.
  void (*merge)(const Part *parts, size_t step, uint32_t chunks, float *out);
  // Lanes are queries. group_ready comes after q is filled, before the first page.
  void (*group_init)(QueryGroup *, uint32_t pos);
  void (*group_ready)(QueryGroup *);
  void (*widen)(const uint8_t *block, WidePage *, uint32_t valid); // valid: rows that were written
  void (*group_page)(QueryGroup *, WidePage *, uint32_t first); // first: position of the page's row 0
  void (*group_chunk)(QueryGroup *);                            // end of a chunk
  void (*group_out)(const QueryGroup *, uint32_t lane, float *out);

  // ---- digests
  // Digest of a page of `blocks` head blocks. rowkeys: for each block, of its 64 K rows and then of its 64 V rows. With
  // copy (32-byte aligned), the bytes that were digested are also stored there.
  void (*page_sum)(const uint32_t *nh, const uint64_t *rowkeys, uint32_t blocks, const uint8_t *page, uint8_t *copy,
                   uint32_t rows, uint64_t digest[2], uint32_t *nonzero);
  // NH over one block of 1024 words; *exp_all collects the words whose exponent is all ones.
  void (*logit_block)(const uint32_t *nh, const uint32_t *words, uint64_t n[2], bool *finite);
};

extern const Kernels kAvx2, kAvx512;

// Bytes of one thread's gemm scratch: one unpacked column group, or the four of gate_up with a row block of results.
constexpr size_t gemm_scratch(uint32_t max_blocks) {
  return size_t(max_blocks) * (512 + 128) + size_t(kRowBlock) * 64 * sizeof(float) + kMaxTile * 64;
}

inline void part_init(Part *p) {
  for (float &v : p->o) v = 0;
  p->m = -__builtin_inff();
  p->l = 0;
}

} // namespace lh::cpu
#endif
