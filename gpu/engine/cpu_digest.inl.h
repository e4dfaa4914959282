// cpu_digest.inl.h: NH (package pagesum) on 256-bit vectors. Integers modulo 2^32 and 2^64: exact, any order.
// A row of 32 words costs eight vpmuludq; a page at rest is read once.

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

// NH of all 64 K rows of a head block: lanes are tokens, [dim pair][key] is the order of the words.
INL void nh_keys(const uint32_t *key, const uint8_t *block, uint64_t n[64][2], __m256i *any) {
  const uint32_t *w = reinterpret_cast<const uint32_t *>(block);
  for (int t = 0; t < 64; t += 8) {
    __m256i even[2], odd[2]; // of tokens 0, 2, 4, 6 and of 1, 3, 5, 7, each lane of the digest
    UNROLL for (int l = 0; l < 2; l++) even[l] = odd[l] = _mm256_setzero_si256();
    for (int j = 0; j < 32; j += 2) {
      __m256i x = words(w + 64 * j + t), y = words(w + 64 * (j + 1) + t);
      any[t / 8] = _mm256_or_si256(any[t / 8], _mm256_or_si256(x, y));
      UNROLL for (int l = 0; l < 2; l++) {
        __m256i p = _mm256_add_epi32(x, _mm256_set1_epi32(int(key[j + 2 * l])));
        __m256i q = _mm256_add_epi32(y, _mm256_set1_epi32(int(key[j + 1 + 2 * l])));
        even[l] = _mm256_add_epi64(even[l], _mm256_mul_epu32(p, q));
        odd[l] = _mm256_add_epi64(odd[l], _mm256_mul_epu32(_mm256_srli_epi64(p, 32), _mm256_srli_epi64(q, 32)));
      }
    }
    UNROLL for (int l = 0; l < 2; l++) {
      alignas(32) uint64_t e[4], o[4];
      _mm256_store_si256(reinterpret_cast<__m256i *>(e), even[l]);
      _mm256_store_si256(reinterpret_cast<__m256i *>(o), odd[l]);
      for (int i = 0; i < 4; i++) n[t + 2 * i][l] = e[i], n[t + 2 * i + 1][l] = o[i];
    }
  }
}

// The two V rows of a key pair, as 64 bf16 each.
INL void split_values(const uint8_t *pair, uint16_t *even, uint16_t *odd) {
  const uint32_t *w = reinterpret_cast<const uint32_t *>(pair);
  for (int d = 0; d < 64; d += 16) {
    __m256i x = words(w + d), y = words(w + d + 8), low = _mm256_set1_epi32(0xffff);
    __m256i e = _mm256_packus_epi32(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
    __m256i o = _mm256_packus_epi32(_mm256_srli_epi32(x, 16), _mm256_srli_epi32(y, 16));
    _mm256_store_si256(reinterpret_cast<__m256i *>(even + d), _mm256_permute4x64_epi64(e, 0xd8));
    _mm256_store_si256(reinterpret_cast<__m256i *>(odd + d), _mm256_permute4x64_epi64(o, 0xd8));
  }
}

INL bool any_bit(const uint16_t *row) {
  const __m256i *v = reinterpret_cast<const __m256i *>(row);
  __m256i a = _mm256_or_si256(_mm256_or_si256(v[0], v[1]), _mm256_or_si256(v[2], v[3]));
  return !_mm256_testz_si256(a, a);
}

void page_sum(const uint32_t *nhk, const uint32_t *rowkeys, uint32_t layers, uint32_t kv_heads, const uint8_t *page,
              uint32_t rows, uint64_t digest[2], uint32_t *nonzero) {
  __m256i any[8];
  for (__m256i &v : any) v = _mm256_setzero_si256();
  bool used[64] = {};
  digest[0] = digest[1] = 0;
  for (uint32_t layer = 0; layer < layers; layer++) {
    for (uint32_t head = 0; head < kv_heads; head++, page += kHeadBlock) {
      uint64_t n[64][2];
      nh_keys(nhk, page, n, any);
      for (uint32_t t = 0; t < rows; t++)
        weigh_row(rowkeys, ((t * layers + layer) * 2) * kv_heads + head, n[t], digest);
      alignas(32) uint16_t row[2][64];
      for (uint32_t t = 0; t < rows; t++) {
        if (t % 2 == 0) split_values(page + 8192 + t / 2 * 256, row[0], row[1]);
        used[t] |= any_bit(row[t % 2]);
        nh_row(nhk, row[t % 2], n[0]);
        weigh_row(rowkeys, ((t * layers + layer) * 2 + 1) * kv_heads + head, n[0], digest);
      }
    }
  }
  alignas(32) uint32_t keys[64];
  for (int i = 0; i < 8; i++) _mm256_store_si256(reinterpret_cast<__m256i *>(keys + 8 * i), any[i]);
  *nonzero = 0;
  for (uint32_t t = 0; t < rows; t++) *nonzero += used[t] || keys[t];
}

void logit_block(const uint32_t *key, const uint32_t *w, uint64_t n[2], bool *finite) {
  const __m256i exponent = _mm256_set1_epi32(0x7f800000);
  __m256i bad = _mm256_setzero_si256();
  for (int i = 0; i < 1024; i += 8)
    bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(words(w + i), exponent), exponent));
  if (!_mm256_testz_si256(bad, bad)) *finite = false;
  nh_words<1024>(key, w, n);
}
