// ref.h: the reference back end.
#ifndef LH_REF_H_
#define LH_REF_H_
#include <vector>

#include "internal.h"
#include "ref_team.h"

namespace lh {
namespace ref {

// Forward pass of a llama model in scalar f32 over dequantised weights. Weights stay mapped: a row is dequantised when
// it is used, once for all rows of the step.
//
// Orders, which make its numerics class:
//   dot       16 partial sums (element i in sum i mod 16), then 8+8, 4+4, 2+2, 1+1; no FMA
//   RMS norm  sum of squares in double, in order
//   softmax   keys in order: scores, their maximum, exp (double, rounded), their sum; then values, in order
class Ref : public Backend {
 public:
  explicit Ref(const Config &cfg);
  int forward(Step &st) override;

 private:
  void embed(const Step &st);
  void norm(const lh_tensor &w, const std::vector<float> &x, std::vector<float> &out, uint32_t rows);
  void matmul(const lh_tensor &w, const float *x, uint32_t rows, float *y);
  void rope(const Step &st);
  void append(const Step &st, uint32_t layer);
  void append_row(const Item &it, uint32_t i, uint32_t row, uint32_t layer, uint64_t sum[2]);
  void attend(const Step &st, uint32_t layer);
  void attend_row(const Seq &s, uint32_t pos, uint32_t row, uint32_t head, uint32_t layer, float *scores);
  void mlp(const lh_layer &l, uint32_t rows);
  void logits(const Step &st);

  // Address of one KV row: plain order.
  uint8_t *kv_row(const Seq &s, uint32_t pos, uint32_t layer, uint32_t kv, uint32_t head) const;
  const float *load(const uint8_t *row, float *buf) const; // as f32; buf unless it is f32 already

  const Config &cfg_;
  const uint32_t elem_, q_dim_, kv_dim_;
  Team team_;
  std::vector<double> freq_;         // of each pair
  std::vector<uint32_t> pos_;        // of each row
  std::vector<float> x_, h_, q_, k_, v_, a_, g_, u_, y_; // rows of the step
  std::vector<std::vector<float>> weights_, scores_;     // scratch of each thread
};

} // namespace ref
} // namespace lh
#endif
