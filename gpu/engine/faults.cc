// faults.cc: what a faults build adds to the engine; empty without LH_FAULTS.
#ifdef LH_FAULTS
#include <mutex>

#include "internal.h"

namespace lh {

std::atomic<uint32_t> g_guards_off{0};

namespace {

// A late writer keeps the bytes of a page as they were after a step, and where they lay.
struct Late {
  uint8_t *to = nullptr;
  std::vector<uint8_t> bytes;
};
std::mutex g_mu; // guards what is below
bool g_keep = false;
Late g_late;

} // namespace

void after_append(const Item &it) {
  std::lock_guard<std::mutex> lock(g_mu);
  if (!g_keep) return;
  g_keep = false;
  uint8_t *page = it.seq->page(0);
  g_late.to = page;
  g_late.bytes.assign(page, page + it.seq->pool->page_bytes);
}

} // namespace lh

extern "C" {

void lh_faults_off(uint32_t guards) { lh::g_guards_off.store(guards); }

// The next step that appends is kept.
void lh_faults_keep(void) {
  std::lock_guard<std::mutex> lock(lh::g_mu);
  lh::g_keep = true;
}

// Writes what was kept, whoever owns the page now; 0: nothing was.
int lh_faults_write_late(void) {
  std::lock_guard<std::mutex> lock(lh::g_mu);
  if (!lh::g_late.to) return 0;
  memcpy(lh::g_late.to, lh::g_late.bytes.data(), lh::g_late.bytes.size());
  lh::g_late.to = nullptr;
  return 1;
}
}
#endif
