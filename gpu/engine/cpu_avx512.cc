// cpu_avx512.cc: the path for AVX-512 F, BW, VL, DQ and VNNI.
#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu_kernels.h"

// gcc 12 warns about the undefined operands of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,prefer-vector-width=512")
#define LH_CPU_AVX512 1
#define LH_CPU_TABLE kAvx512
#define LH_CPU_NAME "avx512"
#include "cpu_path.inl.h"
#pragma GCC pop_options
#endif
