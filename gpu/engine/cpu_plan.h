// cpu_plan.h: a step's work cut into units, once, before any thread starts. Units decide who computes, never what.
#ifndef LH_CPU_PLAN_H_
#define LH_CPU_PLAN_H_
#include <cstdint>
#include <vector>

#include "internal.h"

namespace lh::cpu {

// One row of the step. chunks > 0: its attention comes as `chunks` partial results a kv head, from part on; else from a
// group of queries.
struct Row {
  uint32_t item, pos;
  int32_t token;
  uint32_t part, chunks;
};

// Rows of one item that go to one page.
struct Span {
  uint32_t item, place, row, rows;
};

// Attention of one kv head: one row over one chunk, or (group) the rows of a span over all pages up to theirs.
struct Unit {
  uint32_t item, head, row, rows;
  uint32_t chunk; // of a row
  uint32_t place; // of a group's span
  uint32_t part;  // of a row: number of its first Part in units of a kv head's query heads
  bool group;
};

struct Plan {
  std::vector<Row> rows;
  std::vector<Span> spans;
  std::vector<Unit> units;        // dearest first
  std::vector<uint32_t> wanted;   // rows whose logits are wanted
  std::vector<float *> logits;    // where each goes
  uint32_t parts = 0;             // for one query head
  bool single = false;            // one row an item: a row's unit of the last chunk appends it first

  void make(const Step &, uint32_t kv_heads, uint32_t vocab);
};

} // namespace lh::cpu
#endif
