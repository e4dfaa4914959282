// cpu_rows.inl.h: kernels over rows: add, RMSNorm, quantisation, RoPE, KV append. Included once by each SIMD path inside
// its target region; all of it is 256-bit code, so both paths run the same instructions.
//
// RMSNorm    sum of squares in 16 chains (element k in chain k mod 16, fma), then hsum16; y = (x * (1/sqrt(ss/n + eps))) * w
// quantise   d = max|x| * (1/127), q = nearest even of x * (127 / max|x|); a block below 1e-30 is zero; NaN stays NaN in d
// RoPE       fma(x, cos, swapped * sin) * scale
// append     bf16 nearest even; K as [dim pair][key][2], V as [key pair][dim][2]
// Bytes: a row once in, 36/32 of its elements out. Reference: ref.cc, and the scalar order above in cpu_kernel_test.

INL __m256 f8(const float *p) { return _mm256_loadu_ps(p); }
INL __m256 bits_f(__m256i v) { return _mm256_castsi256_ps(v); }
INL __m256i bits_i(__m256 v) { return _mm256_castps_si256(v); }

// Lane i of a with lane i of b, then halves: (i, i+4), (i, i+2), (i, i+1).
INL float hsum16(__m256 a, __m256 b) {
  __m256 s8 = _mm256_add_ps(a, b);
  __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

void add(float *x, const float *y, uint32_t n) {
  for (uint32_t k = 0; k < n; k += 8) _mm256_storeu_ps(x + k, _mm256_add_ps(f8(x + k), f8(y + k)));
}

// Eight vectors of eight to one vector of their eight reductions; exact operations only (any order).
template <class OP> INL __m256i reduce8(const __m256i *v, OP op) {
  __m256i a[4], b[2];
  UNROLL for (int i = 0; i < 4; i++)
    a[i] = op(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  UNROLL for (int i = 0; i < 2; i++)
    b[i] = op(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
  return op(_mm256_permute2x128_si256(b[0], b[1], 0x20), _mm256_permute2x128_si256(b[0], b[1], 0x31));
}

struct MaxOp {
  INL __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epi32(a, b); }
};
struct SumOp {
  INL __m256i operator()(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
};

// Quantises `count` <= 8 blocks of 32 floats into elements [at, at + count) of act. The maximum is taken over the bits
// without their signs, so that NaN wins.
INL void quantise8(const float (*x)[32], uint32_t count, const Act &act, size_t at) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i v[8];
  for (uint32_t j = 0; j < 8; j++) {
    v[j] = _mm256_setzero_si256();
    if (j >= count) continue;
    UNROLL for (int i = 0; i < 4; i++)
      v[j] = _mm256_max_epi32(v[j], _mm256_and_si256(bits_i(_mm256_load_ps(x[j] + 8 * i)), magnitude));
  }
  __m256 top = bits_f(reduce8(v, MaxOp{}));
  __m256 tiny = _mm256_cmp_ps(top, _mm256_set1_ps(1e-30f), _CMP_LT_OQ);
  __m256 d = _mm256_andnot_ps(tiny, _mm256_mul_ps(top, _mm256_set1_ps(1.0f / 127)));
  alignas(32) float inverse[8];
  _mm256_store_ps(inverse, _mm256_andnot_ps(tiny, _mm256_div_ps(_mm256_set1_ps(127), top)));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (uint32_t j = 0; j < count; j++) {
    __m256 s = _mm256_set1_ps(inverse[j]);
    __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x[j]), s));
    __m256i i1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x[j] + 8), s));
    __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x[j] + 16), s));
    __m256i i3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(x[j] + 24), s));
    v[j] = _mm256_add_epi32(_mm256_add_epi32(i0, i1), _mm256_add_epi32(i2, i3));
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(act.q + (at + j) * 32), _mm256_permutevar8x32_epi32(b, order));
  }
  __m256i sum = reduce8(v, SumOp{});
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  _mm256_maskstore_ps(act.d + at, mask, d);
  _mm256_maskstore_ps(act.dsum + at, mask, _mm256_mul_ps(d, _mm256_cvtepi32_ps(sum)));
  _mm256_maskstore_epi32(act.sum + at, mask, sum);
}

// Quantises blocks [b0, b1) of rows [r0, r1); load(row, block, x) yields 32 floats. Whole tiles keep elements in order,
// so that eight are reduced together whatever the shape.
template <class LOAD>
INL void quantise_rows(LOAD load, const Act &act, uint32_t r0, uint32_t r1, uint32_t b0, uint32_t b1) {
  alignas(32) float x[8][32];
  for (uint32_t r = r0; r < r1;) {
    uint32_t t = r / act.tile * act.tile, rows = act.rows - t < act.tile ? act.rows - t : act.tile;
    uint32_t end = r1 < t + rows ? r1 : t + rows;
    if (r == t && end == t + rows) {
      size_t at = size_t(t) * act.blocks + size_t(b0) * rows;
      uint32_t n = (b1 - b0) * rows, b = b0, i = t;
      for (uint32_t e = 0; e < n; e += 8) {
        uint32_t count = n - e < 8 ? n - e : 8;
        for (uint32_t j = 0; j < count; j++) {
          load(i, b, x[j]);
          if (++i == t + rows) i = t, b++;
        }
        quantise8(x, count, act, at + e);
      }
    } else {
      for (uint32_t i = r; i < end; i++)
        for (uint32_t b = b0; b < b1; b++) {
          load(i, b, x[0]);
          quantise8(x, 1, act, size_t(t) * act.blocks + size_t(b) * rows + (i - t));
        }
    }
    r = end;
  }
}

void quantise(const float *x, size_t ldx, const Act &act, uint32_t r0, uint32_t r1) {
  quantise_rows(
      [&](uint32_t r, uint32_t b, float *out) INL_LAMBDA {
        const float *p = x + ldx * r + 32 * b;
        UNROLL for (int i = 0; i < 32; i += 8) _mm256_store_ps(out + i, f8(p + i));
      },
      act, r0, r1, 0, act.blocks);
}

void norm_quantise(const float *x, size_t ldx, const uint32_t *index, const float *w, float eps, const Act &act,
                   uint32_t r0, uint32_t r1) {
  uint32_t n = act.blocks * 32;
  for (uint32_t t0 = r0; t0 < r1;) {
    uint32_t next = (t0 / act.tile + 1) * act.tile, t1 = next < r1 ? next : r1;
    float inverse[kMaxTile];
    for (uint32_t r = t0; r < t1; r++) {
      const float *p = x + ldx * (index ? index[r] : r);
      __m256 a = _mm256_setzero_ps(), b = a;
      for (uint32_t k = 0; k < n; k += 16) {
        a = _mm256_fmadd_ps(f8(p + k), f8(p + k), a);
        b = _mm256_fmadd_ps(f8(p + k + 8), f8(p + k + 8), b);
      }
      float mean = hsum16(a, b) / float(n);
      inverse[r - t0] = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
    }
    quantise_rows(
        [&](uint32_t r, uint32_t b, float *out) INL_LAMBDA {
          const float *p = x + ldx * (index ? index[r] : r) + 32 * b;
          __m256 s = _mm256_set1_ps(inverse[r - t0]);
          UNROLL for (int i = 0; i < 32; i += 8)
            _mm256_store_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(f8(p + i), s), f8(w + 32 * b + i)));
        },
        act, t0, t1, 0, act.blocks);
    t0 = t1;
  }
}

void rope(const float *x, const float *turn, float scale, float *out) {
  UNROLL for (int i = 0; i < 64; i += 8) {
    __m256 v = f8(x + i), swapped = _mm256_permute_ps(v, 0xb1);
    __m256 y = _mm256_fmadd_ps(v, f8(turn + i), _mm256_mul_ps(swapped, f8(turn + 64 + i)));
    _mm256_storeu_ps(out + i, _mm256_mul_ps(y, _mm256_set1_ps(scale)));
  }
}

// Eight floats to eight 32-bit words that hold their bf16 in the low half.
INL __m256i bf16_low(__m256 x) {
  __m256i u = bits_i(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

INL void to_bf16(const float *x, uint16_t *out) {
  UNROLL for (int i = 0; i < 64; i += 16) {
    __m256i p = _mm256_packus_epi32(bf16_low(f8(x + i)), bf16_low(f8(x + i + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + i), _mm256_permute4x64_epi64(p, 0xd8));
  }
}

void append(const float *k, const float *v, uint8_t *block, uint32_t t, const uint32_t *nhk, const uint32_t *rowkeys,
            uint32_t k_index, uint32_t v_index, uint64_t *sums) {
  alignas(64) uint16_t kb[64], vb[64];
  to_bf16(k, kb);
  to_bf16(v, vb);
  uint8_t *kp = block + 4 * t, *vp = block + 8192 + (t >> 1) * 256 + (t & 1) * 2;
  for (int j = 0; j < 32; j++) __builtin_memcpy(kp + j * 256, kb + 2 * j, 4);
  for (int d = 0; d < 64; d++) __builtin_memcpy(vp + 4 * d, vb + d, 2);
  if (!sums) return;
  uint64_t n[2];
  nh_row(nhk, kb, n);
  weigh_row(rowkeys, k_index, n, sums);
  nh_row(nhk, vb, n);
  weigh_row(rowkeys, v_index, n, sums);
}
