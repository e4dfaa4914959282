// ref_quant.h: one row of a tensor, as f32. Formulas are ggml's; a block is 32 elements.
//   Q8_0  half d, 32 x i8               x = q*d
//   Q4_0  half d, 16 bytes              x = (q-8)*d; byte j: element j low nibble, j+16 high
//   Q4_1  half d, half m, 16 bytes      x = q*d + m
#ifndef LH_REF_QUANT_H_
#define LH_REF_QUANT_H_
#include <cstdint>
#include <cstring>

#include "internal.h"

namespace lh {
namespace ref {

inline float from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

inline uint32_t to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

inline float half(const uint8_t *p) {
  const uint32_t h = uint32_t(p[0]) | uint32_t(p[1]) << 8, sign = (h & 0x8000u) << 16, mag = h & 0x7fffu;
  if (mag >= 0x7c00u) return from_bits(sign | 0x7f800000u | (mag & 0x3ffu) << 13); // Inf, NaN
  // A float that holds the same bits shifted is 2^112 too small, subnormals included.
  return from_bits(sign | to_bits(from_bits(mag << 13) * 0x1p112f));
}

inline float bf16(uint16_t h) { return from_bits(uint32_t(h) << 16); }

// To bf16, to nearest, ties to even. NaN stays NaN.
inline uint16_t to_bf16(float f) {
  const uint32_t u = to_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t(u >> 16 | 0x40);
  return uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

// Bytes of a row of cols elements; 0 for a type that is not read, or cols that are no whole blocks.
inline size_t row_bytes(uint32_t type, uint32_t cols) {
  switch (type) {
  case LH_F32: return size_t(4) * cols;
  case LH_F16: case LH_BF16: return size_t(2) * cols;
  case LH_Q4_0: return cols % 32 ? 0 : size_t(18) * (cols / 32);
  case LH_Q4_1: return cols % 32 ? 0 : size_t(20) * (cols / 32);
  case LH_Q8_0: return cols % 32 ? 0 : size_t(34) * (cols / 32);
  }
  return 0;
}

// 16 bytes of nibbles to 32 floats q*d + m, q - off for Q4_0.
inline void nibbles(const uint8_t *p, int off, float d, float m, float *__restrict out) {
  uint8_t q[16];
  memcpy(q, p, 16);
  for (int j = 0; j < 16; j++) out[j] = float((q[j] & 15) - off) * d + m;
  for (int j = 0; j < 16; j++) out[j + 16] = float((q[j] >> 4) - off) * d + m;
}

inline void row(const lh_tensor &t, uint32_t r, float *out) {
  const uint8_t *p = static_cast<const uint8_t *>(t.data) + row_bytes(t.type, t.cols) * r;
  const uint32_t blocks = t.cols / 32;
  switch (t.type) {
  case LH_F32: memcpy(out, p, size_t(4) * t.cols); break;
  case LH_F16:
    for (uint32_t i = 0; i < t.cols; i++) out[i] = half(p + 2 * i);
    break;
  case LH_BF16:
    for (uint32_t i = 0; i < t.cols; i++) out[i] = bf16(uint16_t(p[2 * i] | p[2 * i + 1] << 8));
    break;
  case LH_Q4_0:
    for (uint32_t b = 0; b < blocks; b++, p += 18, out += 32) nibbles(p + 2, 8, half(p), 0, out);
    break;
  case LH_Q4_1:
    for (uint32_t b = 0; b < blocks; b++, p += 20, out += 32) nibbles(p + 4, 0, half(p), half(p + 2), out);
    break;
  case LH_Q8_0:
    for (uint32_t b = 0; b < blocks; b++, p += 34, out += 32) {
      const float d = half(p);
      int8_t q[32];
      memcpy(q, p + 2, 32);
      for (int j = 0; j < 32; j++) out[j] = float(q[j]) * d;
    }
    break;
  }
}

} // namespace ref
} // namespace lh
#endif
