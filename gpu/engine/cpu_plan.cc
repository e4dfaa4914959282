#include "cpu_plan.h"

#include <algorithm>

#include "cpu_kernels.h"

namespace lh::cpu {
namespace {

// A group computes 16 lanes whatever it holds, so that few rows are cheaper one by one.
constexpr uint32_t kGroupRows = 8;

} // namespace

void Plan::make(const Step &step, uint32_t kv_heads, uint32_t vocab) {
  rows.clear(), spans.clear(), units.clear(), wanted.clear(), logits.clear();
  parts = 0;
  single = true;
  for (uint32_t i = 0; i < step.n; i++) {
    const Item &it = step.items[i];
    single &= it.count == 1;
    uint32_t first = uint32_t(rows.size());
    for (uint32_t j = 0; j < it.count; j++) rows.push_back({i, it.pos + j, it.tokens[j], 0, 0});
    for (uint32_t j = 0; j < it.n_logits; j++) {
      wanted.push_back(first + it.count - it.n_logits + j);
      logits.push_back(it.logits + size_t(j) * vocab);
    }
    for (uint32_t pos = it.pos; pos < it.pos + it.count;) {
      uint32_t place = pos / kPage, n = std::min((place + 1) * kPage, it.pos + it.count) - pos;
      spans.push_back({i, place, first + pos - it.pos, n});
      pos += n;
    }
  }
  for (const Span &s : spans) {
    if (s.rows >= kGroupRows) {
      for (uint32_t h = 0; h < kv_heads; h++) units.push_back({s.item, h, s.row, s.rows, 0, s.place, 0, true});
      continue;
    }
    for (uint32_t r = s.row; r < s.row + s.rows; r++) {
      Row &row = rows[r];
      row.part = parts;
      row.chunks = row.pos / (kPage * kChunk) + 1;
      for (uint32_t h = 0; h < kv_heads; h++)
        for (uint32_t c = 0; c < row.chunks; c++) units.push_back({s.item, h, r, 1, c, 0, parts + h * row.chunks + c, false});
      parts += kv_heads * row.chunks;
    }
  }
  std::stable_sort(units.begin(), units.end(),
                   [](const Unit &a, const Unit &b) { return a.group != b.group ? a.group : a.place > b.place; });
}

} // namespace lh::cpu
