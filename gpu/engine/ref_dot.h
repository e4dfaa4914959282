// ref_dot.h: the one order in which the reference adds up products: element i goes to sum i mod 16; then 8 + 8, 4 + 4,
// 2 + 2, 1 + 1. Sixteen sums in four vectors of the compiler's own kind: the same operations as one by one, which gcc 12
// does not find by itself.
#ifndef LH_REF_DOT_H_
#define LH_REF_DOT_H_
#include <cstdint>
#include <cstring>

namespace lh {
namespace ref {

inline float dot(const float *a, const float *b, uint32_t n) {
  typedef float Four __attribute__((vector_size(16)));
  auto load = [](const float *p) {
    Four v;
    memcpy(&v, p, sizeof v);
    return v;
  };
  Four v0 = {0}, v1 = v0, v2 = v0, v3 = v0;
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    v0 += load(a + i) * load(b + i);
    v1 += load(a + i + 4) * load(b + i + 4);
    v2 += load(a + i + 8) * load(b + i + 8);
    v3 += load(a + i + 12) * load(b + i + 12);
  }
  float s[16];
  memcpy(s, &v0, 16);
  memcpy(s + 4, &v1, 16);
  memcpy(s + 8, &v2, 16);
  memcpy(s + 12, &v3, 16);
  for (; i < n; i++) s[i % 16] += a[i] * b[i];
  for (int w = 8; w >= 1; w /= 2)
    for (int j = 0; j < w; j++) s[j] += s[j + w];
  return s[0];
}

} // namespace ref
} // namespace lh
#endif
