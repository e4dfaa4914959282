// emulate.h: AVX-512 intrinsics by SIMDe, on AVX2; the three that its release lacks are here.
#ifndef LH_KERNELCHECK_EMULATE_H_
#define LH_KERNELCHECK_EMULATE_H_
#pragma GCC target("avx2,fma,f16c,bmi2")
#include <immintrin.h>

// The pragma tells g++'s code generator and not its preprocessor, where SIMDe looks.
#define __SSE3__ 1
#define __SSSE3__ 1
#define __SSE4_1__ 1
#define __SSE4_2__ 1
#define __AVX__ 1
#define __AVX2__ 1
#define __FMA__ 1
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

inline simde__m512 lh_join(__m256 lo, __m256 hi) {
  simde__m512_private r;
  r.m256[0] = lo;
  r.m256[1] = hi;
  return simde__m512_from_private(r);
}
inline simde__m512 lh_cvtepi32_ps(simde__m512i v) {
  simde__m512i_private p = simde__m512i_to_private(v);
  return lh_join(_mm256_cvtepi32_ps(p.m256i[0]), _mm256_cvtepi32_ps(p.m256i[1]));
}
inline simde__m512i lh_cvtps_epi32(simde__m512 v) {
  simde__m512_private p = simde__m512_to_private(v);
  simde__m512i_private r;
  for (int i = 0; i < 2; i++) r.m256i[i] = _mm256_cvtps_epi32(p.m256[i]);
  return simde__m512i_from_private(r);
}
inline simde__m512 lh_cvtph_ps(__m256i v) {
  return lh_join(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}
#define _mm512_cvtepi32_ps lh_cvtepi32_ps
#define _mm512_cvtps_epi32 lh_cvtps_epi32
#define _mm512_cvtph_ps lh_cvtph_ps

#endif
