// ref_attn.cc: KV append and attention of the reference, with the tag checks around each pass over an item's pages.
#include <algorithm>

#include "ref.h"
#include "ref_dot.h"
#include "ref_math.h"
#include "ref_quant.h"

namespace lh {
namespace ref {

uint8_t *Ref::kv_row(const Seq &s, uint32_t pos, uint32_t layer, uint32_t kv, uint32_t head) const {
  const lh_model &m = cfg_.model;
  const size_t row = (size_t(layer * 2 + kv) * m.kv_heads + head) * kPageTokens + pos % kPageTokens;
  return s.page(pos / kPageTokens) + row * m.head_dim * elem_;
}

const float *Ref::load(const uint8_t *row, float *buf) const {
  if (elem_ == 4) return reinterpret_cast<const float *>(row);
  const uint16_t *p = reinterpret_cast<const uint16_t *>(row);
  for (uint32_t d = 0; d < cfg_.model.head_dim; d++) buf[d] = bf16(p[d]);
  return buf;
}

// Stores K and V of token i of an item (row in the step's arrays) and adds their digests to sum.
void Ref::append_row(const Item &it, uint32_t i, uint32_t row, uint32_t layer, uint64_t sum[2]) {
  const lh_model &m = cfg_.model;
  const uint32_t pos = it.pos + i;
  for (uint32_t kv = 0; kv < 2; kv++)
    for (uint32_t head = 0; head < m.kv_heads; head++) {
      const float *src = (kv ? v_ : k_).data() + size_t(row) * kv_dim_ + head * m.head_dim;
      uint8_t *dst = kv_row(*it.seq, pos, layer, kv, head);
      uint16_t narrow[1024]; // head_dim at most
      if (elem_ == 2)
        for (uint32_t d = 0; d < m.head_dim; d++) narrow[d] = to_bf16(src[d]);
      const void *bytes = elem_ == 2 ? static_cast<const void *>(narrow) : src;
      memcpy(dst, bytes, m.head_dim * elem_);
      if (it.sums) add_row(cfg_.keys, row_index(m.layers, m.kv_heads, pos % kPageTokens, layer, kv, head), bytes, sum);
    }
}

void Ref::append(const Step &st, uint32_t layer) {
  uint32_t row = 0;
  for (uint32_t n = 0; n < st.n; row += st.items[n].count, n++) {
    const Item &it = st.items[n];
    for (uint32_t i = 0; i < it.count;) {
      const uint32_t place = (it.pos + i) / kPageTokens, end = std::min(it.count, (place + 1) * kPageTokens - it.pos);
      uint64_t sum[2] = {0, 0};
      if (!it.seq->poisoned && append_begin(*it.seq, place)) {
        for (uint32_t k = i; k < end; k++) append_row(it, k, row + k, layer, sum);
        append_fence();
        append_end(*it.seq, place);
        it.add_digest(place, sum);
      }
      i = end;
    }
  }
}

// One query row and head: all keys up to its own position.
void Ref::attend_row(const Seq &s, uint32_t pos, uint32_t row, uint32_t head, uint32_t layer, float *score) {
  const lh_model &m = cfg_.model;
  const uint32_t dim = m.head_dim, kvh = head / (m.heads / m.kv_heads);
  const float *q = q_.data() + size_t(row) * q_dim_ + head * dim, scale = 1 / std::sqrt(float(dim));
  float *out = a_.data() + size_t(row) * q_dim_ + head * dim;
  float buf[1024], most = -HUGE_VALF, sum = 0;
  for (uint32_t t = 0; t <= pos; t++) {
    score[t] = dot(q, load(kv_row(s, t, layer, 0, kvh), buf), dim) * scale;
    most = std::max(most, score[t]);
  }
  for (uint32_t t = 0; t <= pos; t++) sum += score[t] = float(ref::exp(double(score[t]) - most));
  std::fill_n(out, dim, 0.0f);
  for (uint32_t t = 0; t <= pos; t++) {
    const float *v = load(kv_row(s, t, layer, 1, kvh), buf), p = score[t] / sum;
    for (uint32_t d = 0; d < dim; d++) out[d] += p * v[d];
  }
}

void Ref::attend(const Step &st, uint32_t layer) {
  uint32_t row = 0;
  for (uint32_t n = 0; n < st.n; row += st.items[n].count, n++) {
    const Item &it = st.items[n];
    Seq &s = *it.seq;
    const uint32_t end = it.pos + it.count, places = (end - 1) / kPageTokens + 1, heads = cfg_.model.heads;
    bool ours = !s.poisoned;
    for (uint32_t p = 0; p < places && !s.poisoned; p++) ours &= read_begin(s, p);
    if (!ours) continue;
    for (auto &score : scores_)
      if (score.size() < end) score.resize(size_t(places) * kPageTokens);
    team_.split(it.count * heads, [&](uint32_t first, uint32_t last, uint32_t thread) {
      float *score = scores_[thread].data();
      for (uint32_t i = first; i < last; i++) attend_row(s, it.pos + i / heads, row + i / heads, i % heads, layer, score);
    });
    read_fence();
    for (uint32_t p = 0; p < places; p++) read_end(s, p);
  }
}

} // namespace ref
} // namespace lh
