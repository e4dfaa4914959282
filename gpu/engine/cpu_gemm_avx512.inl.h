// cpu_gemm_avx512.inl.h: the register tile of the avx512 path: R <= 12 rows x 16 columns.
//
// vpdpbusd of unsigned weights and int8 activations, exact in int32. Q4_0 and Q8_0 are stored with an offset (8, 128)
// that the accumulator's start takes back: -offset * sum(a).

constexpr int kTile = 12;

INL __m512i load512(const uint8_t *p) { return _mm512_load_si512(p); }
INL __m512i quad(const int8_t *p) { // four activations in every lane
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
INL __m512 half16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i *>(p))); }

template <uint32_t TYPE> INL void unpack_quads(const uint8_t *q, __m512i *w) {
  if constexpr (TYPE == LH_Q8_0) {
    UNROLL for (int j = 0; j < 8; j++) w[j] = load512(q + 64 * j);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
    UNROLL for (int j = 0; j < 4; j++) {
      __m512i v = load512(q + 64 * j);
      w[j] = _mm512_and_si512(v, low);
      w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
  }
}

template <uint32_t TYPE> INL void unpack_block(const uint8_t *q, uint8_t *out) {
  __m512i w[8];
  unpack_quads<TYPE>(q, w);
  UNROLL for (int j = 0; j < 8; j++) _mm512_store_si512(out + 64 * j, w[j]);
}

INL void unpack_scales(const uint8_t *h, float *out) { _mm512_store_ps(out, half16(h)); }

// R rows x 16 columns over all blocks. WIDE: q, scales come from scratch (unpacked); else from the packed group.
template <uint32_t TYPE, int R, bool WIDE>
INL void tile(const uint8_t *group, const Wide wide, const Act &act, size_t at, float *out, size_t ldo) {
  __m512 acc[R];
  UNROLL for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
  const int8_t *a = act.q + at * 32;
  const float *d = act.d + at, *dsum = act.dsum + at;
  const int32_t *sum = act.sum + at;
  for (uint32_t b = 0; b < act.blocks; b++, a += 32 * R, d += R, dsum += R, sum += R) {
    const uint8_t *h = group + (b >> 1) * pair_bytes(TYPE) + (b & 1) * header_bytes(TYPE);
    const uint8_t *q = group + (b >> 1) * pair_bytes(TYPE) + 2 * header_bytes(TYPE) + (b & 1) * quant_bytes(TYPE);
    if (!WIDE) {
      for (size_t i = 0; i < pair_bytes(TYPE) / 2; i += 64)
        _mm_prefetch(reinterpret_cast<const char *>(group) + b * (pair_bytes(TYPE) / 2) + kAhead + i, _MM_HINT_T0);
    }
    __m512i w[8], is[R];
    if (!WIDE) unpack_quads<TYPE>(q, w);
    UNROLL for (int r = 0; r < R; r++)
      is[r] = TYPE == LH_Q4_1 ? _mm512_setzero_si512() : _mm512_set1_epi32(sum[r] * (TYPE == LH_Q4_0 ? -8 : -128));
    UNROLL for (int j = 0; j < 8; j++) {
      __m512i x = WIDE ? load512(wide.q + size_t(b) * 512 + 64 * j) : w[j];
      UNROLL for (int r = 0; r < R; r++) is[r] = _mm512_dpbusd_epi32(is[r], x, quad(a + r * 32 + j * 4));
    }
    __m512 wd = WIDE ? _mm512_load_ps(wide.d + 16 * b) : half16(h), wm;
    if (TYPE == LH_Q4_1) wm = WIDE ? _mm512_load_ps(wide.m + 16 * b) : half16(h + 32);
    UNROLL for (int r = 0; r < R; r++) {
      acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(is[r]), _mm512_mul_ps(wd, _mm512_set1_ps(d[r])), acc[r]);
      if (TYPE == LH_Q4_1) acc[r] = _mm512_fmadd_ps(wm, _mm512_set1_ps(dsum[r]), acc[r]);
    }
  }
  UNROLL for (int r = 0; r < R; r++) _mm512_storeu_ps(out + ldo * r, acc[r]);
}
