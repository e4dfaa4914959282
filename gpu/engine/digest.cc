// digest.cc: digests of pages at rest and of logits. The definition is in protos/pagesum; NH of a row is in internal.h.
#include <cmath>

#include "internal.h"

namespace lh {

// Blocks of 1024 words under one NH key, block i times its own odd key; the last is zero padded.
void Backend::logit_digest(const float *row, uint32_t n, uint64_t out[2], bool *finite) const {
  uint64_t sum[2] = {0, 0};
  uint32_t most = 0; // largest exponent and fraction bits seen
  uint32_t pad[kLogitBlock];
  for (uint32_t b = 0; b * kLogitBlock < n; b++) {
    const uint32_t *w = reinterpret_cast<const uint32_t *>(row) + size_t(b) * kLogitBlock;
    const uint32_t have = n - b * kLogitBlock;
    if (have < kLogitBlock) {
      memset(pad, 0, sizeof pad);
      memcpy(pad, w, have * sizeof *w);
      w = pad;
    }
    uint64_t h[2];
    nh(keys->logit_nh, w, kLogitBlock, h);
    weigh(keys->logit_row, b, h, sum);
    for (uint32_t i = 0; i < kLogitBlock; i++) {
      const uint32_t bits = w[i] & 0x7fffffffu;
      most = bits > most ? bits : most;
    }
  }
  out[0] = sum[0];
  out[1] = sum[1];
  *finite = most < 0x7f800000u;
}

namespace {

struct Shape {
  uint32_t layers, kv_heads, head_dim, rows;
};

bool any(const uint32_t *w, uint32_t n) {
  uint32_t x = 0;
  for (uint32_t i = 0; i < n; i++) x |= w[i];
  return x != 0;
}

// [layer][K|V][head][64][head_dim]: rows lie as they are defined.
void sum_plain(const Keys &k, const Shape &s, const uint32_t *page, uint64_t sum[2], uint8_t *hit) {
  for (uint32_t layer = 0; layer < s.layers; layer++)
    for (uint32_t kv = 0; kv < 2; kv++)
      for (uint32_t head = 0; head < s.kv_heads; head++) {
        const uint32_t *block = page + size_t((layer * 2 + kv) * s.kv_heads + head) * kPageTokens * k.words;
        for (uint32_t t = 0; t < s.rows; t++) {
          const uint32_t *row = block + size_t(t) * k.words;
          add_row(k, row_index(s.layers, s.kv_heads, t, layer, kv, head), row, sum);
          hit[t] |= any(row, k.words);
        }
      }
}

// One K block, [words][64 tokens]: all tokens at once, word pair after word pair.
void nh_k(const Keys &k, const uint32_t *block, uint64_t (*h)[kPageTokens], uint32_t *seen) {
  for (uint32_t j = 0; j < k.words; j += 2) {
    const uint32_t *a = block + size_t(j) * kPageTokens, *b = a + kPageTokens;
    const uint32_t k0 = k.nh[j], k1 = k.nh[j + 1], k2 = k.nh[j + 2], k3 = k.nh[j + 3];
    for (uint32_t t = 0; t < kPageTokens; t++) {
      h[0][t] += uint64_t(uint32_t(a[t] + k0)) * uint32_t(b[t] + k1);
      h[1][t] += uint64_t(uint32_t(a[t] + k2)) * uint32_t(b[t] + k3);
      seen[t] |= a[t] | b[t];
    }
  }
}

// One V block, [token pairs][head_dim] of (even token, odd token): unzip a pair of rows, then NH of each.
void nh_v(const Keys &k, const uint32_t *block, uint32_t rows, uint64_t (*h)[kPageTokens], uint32_t *seen) {
  uint32_t even[512], odd[512]; // head_dim <= 1024
  for (uint32_t t = 0; t < rows; t += 2) {
    const uint32_t *w = block + size_t(t) * k.words; // head_dim words for two tokens of `words` words
    uint32_t se = 0, so = 0;
    for (uint32_t j = 0; j < k.words; j++) {
      const uint32_t x = w[2 * j], y = w[2 * j + 1];
      se |= even[j] = (x & 0xffffu) | y << 16;
      so |= odd[j] = x >> 16 | (y & 0xffff0000u);
    }
    uint64_t n[2];
    nh(k.nh, even, k.words, n);
    h[0][t] = n[0], h[1][t] = n[1], seen[t] |= se;
    nh(k.nh, odd, k.words, n);
    h[0][t + 1] = n[0], h[1][t + 1] = n[1], seen[t + 1] |= so;
  }
}

void sum_pair(const Keys &k, const Shape &s, const uint32_t *page, uint64_t sum[2], uint8_t *hit) {
  for (uint32_t layer = 0; layer < s.layers; layer++)
    for (uint32_t head = 0; head < s.kv_heads; head++) {
      const uint32_t *block = page + size_t(layer * s.kv_heads + head) * 2 * kPageTokens * k.words;
      for (uint32_t kv = 0; kv < 2; kv++) {
        uint64_t h[2][kPageTokens] = {};
        uint32_t seen[kPageTokens] = {};
        if (kv == 0) nh_k(k, block, h, seen);
        else nh_v(k, block + size_t(kPageTokens) * k.words, s.rows, h, seen);
        for (uint32_t t = 0; t < s.rows; t++) {
          const uint64_t n[2] = {h[0][t], h[1][t]};
          weigh(k.row, row_index(s.layers, s.kv_heads, t, layer, kv, head), n, sum);
          hit[t] |= seen[t] != 0;
        }
      }
    }
}

} // namespace
} // namespace lh

int lh_page_sum(uint32_t backend, uint32_t kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim, const void *page,
                void *copy, uint32_t rows, const uint32_t *keys, size_t words, const uint64_t *blocked,
                uint64_t digest[2], uint32_t *nonzero) {
  using namespace lh;
  if (!page || !keys || !blocked || !digest || !nonzero || rows < 1 || rows > kPageTokens ||
      backend > LH_BACKEND_CPU || kv > LH_KV_F32 || (backend == LH_BACKEND_CPU && kv != LH_KV_BF16))
    return LH_EINVAL;
  if (layers < 1 || layers > 1024 || kv_heads < 1 || kv_heads > 1024 || head_dim < 4 || head_dim > 1024 || head_dim % 4)
    return LH_EUNSUPPORTED;
  Keys k;
  k.words = head_dim * (kv == LH_KV_F32 ? 4 : 2) / 4;
  if (words < k.words + 2 + size_t(2) * kPageTokens * layers * 2 * kv_heads) return LH_EINVAL;
  k.nh = keys;
  k.row = keys + k.words + 2;
  const auto *bytes = static_cast<const uint8_t *>(page);
  if (backend == LH_BACKEND_CPU &&
      cpu_page_sum(k.nh, blocked, layers * kv_heads, head_dim, bytes, static_cast<uint8_t *>(copy), rows, digest, nonzero))
    return LH_OK;
  if (copy) { // what is there afterwards is what is digested
    memcpy(copy, page, size_t(k.words) * 4 * kPageTokens * layers * 2 * kv_heads);
    bytes = static_cast<const uint8_t *>(copy);
  }
  const Shape s = {layers, kv_heads, head_dim, rows};
  uint8_t hit[kPageTokens] = {};
  uint64_t sum[2] = {0, 0};
  auto sum_page = backend == LH_BACKEND_CPU ? sum_pair : sum_plain;
  sum_page(k, s, reinterpret_cast<const uint32_t *>(bytes), sum, hit);
  digest[0] = sum[0];
  digest[1] = sum[1];
  *nonzero = 0;
  for (uint32_t t = 0; t < rows; t++) *nonzero += hit[t];
  return LH_OK;
}
