// cpu_v16.inl.h: sixteen float lanes, one zmm or two ymm, with the operations that attention needs. LH_CPU_AVX512 says
// which. Every operation is exact or rounded once, so that both give equal bits.

#if LH_CPU_AVX512
struct V16 {
  __m512 v;
};
INL V16 load(const float *p) { return {_mm512_loadu_ps(p)}; }
INL void store(float *p, V16 a) { _mm512_storeu_ps(p, a.v); }
INL V16 all(float x) { return {_mm512_set1_ps(x)}; }
INL V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INL V16 operator*(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
INL V16 operator+(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
INL V16 operator-(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
INL V16 operator/(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
INL V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
INL V16 min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
INL V16 operator|(V16 a, V16 b) { return {_mm512_or_ps(a.v, b.v)}; }
INL bool some(V16 a) { return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0; } // a lane that is not 0
INL bool every(V16 a) { return _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0xffff; }
INL V16 nearest(V16 a) { return {_mm512_cvtepi32_ps(_mm512_cvtps_epi32(a.v))}; }
INL V16 power(V16 n) { // 2^n for whole n in [-127, 127]; 2^-127 is 0
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
INL V16 keep_below(V16 a, int n) { // lanes >= n become -inf
  __mmask16 k = n <= 0 ? 0 : n >= 16 ? 0xffff : __mmask16((1u << n) - 1);
  return {_mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), k, a.v)};
}
INL V16 keep_from(V16 a, int n) { // lanes < n become -inf
  __mmask16 k = n <= 0 ? 0xffff : n >= 16 ? 0 : __mmask16(0xffffu << n);
  return {_mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), k, a.v)};
}
INL V16 low_bf16(const uint8_t *p) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))}; }
INL V16 high_bf16(const uint8_t *p) {
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(int(0xffff0000))))};
}
INL __m256 low_half(V16 a) { return _mm512_castps512_ps256(a.v); }
INL __m256 high_half(V16 a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1)); }
#else
struct V16 {
  __m256 a, b;
};
INL V16 load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INL void store(float *p, V16 v) { _mm256_storeu_ps(p, v.a), _mm256_storeu_ps(p + 8, v.b); }
INL V16 all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INL V16 fma(V16 x, V16 y, V16 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INL V16 operator*(V16 x, V16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INL V16 operator+(V16 x, V16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INL V16 operator-(V16 x, V16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INL V16 operator/(V16 x, V16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INL V16 max(V16 x, V16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
INL V16 min(V16 x, V16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
INL V16 operator|(V16 x, V16 y) { return {_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)}; }
INL int nonzero8(__m256 x) { return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_UQ)); }
INL bool some(V16 x) { return (nonzero8(x.a) | nonzero8(x.b)) != 0; } // a lane that is not 0
INL bool every(V16 x) { return (nonzero8(x.a) & nonzero8(x.b)) == 0xff; }
INL __m256 nearest8(__m256 x) { return _mm256_cvtepi32_ps(_mm256_cvtps_epi32(x)); }
INL V16 nearest(V16 x) { return {nearest8(x.a), nearest8(x.b)}; }
INL __m256 power8(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INL V16 power(V16 n) { return {power8(n.a), power8(n.b)}; } // 2^n for whole n in [-127, 127]; 2^-127 is 0
INL __m256 choose8(__m256 x, int first, int last) { // lanes outside [first, last) become -inf
  __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256i keep = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                     _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane));
  return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, _mm256_castsi256_ps(keep));
}
INL V16 keep_below(V16 x, int n) { return {choose8(x.a, 0, n), choose8(x.b, 0, n - 8)}; }
INL V16 keep_from(V16 x, int n) { return {choose8(x.a, n, 8), choose8(x.b, n - 8, 8)}; }
INL __m256i words8(const uint8_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
INL __m256 low8(const uint8_t *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(words8(p), 16)); }
INL __m256 high8(const uint8_t *p) {
  return _mm256_castsi256_ps(_mm256_and_si256(words8(p), _mm256_set1_epi32(int(0xffff0000))));
}
INL V16 low_bf16(const uint8_t *p) { return {low8(p), low8(p + 32)}; }
INL V16 high_bf16(const uint8_t *p) { return {high8(p), high8(p + 32)}; }
INL __m256 low_half(V16 x) { return x.a; }
INL __m256 high_half(V16 x) { return x.b; }
#endif

// 2^x, about 2e-7 relative, exactly 1 at 0 and exactly 0 at -127 and below; NaN stays NaN (the constant comes first).
INL V16 exp2v(V16 x) {
  x = min(all(127), max(all(-127), x));
  V16 n = nearest(x), f = x - n;
  V16 p = all(1.5403530e-4f);
  p = fma(p, f, all(1.3333558e-3f));
  p = fma(p, f, all(9.6181291e-3f));
  p = fma(p, f, all(5.5504109e-2f));
  p = fma(p, f, all(2.4022651e-1f));
  p = fma(p, f, all(6.9314718e-1f));
  p = fma(p, f, all(1.0f));
  return p * power(n);
}

// silu(g) * u = g * u / (1 + 2^(-g log2 e))
INL V16 silu_mul(V16 g, V16 u) { return (g * u) / (all(1) + exp2v(g * all(-1.44269504f))); }
