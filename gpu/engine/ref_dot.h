// ref_dot.h: the one order in which the reference adds up products.
#ifndef LH_REF_DOT_H_
#define LH_REF_DOT_H_
#include <cstdint>

namespace lh {
namespace ref {

inline float dot(const float *a, const float *b, uint32_t n) {
  float s[16] = {0};
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; j++) s[j] += a[i + j] * b[i + j];
  for (; i < n; i++) s[i % 16] += a[i] * b[i];
  for (int w = 8; w >= 1; w /= 2)
    for (int j = 0; j < w; j++) s[j] += s[j + w];
  return s[0];
}

} // namespace ref
} // namespace lh
#endif
