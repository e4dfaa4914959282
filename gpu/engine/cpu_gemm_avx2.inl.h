// cpu_gemm_avx2.inl.h: the register tile of the avx2 path: R <= 6 rows x 16 columns.
//
// 4-bit: vpmaddubsw of unsigned weights 0..15 and int8 activations, eight in int16 (at most 8 * 2 * 15 * 127 = 30480),
// one vpmaddwd to int32 a block. Q8_0: |w| and the activation with w's sign, so that a pair is at most 32512; widened at
// once. Sixteen ymm hold 12 integer accumulators, two weight vectors and one broadcast; floats of more than three rows
// wait in memory (one load and one store a block).

constexpr int kTile = 6;

INL __m256i load256(const uint8_t *p) { return _mm256_load_si256(reinterpret_cast<const __m256i *>(p)); }
INL __m256i quad(const int8_t *p) { // four activations in every lane
  int32_t v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
INL __m256 half8(const uint8_t *p) { return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i *>(p))); }

template <int R> struct Ints {
  __m256i v[R][2];
};

template <uint32_t TYPE> INL void unpack_block(const uint8_t *q, uint8_t *out) {
  if constexpr (TYPE == LH_Q8_0) {
    UNROLL for (int i = 0; i < 512; i += 32) _mm256_store_si256(reinterpret_cast<__m256i *>(out + i), load256(q + i));
  } else {
    const __m256i low = _mm256_set1_epi8(15);
    UNROLL for (int i = 0; i < 256; i += 32) {
      __m256i v = load256(q + i);
      _mm256_store_si256(reinterpret_cast<__m256i *>(out + i), _mm256_and_si256(v, low));
      _mm256_store_si256(reinterpret_cast<__m256i *>(out + 256 + i), _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
    }
  }
}

INL void unpack_scales(const uint8_t *h, float *out) {
  _mm256_store_ps(out, half8(h));
  _mm256_store_ps(out + 8, half8(h + 16));
}

template <int R, bool FIRST> INL void dot4(Ints<R> &is, __m256i w0, __m256i w1, const int8_t *a) {
  UNROLL for (int r = 0; r < R; r++) {
    __m256i x = quad(a + r * 32);
    __m256i p0 = _mm256_maddubs_epi16(w0, x), p1 = _mm256_maddubs_epi16(w1, x);
    is.v[r][0] = FIRST ? p0 : _mm256_add_epi16(is.v[r][0], p0);
    is.v[r][1] = FIRST ? p1 : _mm256_add_epi16(is.v[r][1], p1);
    asm("" : "+x"(is.v[r][0]), "+x"(is.v[r][1])); // gcc would make a tree of the sums, and spill it
  }
}

template <int R> INL void dot8(Ints<R> &is, const uint8_t *q, const int8_t *a) {
  const __m256i flip = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  UNROLL for (int c = 0; c < 2; c++) {
    __m256i w = _mm256_xor_si256(load256(q + 32 * c), flip), size = _mm256_abs_epi8(w);
    UNROLL for (int r = 0; r < R; r++)
      is.v[r][c] = _mm256_add_epi32(
          is.v[r][c], _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(quad(a + r * 32), w)), ones));
  }
}

// Integer dot products of one block, as int32 for Q8_0 and as pairs of int16 for 4 bits. WIDE: q is an unpacked block.
template <uint32_t TYPE, int R, bool WIDE> INL void block_dot(Ints<R> &is, const uint8_t *q, const int8_t *a) {
  if constexpr (TYPE == LH_Q8_0) {
    UNROLL for (int r = 0; r < R; r++) is.v[r][0] = is.v[r][1] = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) dot8<R>(is, q + 64 * j, a + 4 * j);
  } else if constexpr (WIDE) {
    dot4<R, true>(is, load256(q), load256(q + 32), a);
    UNROLL for (int j = 1; j < 8; j++) dot4<R, false>(is, load256(q + 64 * j), load256(q + 64 * j + 32), a + 4 * j);
  } else {
    const __m256i low = _mm256_set1_epi8(15);
    UNROLL for (int j = 0; j < 4; j++) {
      __m256i v0 = load256(q + 64 * j), v1 = load256(q + 64 * j + 32);
      __m256i l0 = _mm256_and_si256(v0, low), l1 = _mm256_and_si256(v1, low);
      if (j == 0)
        dot4<R, true>(is, l0, l1, a);
      else
        dot4<R, false>(is, l0, l1, a + 4 * j);
      dot4<R, false>(is, _mm256_and_si256(_mm256_srli_epi16(v0, 4), low), _mm256_and_si256(_mm256_srli_epi16(v1, 4), low),
                     a + 16 + 4 * j);
    }
  }
}

template <uint32_t TYPE> INL __m256 block_float(__m256i v, const int32_t *sum) {
  if constexpr (TYPE != LH_Q8_0) v = _mm256_madd_epi16(v, _mm256_set1_epi16(1));
  if constexpr (TYPE == LH_Q4_0) v = _mm256_sub_epi32(v, _mm256_slli_epi32(_mm256_set1_epi32(*sum), 3));
  return _mm256_cvtepi32_ps(v);
}

// R rows x 16 columns over all blocks. WIDE: q, scales come from scratch (unpacked); else from the packed group.
template <uint32_t TYPE, int R, bool WIDE>
INL void tile(const uint8_t *group, const Wide wide, const Act &act, size_t at, float *out, size_t ldo) {
  constexpr bool kInMemory = R > 3;
  __m256 acc[R][2];
  UNROLL for (int r = 0; r < R; r++) {
    acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    if (kInMemory) _mm256_store_ps(wide.acc + 16 * r, acc[r][0]), _mm256_store_ps(wide.acc + 16 * r + 8, acc[r][0]);
  }
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
    Ints<R> is;
    block_dot<TYPE, R, WIDE>(is, WIDE ? wide.q + size_t(b) * 512 : q, a);
    __m256 wd[2], wm[2];
    UNROLL for (int c = 0; c < 2; c++) {
      wd[c] = WIDE ? _mm256_load_ps(wide.d + 16 * b + 8 * c) : half8(h + 16 * c);
      if (TYPE == LH_Q4_1) wm[c] = WIDE ? _mm256_load_ps(wide.m + 16 * b + 8 * c) : half8(h + 32 + 16 * c);
    }
    UNROLL for (int r = 0; r < R; r++) {
      __m256 da = _mm256_set1_ps(d[r]), ds = _mm256_set1_ps(dsum[r]);
      UNROLL for (int c = 0; c < 2; c++) {
        float *slot = wide.acc + 16 * r + 8 * c;
        __m256 s = kInMemory ? _mm256_load_ps(slot) : acc[r][c];
        s = _mm256_fmadd_ps(block_float<TYPE>(is.v[r][c], sum + r), _mm256_mul_ps(wd[c], da), s);
        if (TYPE == LH_Q4_1) s = _mm256_fmadd_ps(wm[c], ds, s);
        if (kInMemory)
          _mm256_store_ps(slot, s);
        else
          acc[r][c] = s;
      }
    }
  }
  UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < 2; c++)
    _mm256_storeu_ps(out + ldo * r + 8 * c, kInMemory ? _mm256_load_ps(wide.acc + 16 * r + 8 * c) : acc[r][c]);
}
