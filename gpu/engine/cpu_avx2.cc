// cpu_avx2.cc: the path for AVX2 + FMA + F16C.
#if defined(__x86_64__)
#pragma GCC optimize("fp-contract=off") // a * b + c is two roundings; cgo refuses the flag
#include <immintrin.h>

#include "cpu_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
#define LH_CPU_AVX512 0
#define LH_CPU_TABLE kAvx2
#define LH_CPU_NAME "avx2"
#include "cpu_path.inl.h"
#pragma GCC pop_options
#endif
