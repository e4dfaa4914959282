// cpu_digest.inl.h: NH (package pagesum) on 256-bit vectors. Integers modulo 2^32 and 2^64: exact, any order.
// A row of 32 words costs eight vpmuludq; a page at rest is read once, and its copy is written in the same pass with
// non-temporal stores: two bytes moved for each byte copied, where memcpy's stores read the destination as well.

INL __m256i words(const uint32_t *p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)); }
INL __m256i pair_products(__m256i t) { return _mm256_mul_epu32(t, _mm256_srli_epi64(t, 32)); }
INL uint64_t sum64(__m256i v) {
  __m128i s = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return uint64_t(_mm_cvtsi128_si64(s)) + uint64_t(_mm_extract_epi64(s, 1));
}

template <int WORDS> INL void nh_words(const uint32_t *key, const uint32_t *w, uint64_t n[2]) {
  __m256i a = _mm256_setzero_si256(), b = a;
  for (int i = 0; i < WORDS; i += 8) {
    a = _mm256_add_epi64(a, pair_products(_mm256_add_epi32(words(w + i), words(key + i))));
    b = _mm256_add_epi64(b, pair_products(_mm256_add_epi32(words(w + i), words(key + i + 2))));
  }
  n[0] = sum64(a);
  n[1] = sum64(b);
}

INL void nh_row(const uint32_t *key, const uint16_t *row, uint64_t n[2]) {
  alignas(32) uint32_t w[32];
  __builtin_memcpy(w, row, sizeof w);
  nh_words<32>(key, w, n);
}

INL void weigh_row(const uint32_t *rowkeys, uint32_t index, const uint64_t n[2], uint64_t *sums) {
  uint64_t k = uint64_t(rowkeys[2 * index]) | uint64_t(rowkeys[2 * index + 1]) << 32;
  sums[0] += k * n[0];
  sums[1] += ((k << 32 | k >> 32) | 1) * n[1];
}

// Four rows' NH times their keys, added lane by lane. A key of 0 (a row that is not counted) adds nothing.
struct Sums {
  __m256i lane[2];
};
INL __m256i times64(__m256i a, __m256i b) { // modulo 2^64
  __m256i cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32(b, 0xb1));
  cross = _mm256_add_epi32(cross, _mm256_srli_epi64(cross, 32));
  return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(cross, 32));
}
INL void weigh_four(Sums &s, const uint64_t *keys, __m256i n0, __m256i n1) {
  const __m256i k = words(reinterpret_cast<const uint32_t *>(keys));
  const __m256i one = _mm256_andnot_si256(_mm256_cmpeq_epi64(k, _mm256_setzero_si256()), _mm256_set1_epi64x(1));
  s.lane[0] = _mm256_add_epi64(s.lane[0], times64(n0, k));
  s.lane[1] = _mm256_add_epi64(s.lane[1], times64(n1, _mm256_or_si256(_mm256_shuffle_epi32(k, 0xb1), one)));
}
INL __m256i low_halves(__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x20); }
INL __m256i high_halves(__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x31); }

// The NH words as the loops below want them: word pairs for K, and for V in the order that pair_rows gives.
struct PageKeys {
  alignas(32) uint64_t k[2][16];
  alignas(32) uint32_t v[2][64];
};
INL void page_keys(const uint32_t *nh, PageKeys *out) {
  for (int l = 0; l < 2; l++)
    for (int j = 0; j < 16; j++) {
      const uint32_t a = nh[2 * j + 2 * l], b = nh[2 * j + 2 * l + 1];
      out->k[l][j] = uint64_t(a) | uint64_t(b) << 32;
      uint32_t *v = out->v[l] + j / 2 * 8 + j % 2 * 4;
      v[0] = v[2] = a, v[1] = v[3] = b;
    }
}

// Which tokens have any bit set: K by token, V as pair_rows gives its words.
struct Seen {
  __m256i k[8], v[32];
};

constexpr size_t kCopyAhead = 8192; // bytes of the source that are fetched ahead; may run into what follows it

// A vector of the source; with COPY, its bytes go to the copy as they were read, past the cache.
template <bool COPY> INL __m256i take(const uint8_t *from, uint8_t *to) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
  if (COPY) _mm256_stream_si256(reinterpret_cast<__m256i *>(to), x);
  return x;
}

// The K half of a head block, [dim pair][token]: 16 tokens at a time, lanes are tokens. Words j and j + 1 of a token are
// brought side by side: tokens 0, 1, 4, 5 and 2, 3, 6, 7 of eight.
template <bool COPY> INL void sum_k(const PageKeys &key, const uint64_t *rowkeys, const uint8_t *from, uint8_t *to, Seen &seen, Sums &sums) {
  for (int t = 0; t < 64; t += 16) {
    __m256i n[2][4], any[2]; // lanes of the digest, four tokens each
    UNROLL for (int i = 0; i < 4; i++) n[0][i] = n[1][i] = _mm256_setzero_si256();
    any[0] = any[1] = _mm256_setzero_si256();
    for (int j = 0; j < 32; j += 2) {
      const size_t at = 256 * size_t(j) + 4 * size_t(t);
      const char *ahead = reinterpret_cast<const char *>(from) + kCopyAhead + (size_t(t) / 16 * 32 + size_t(j)) * 64;
      _mm_prefetch(ahead, _MM_HINT_T0);
      _mm_prefetch(ahead + 64, _MM_HINT_T0);
      __m256i x[2], y[2];
      UNROLL for (int h = 0; h < 2; h++) x[h] = take<COPY>(from + at + 32 * h, to + at + 32 * h);
      UNROLL for (int h = 0; h < 2; h++) y[h] = take<COPY>(from + at + 256 + 32 * h, to + at + 256 + 32 * h);
      UNROLL for (int h = 0; h < 2; h++) {
        any[h] = _mm256_or_si256(any[h], _mm256_or_si256(x[h], y[h]));
        const __m256i a = _mm256_unpacklo_epi32(x[h], y[h]), b = _mm256_unpackhi_epi32(x[h], y[h]);
        UNROLL for (int l = 0; l < 2; l++) {
          const __m256i k = _mm256_set1_epi64x(int64_t(key.k[l][j / 2]));
          n[l][2 * h] = _mm256_add_epi64(n[l][2 * h], pair_products(_mm256_add_epi32(a, k)));
          n[l][2 * h + 1] = _mm256_add_epi64(n[l][2 * h + 1], pair_products(_mm256_add_epi32(b, k)));
        }
      }
    }
    UNROLL for (int h = 0; h < 2; h++) {
      seen.k[t / 8 + h] = _mm256_or_si256(seen.k[t / 8 + h], any[h]);
      weigh_four(sums, rowkeys + t + 8 * h, low_halves(n[0][2 * h], n[0][2 * h + 1]), low_halves(n[1][2 * h], n[1][2 * h + 1]));
      weigh_four(sums, rowkeys + t + 8 * h + 4, high_halves(n[0][2 * h], n[0][2 * h + 1]), high_halves(n[1][2 * h], n[1][2 * h + 1]));
    }
  }
}

// Four dims of two tokens, interleaved, become two words of the even one, then two of the odd.
INL __m256i pair_rows(__m256i x) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
                                         0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  return _mm256_shuffle_epi8(x, order);
}

// The V half, [token pair][dim][token of the pair]: four tokens at a time.
template <bool COPY> INL void sum_v(const PageKeys &key, const uint64_t *rowkeys, const uint8_t *from, uint8_t *to, Seen &seen, Sums &sums) {
  for (int t = 0; t < 64; t += 4) {
    __m256i n[2][2];
    UNROLL for (int p = 0; p < 2; p++) {
      __m256i a = _mm256_setzero_si256(), b = a, any = a;
      UNROLL for (int i = 0; i < 8; i++) {
        const size_t at = size_t(t) * 128 + size_t(p) * 256 + size_t(i) * 32;
        if (i % 2 == 0) _mm_prefetch(reinterpret_cast<const char *>(from) + kCopyAhead + at, _MM_HINT_T0);
        const __m256i x = pair_rows(take<COPY>(from + at, to + at));
        any = _mm256_or_si256(any, x);
        a = _mm256_add_epi64(a, pair_products(_mm256_add_epi32(x, words(key.v[0] + 8 * i))));
        b = _mm256_add_epi64(b, pair_products(_mm256_add_epi32(x, words(key.v[1] + 8 * i))));
      }
      seen.v[t / 2 + p] = _mm256_or_si256(seen.v[t / 2 + p], any);
      n[0][p] = a, n[1][p] = b;
    }
    weigh_four(sums, rowkeys + t, _mm256_add_epi64(low_halves(n[0][0], n[0][1]), high_halves(n[0][0], n[0][1])),
               _mm256_add_epi64(low_halves(n[1][0], n[1][1]), high_halves(n[1][0], n[1][1])));
  }
}

INL uint32_t count_seen(const Seen &seen, uint32_t rows) {
  alignas(32) uint32_t k[64];
  alignas(32) uint64_t v[32][4]; // even, odd, even, odd token of the pair
  for (int i = 0; i < 8; i++) _mm256_store_si256(reinterpret_cast<__m256i *>(k + 8 * i), seen.k[i]);
  for (int i = 0; i < 32; i++) _mm256_store_si256(reinterpret_cast<__m256i *>(v[i]), seen.v[i]);
  uint32_t n = 0;
  for (uint32_t t = 0; t < rows; t++) n += k[t] || v[t / 2][t % 2] || v[t / 2][t % 2 + 2];
  return n;
}

template <bool COPY> void sum_blocks(const uint32_t *nh, const uint64_t *rowkeys, uint32_t blocks, const uint8_t *from,
                                     uint8_t *to, uint32_t rows, uint64_t digest[2], uint32_t *nonzero) {
  PageKeys key;
  page_keys(nh, &key);
  Seen seen;
  Sums sums;
  for (__m256i &x : seen.k) x = _mm256_setzero_si256();
  for (__m256i &x : seen.v) x = _mm256_setzero_si256();
  sums.lane[0] = sums.lane[1] = _mm256_setzero_si256();
  for (uint32_t b = 0; b < blocks; b++, from += kHeadBlock, rowkeys += 128) {
    alignas(32) uint64_t counted[128]; // the keys of written rows
    const uint64_t *k = rowkeys;
    if (rows < 64) {
      for (uint32_t i = 0; i < 128; i++) counted[i] = i % 64 < rows ? rowkeys[i] : 0;
      k = counted;
    }
    sum_k<COPY>(key, k, from, to, seen, sums);
    sum_v<COPY>(key, k + 64, from + kHeadBlock / 2, COPY ? to + kHeadBlock / 2 : to, seen, sums);
    if (COPY) to += kHeadBlock;
  }
  if (COPY) _mm_sfence();
  digest[0] = sum64(sums.lane[0]);
  digest[1] = sum64(sums.lane[1]);
  *nonzero = count_seen(seen, rows);
}

void page_sum(const uint32_t *nh, const uint64_t *rowkeys, uint32_t blocks, const uint8_t *page, uint8_t *copy,
              uint32_t rows, uint64_t digest[2], uint32_t *nonzero) {
  if (copy) sum_blocks<true>(nh, rowkeys, blocks, page, copy, rows, digest, nonzero);
  else sum_blocks<false>(nh, rowkeys, blocks, page, copy, rows, digest, nonzero);
}

void logit_block(const uint32_t *key, const uint32_t *w, uint64_t n[2], bool *finite) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (int i = 0; i < 1024; i += 8)
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(words(w + i), exponent), exponent));
  if (!_mm256_testz_si256(bad, bad)) *finite = false;
  nh_words<1024>(key, w, n);
}
