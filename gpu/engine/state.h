// state.h: what an engine holds. Only engine.cc and step.cc see it.
#ifndef LH_STATE_H_
#define LH_STATE_H_
#include <vector>

#include "internal.h"

// Ids are generation << kSlotBits | slot, so that a closed one is refused instead of naming its successor.
struct lh_engine {
  lh::Config cfg;
  std::vector<lh_layer> layers;
  std::vector<uint32_t> keys;
  std::unique_ptr<lh::Backend> backend;

  struct PoolSlot {
    uint32_t generation = 0;
    std::unique_ptr<lh::Pool> pool;
  };
  struct SeqSlot {
    uint32_t generation = 0;
    uint64_t step = 0; // the last step that named it
    std::unique_ptr<lh::Seq> seq;
    lh_fault first_fault{}; // kind 0: none
  };
  std::vector<PoolSlot> pools;
  std::vector<SeqSlot> seqs;

  // Scratch of a step.
  uint64_t step = 0;
  std::vector<lh::Item> items;
  std::vector<uint32_t> planned; // work index of each item
  std::unique_ptr<std::atomic<uint64_t>[]> sums;
  uint32_t sum_pages = 0;
};

namespace lh {

constexpr uint32_t kSlotBits = 16, kSlotMask = (1u << kSlotBits) - 1;

// The open sequence of an id, or NULL.
inline lh_engine::SeqSlot *find_seq(lh_engine *e, uint32_t id) {
  uint32_t slot = id & kSlotMask;
  if (slot >= e->seqs.size()) return nullptr;
  lh_engine::SeqSlot &s = e->seqs[slot];
  return s.seq && s.seq->id == id ? &s : nullptr;
}

inline bool good(const lh_tensor &t, uint32_t rows, uint32_t cols) { return t.data && t.rows == rows && t.cols == cols; }

} // namespace lh
#endif
