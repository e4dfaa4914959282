// cpu_avx512.cc: the path for AVX-512 F, BW, VL, DQ and VNNI.
// LH_EMULATE_AVX512 compiles it against SIMDe instead, for machines without (see kernelcheck).
#if defined(__x86_64__)
#pragma GCC optimize("fp-contract=off") // a * b + c is two roundings; cgo refuses the flag
#ifdef LH_EMULATE_AVX512
#include "kernelcheck/emulate.h"
#else
#include <immintrin.h>
#endif

#include "cpu_kernels.h"

// gcc 12 warns about the undefined operands of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#pragma GCC push_options
#ifdef LH_EMULATE_AVX512
#pragma GCC target("avx2,fma,f16c,bmi2")
#else
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,prefer-vector-width=512")
#endif
#define LH_CPU_AVX512 1
#define LH_CPU_TABLE kAvx512
#define LH_CPU_NAME "avx512"
#include "cpu_path.inl.h"
#pragma GCC pop_options
#endif
