// cpu_path.inl.h: one SIMD path, whole. A .cc file includes the standard headers, opens its target region, defines
// LH_CPU_AVX512 and a name, and includes this. Nothing of the standard library is used inside: code that the linker may
// merge with another file's copy must not be compiled for a machine that this process may not have.

#ifdef LH_EMULATE_AVX512 // emulated intrinsics are long: nothing is forced, or gcc takes many minutes
#define INL inline
#define INL_LAMBDA
#define UNROLL
#else
#define INL inline __attribute__((always_inline))
#define INL_LAMBDA __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
#endif

namespace lh::cpu {
namespace {

// One thread's scratch: accumulators of a tile, results of gate_up, an unpacked group.
struct Wide {
  float *acc, *rows, *d, *m;
  uint8_t *q;
};

constexpr uint32_t kAhead = 2048; // bytes that a packed group is prefetched ahead; may run into what follows it

#include "cpu_v16.inl.h"

#include "cpu_digest.inl.h"

#include "cpu_rows.inl.h"

#if LH_CPU_AVX512
#include "cpu_gemm_avx512.inl.h"
#else
#include "cpu_gemm_avx2.inl.h"
#endif

#include "cpu_gemm.inl.h"

#include "cpu_attn.inl.h"

} // namespace

const Kernels LH_CPU_TABLE = {LH_CPU_NAME, kTile,      add,        norm_quantise, quantise,    rope,      append,
                              gemm,        gate_up,    one_page,   merge,         group_init,  group_ready, widen,     group_page,
                              group_chunk, group_out,  page_sum,   logit_block};

} // namespace lh::cpu

#undef INL
#undef INL_LAMBDA
#undef UNROLL
