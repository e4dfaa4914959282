// cpu_attend.cc: append and attention of one layer, with the checks of pages around them.
#include <algorithm>

#include "cpu_forward.h"

namespace lh::cpu {
namespace {

const float kQueryScale = 0.125f * 1.44269504f; // log2(e) / sqrt(64)

// A page's rows are stored in quarters, so that few heads keep many threads busy: what waits at the barrier falls asleep.
constexpr uint32_t kQuarters = 4, kQuarter = kPage / kQuarters;
static_assert(kQuarter % 2 == 0, "the two tokens of a word have one writer");

// The rows of a span that lie in a quarter of its page; maybe none.
Span part_of(const Span &s, uint32_t first_pos, uint32_t quarter) {
  const uint32_t at = first_pos % kPage, low = std::max(at, quarter * kQuarter), high = std::min(at + s.rows, (quarter + 1) * kQuarter);
  return {s.item, s.place, s.row + low - at, high > low ? high - low : 0};
}

} // namespace

uint8_t *Forward::block(const Seq &s, uint32_t place, uint32_t layer, uint32_t head) const {
  return s.page(place) + (size_t(layer) * cfg_.model.kv_heads + head) * kHeadBlock;
}

// Stores a span's rows of one kv head.
bool Forward::append(uint32_t layer, const Span &span, uint32_t head) {
  if (!span.rows) return true;
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
  return true;
}

// One fence for all that the step has stored: one after each layer would wait for cold lines each time.
void Forward::appended() {
  append_fence();
  for (const Span &span : plan_.spans)
    if (!poisoned(span.item)) append_end(*step_->items[span.item].seq, span.place);
}

void Forward::attend(const View &v, uint32_t layer) {
  const uint32_t heads = cfg_.model.kv_heads, spans = uint32_t(plan_.spans.size());
  if (!plan_.single) {
    for (uint32_t i = v.thread; i < spans * heads * kQuarters; i += team_.size()) {
      const Span &span = plan_.spans[i / kQuarters / heads];
      append(layer, part_of(span, plan_.rows[span.row].pos, i % kQuarters), i / kQuarters % heads);
    }
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
  if (!read_begin(seq, first, end)) return;
  for (uint32_t place = first; place < end; place++)
    k_.one_page(parts, q, per_kv_, block(seq, place, layer, u.head), std::min(kPage, row.pos + 1 - place * kPage));
  read_fence();
  read_end(seq, first, end);
}

// Up to 64 rows, 16 to a group and a group for each query head, over every page up to their own. A page is widened once and
// the groups read the copy; a chunk's pages are checked before the first of them is read and after the last.
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
  for (uint32_t first = 0; first <= u.place; first += kChunk) {
    const uint32_t end = std::min(first + kChunk, u.place + 1);
    if (!read_begin(seq, first, end)) return;
    for (uint32_t place = first; place < end; place++) {
      k_.widen(block(seq, place, layer, u.head), wide, std::min(kPage, last + 1 - place * kPage));
      for (uint32_t i = 0; i < groups * per_kv_; i++) k_.group_page(g + i, wide, place * kPage);
    }
    read_fence();
    if (!read_end(seq, first, end)) return;
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
