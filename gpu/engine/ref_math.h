// ref_math.h: elementary functions with the same bits on every machine. libm chooses its code by CPU; this does not.
// Plain double arithmetic, no contraction; errors under 1e-15 relative (1e-15 absolute for sine and cosine).
#ifndef LH_REF_MATH_H_
#define LH_REF_MATH_H_
#include "internal.h"

#include <cmath>

namespace lh {
namespace ref {

constexpr double kLn2Hi = 0x1.62e42fefa0000p-1, kLn2Lo = 0x1.cf79abc9e3b3ap-40;

// 2^k for -1022 <= k <= 1023.
inline double pow2(int k) {
  uint64_t bits = uint64_t(k + 1023) << 52;
  double d;
  memcpy(&d, &bits, 8);
  return d;
}

// e^x; 0 below -700, +inf above 700. NaN stays NaN.
inline double exp(double x) {
  if (x != x) return x;
  if (x < -700) return 0;
  if (x > 700) return HUGE_VAL;
  const double k = std::floor(x * 1.4426950408889634 + 0.5);
  const double r = (x - k * kLn2Hi) - k * kLn2Lo; // |r| <= 0.35
  double p = 1;
  for (int i = 14; i >= 1; i--) p = 1 + p * r / i; // Taylor; the next term is under 1e-18
  return p * pow2(int(k));
}

// ln x, x > 0 and normal.
inline double log(double x) {
  int e = 0;
  double m = std::frexp(x, &e); // [0.5, 1)
  if (m < 0.7071067811865476) m *= 2, e--;
  const double s = (m - 1) / (m + 1), z = s * s; // |s| <= 0.172
  double p = 0;
  for (int i = 23; i >= 1; i -= 2) p = 1.0 / i + z * p; // atanh series
  return 2 * s * p + (e * kLn2Lo + e * kLn2Hi);
}

// Sine and cosine of 0 <= x <= 2^27.
inline void sincos(double x, double *sine, double *cosine) {
  // pi/2 in three parts; the first two have 25 bits, so that their products with k are exact.
  constexpr double p1 = 0x1.921fb50000000p+0, p2 = 0x1.110b460000000p-26, p3 = 0x1.1a62633145c07p-54;
  const double k = std::floor(x * 0.6366197723675814 + 0.5);
  const double r = ((x - k * p1) - k * p2) - k * p3, z = r * r; // |r| <= pi/4
  double s = 0, c = 0;
  for (int i = 19; i >= 3; i -= 2) s = (1 - s) * z / (i * (i - 1));
  for (int i = 20; i >= 2; i -= 2) c = (1 - c) * z / (i * (i - 1));
  s = r * (1 - s);
  c = 1 - c;
  switch (int64_t(k) & 3) {
  case 0: *sine = s, *cosine = c; break;
  case 1: *sine = c, *cosine = -s; break;
  case 2: *sine = -s, *cosine = -c; break;
  default: *sine = -c, *cosine = s; break;
  }
}

} // namespace ref
} // namespace lh
#endif
