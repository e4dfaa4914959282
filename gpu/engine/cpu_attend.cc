// cpu_attend.cc: append and attention of one layer, with the checks of pages around them.
#include <algorithm>

#include "cpu_forward.h"

namespace lh::cpu {
namespace {

const float kQueryScale = 0.125f * 1.44269504f; // log2(e) / sqrt(64)

} // namespace

uint8_t *Forward::block(const Seq &s, uint32_t place, uint32_t layer, uint32_t head) const {
  return s.page(place) + (size_t(layer) * cfg_.model.kv_heads + head) * kHeadBlock;
}

// Stores a span's rows of one kv head. One unit owns a (page, kv head), so that the two tokens of a word have one writer.
bool Forward::append(uint32_t layer, const Span &span, uint32_t head) {
  const Item &item = step_->items[span.item];
  const lh_model &m = cfg_.model;
  Seq &seq = *item.seq;
  if (poisoned(span.item) || !append_begin(seq, span.place)) return false;
  uint8_t *to = block(seq, span.place, layer, head);
  uint64_t sums[2] = {0, 0};
  for (uint32_t r = span.row; r < span.row + span.rows; r++) {
    const float *k = y_.get() + ldy_ * r + q_dim_ + head * kHeadDim, *v = k + kv_dim_;
    const uint32_t t = plan_.rows[r].pos % kPage;
    alignas(64) float turned[kHeadDim];
    k_.rope(k, turn(r), 1, turned);
    k_.append(turned, v, to, t, cfg_.keys.nh, cfg_.keys.row, row_index(m.layers, m.kv_heads, t, layer, 0, head),
              row_index(m.layers, m.kv_heads, t, layer, 1, head), item.sums ? sums : nullptr);
  }
  item.add_digest(span.place, sums);
  if (!seq.guards) return true;
  append_fence();
  return append_end(seq, span.place);
}

void Forward::attend(const View &v, uint32_t layer) {
  const uint32_t heads = cfg_.model.kv_heads, spans = uint32_t(plan_.spans.size());
  if (!plan_.single) {
    for (uint32_t i = v.thread; i < spans * heads; i += team_.size()) append(layer, plan_.spans[i / heads], i % heads);
    meet();
  }
  const uint32_t n = uint32_t(plan_.units.size());
  for (uint32_t i; (i = next_[layer].fetch_add(1, std::memory_order_relaxed)) < n;) {
    const Unit &u = plan_.units[i];
    if (u.group)
      attend_group(v, layer, u);
    else
      attend_row(v, layer, u);
  }
}

// One row over one chunk. Poisoned items leave their parts as they are: merge does not look at them.
void Forward::attend_row(const View &v, uint32_t layer, const Unit &u) {
  Seq &seq = *step_->items[u.item].seq;
  const Row &row = plan_.rows[u.row];
  if (plan_.single && u.chunk + 1 == row.chunks && !append(layer, plan_.spans[u.item], u.head)) return;
  if (poisoned(u.item)) return;
  auto *q = reinterpret_cast<float(*)[kHeadDim]>(v.own->q.get());
  for (uint32_t h = 0; h < per_kv_; h++)
    k_.rope(y_.get() + ldy_ * u.row + (size_t(u.head) * per_kv_ + h) * kHeadDim, turn(u.row), kQueryScale, q[h]);
  Part *parts = parts_.get() + size_t(u.part) * per_kv_;
  for (uint32_t h = 0; h < per_kv_; h++) part_init(parts + h);
  const uint32_t first = u.chunk * kChunk, end = std::min(first + kChunk, row.pos / kPage + 1);
  for (uint32_t place = first; place < end; place++) {
    if (!read_begin(seq, place)) return;
    k_.one_page(parts, q, per_kv_, block(seq, place, layer, u.head), std::min(kPage, row.pos + 1 - place * kPage));
    read_fence();
    if (!read_end(seq, place)) return;
  }
}

// Up to 64 rows, 16 to a group and a group for each query head, over every page up to their own. A page is widened once,
// between its two checks; the groups then read the copy.
void Forward::attend_group(const View &v, uint32_t layer, const Unit &u) {
  if (poisoned(u.item)) return;
  Seq &seq = *step_->items[u.item].seq;
  const uint32_t base = plan_.rows[u.row].pos, last = base + u.rows - 1;
  const uint32_t first_group = base / kLanes, groups = last / kLanes - first_group + 1;
  QueryGroup *g = v.own->groups.get();
  WidePage *wide = v.own->wide.get();
  for (uint32_t i = 0; i < groups * per_kv_; i++) k_.group_init(g + i, (first_group + i / per_kv_) * kLanes);
  for (uint32_t r = u.row; r < u.row + u.rows; r++) {
    const uint32_t pos = plan_.rows[r].pos, group = pos / kLanes - first_group;
    for (uint32_t h = 0; h < per_kv_; h++) {
      alignas(64) float q[kHeadDim];
      k_.rope(y_.get() + ldy_ * r + (size_t(u.head) * per_kv_ + h) * kHeadDim, turn(r), kQueryScale, q);
      for (uint32_t d = 0; d < kHeadDim; d++) g[group * per_kv_ + h].q[d][pos % kLanes] = q[d];
    }
  }
  for (uint32_t i = 0; i < groups * per_kv_; i++) k_.group_ready(g + i);
  for (uint32_t place = 0; place <= u.place; place++) {
    if (!read_begin(seq, place)) return;
    k_.widen(block(seq, place, layer, u.head), wide, std::min(kPage, last + 1 - place * kPage));
    read_fence();
    if (!read_end(seq, place)) return;
    for (uint32_t i = 0; i < groups * per_kv_; i++) k_.group_page(g + i, wide, place * kPage);
    if (place % kChunk == kChunk - 1 || place == u.place)
      for (uint32_t i = 0; i < groups * per_kv_; i++) k_.group_chunk(g + i);
  }
  for (uint32_t r = u.row; r < u.row + u.rows; r++) {
    const uint32_t pos = plan_.rows[r].pos, group = pos / kLanes - first_group;
    for (uint32_t h = 0; h < per_kv_; h++)
      k_.group_out(g + group * per_kv_ + h, pos % kLanes, attn_.get() + lda_ * r + (size_t(u.head) * per_kv_ + h) * kHeadDim);
  }
}

// Attention of this thread's rows as one row of all heads. A poisoned item's rows become zero: what it read goes nowhere.
void Forward::merge(const View &v) {
  for (uint32_t r = v.r0; r < v.r1; r++) {
    const Row &row = plan_.rows[r];
    float *out = v.attn + lda_ * r;
    if (poisoned(row.item)) {
      std::fill_n(out, q_dim_, 0.0f);
      continue;
    }
    for (uint32_t h = 0; row.chunks && h < cfg_.model.heads; h++) {
      const Part *parts = parts_.get() + size_t(row.part + h / per_kv_ * row.chunks) * per_kv_ + h % per_kv_;
      k_.merge(parts, per_kv_, row.chunks, out + h * kHeadDim);
    }
  }
}

} // namespace lh::cpu
