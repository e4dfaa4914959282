// scalar.h: the arithmetic of numerics class x86-fma-1, one element at a time.
#ifndef LH_KERNELCHECK_SCALAR_H_
#define LH_KERNELCHECK_SCALAR_H_
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace lh::scalar {

class Random {
 public:
  explicit Random(uint64_t seed) : s_(seed * 2 + 88172645463325253ull) {}
  uint64_t next() {
    s_ ^= s_ << 13, s_ ^= s_ >> 7, s_ ^= s_ << 17;
    return s_;
  }
  float uniform() { return float(next() >> 40) / 16777216.0f; }
  float gauss() { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508f; }

 private:
  uint64_t s_;
};

inline bool same(float a, float b) {
  uint32_t x, y;
  memcpy(&x, &a, 4);
  memcpy(&y, &b, 4);
  return x == y;
}

inline float exp2v(float x) {
  x = x < -127 ? -127 : x > 127 ? 127 : x;
  float n = std::nearbyint(x), f = x - n, p = 1.5403530e-4f;
  for (float c : {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f, 1.0f}) p = std::fma(p, f, c);
  return p * (n < -126 ? 0 : std::ldexp(1.0f, int(n)));
}

inline float silu_mul(float g, float u) { return (g * u) / (1 + exp2v(g * -1.44269504f)); }

// Sixteen chains: (i, i+8), (i, i+4), (i, i+2), (i, i+1).
inline float tree16(const float *chain) {
  float c[16];
  memcpy(c, chain, sizeof c);
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++) c[i] = c[i] + c[i + n];
  return c[0];
}

struct Block {
  int q[32];
  float d, dsum;
  int sum;
};

inline Block quantise(const float *x) {
  Block b{};
  float top = 0;
  for (int i = 0; i < 32; i++) top = std::max(top, std::fabs(x[i]));
  float inverse = top < 1e-30f ? 0 : 127 / top;
  b.d = top < 1e-30f ? 0 : top * (1.0f / 127);
  for (int i = 0; i < 32; i++) b.sum += b.q[i] = int(std::nearbyint(x[i] * inverse));
  b.dsum = b.d * float(b.sum);
  return b;
}

inline std::vector<Block> quantise_row(const float *x, uint32_t cols) {
  std::vector<Block> blocks;
  for (uint32_t k = 0; k < cols; k += 32) blocks.push_back(quantise(x + k));
  return blocks;
}

inline std::vector<float> norm(const float *x, const float *w, float eps, uint32_t n) {
  float chain[16] = {};
  for (uint32_t k = 0; k < n; k++) chain[k % 16] = std::fma(x[k], x[k], chain[k % 16]);
  float inverse = 1 / std::sqrt(tree16(chain) / float(n) + eps);
  std::vector<float> y(n);
  for (uint32_t k = 0; k < n; k++) y[k] = (x[k] * inverse) * w[k];
  return y;
}

inline void rope(const float *x, const float *turn, float scale, float *out) {
  for (int i = 0; i < 64; i++) out[i] = std::fma(x[i], turn[i], x[i ^ 1] * turn[64 + i]) * scale;
}

// Attention of one query over n keys of 64 dimensions; key(k) and value(k) give rows.
template <class K, class V> void attend(const float *q, uint32_t n, K key, V value, float *out) {
  const float none = -std::numeric_limits<float>::infinity();
  float M = none, L = 0, O[64] = {};
  for (uint32_t chunk = 0; chunk < n; chunk += 512) {
    float m = none, l = 0, o[64] = {};
    for (uint32_t first = chunk; first < n && first < chunk + 512; first += 64) {
      uint32_t keys = std::min(64u, n - first);
      float s[64], top = m, chain[16] = {};
      for (uint32_t k = 0; k < keys; k++) {
        s[k] = 0;
        for (int d = 0; d < 64; d++) s[k] = std::fma(key(first + k)[d], q[d], s[k]);
        top = std::max(top, s[k]);
      }
      float c = exp2v(m - top);
      for (uint32_t k = 0; k < keys; k++) {
        s[k] = exp2v(s[k] - top);
        chain[k % 16] = k < 16 ? s[k] : chain[k % 16] + s[k];
      }
      m = top;
      l = std::fma(l, c, tree16(chain));
      for (int d = 0; d < 64; d++) {
        o[d] *= c;
        for (uint32_t k = 0; k < keys; k++) o[d] = std::fma(value(first + k)[d], s[k], o[d]);
      }
    }
    float top = std::max(M, m), a = exp2v(M - top), b = exp2v(m - top);
    M = top;
    L = std::fma(l, b, L * a);
    for (int d = 0; d < 64; d++) O[d] = std::fma(o[d], b, O[d] * a);
  }
  for (int d = 0; d < 64; d++) out[d] = O[d] / L;
}

} // namespace lh::scalar
#endif
