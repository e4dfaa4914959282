// internal.h: between engine.cc and a back end.
//
// engine.cc owns pools, sequences, lengths, validation, results, page digests at the step's end, and NaN poison.
// A back end owns arithmetic and the KV bytes of a page. It gets only items that engine.cc has checked: the sequence is
// alive, pos is its length, and the page table has room for pos + count rows.
//
// In forward() a back end, for each item and layer:
//   append  append_begin(place) for each page written; on false store nothing there. Store the rows of positions
//           [pos, pos+count); add each row's digest by Item::add_digest. After stores, at the latest after all of the
//           step's: append_fence(); append_end(place) for each page written.
//   read    read_begin(place) for each page of positions [0, pos+count) before the loads of a pass; the loads;
//           read_fence(); read_end(place).
// The checks report by themselves and set Seq::poisoned; a back end may then skip the rest of that item. It must not
// skip, reorder or otherwise change the work of another. It writes logits of the wanted rows (all of them, poisoned
// items excepted: engine.cc fills those).
#ifndef LH_INTERNAL_H_
#define LH_INTERNAL_H_

// a*b+c is a multiplication and an addition unless the code says fma: bits must not depend on the compiler's taste. Go
// accepts no -ffp-contract in #cgo lines, so each file includes this one first.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "engine.h"

namespace lh {

constexpr uint32_t kPageTokens = 64;
constexpr uint64_t kSealedBit = 1ull << 40;
constexpr uint32_t kFaultsPerSeq = 16; // distinct records that one sequence keeps in one step
constexpr uint32_t kLogitBlock = 1024; // words

// Digest keys: W + 2 NH words, 64*layers*2*kv_heads row keys (lo, hi), 1026 NH words for logits, one key (lo, hi) for
// each 1024 logits. W = head_dim * element bytes / 4. Package pagesum has the definition.
struct Keys {
  uint32_t words = 0; // W
  const uint32_t *nh = nullptr, *row = nullptr, *logit_nh = nullptr, *logit_row = nullptr;
};

// What a back end is made from. It outlives the back end; model.layer and every tensor's data stay valid.
struct Config {
  lh_options opt{};   // threads, max_tokens and max_seqs are >= 1 here
  lh_model model{};   // layer points at engine-owned memory; output is tok_embd when the file ties them
  uint64_t page_bytes = 0;
  Keys keys;
};

struct Pool {
  uint8_t *base = nullptr;
  uint64_t page_bytes = 0;
  uint32_t pages = 0;
  const uint64_t *tags = nullptr; // read-only mapping; written by another process
};

struct Seq {
  Pool *pool = nullptr;
  uint32_t id = 0;
  uint32_t length = 0;
  bool guards = true;
  std::vector<uint32_t> pages; // by place
  std::vector<uint64_t> tags;  // as granted, sealed bit masked
  uint64_t open_digest[2] = {0, 0}; // of the rows in page length / 64

  std::atomic<bool> poisoned{false};
  std::mutex mu; // guards faults
  std::vector<lh_fault> faults; // of this step, distinct by (kind, page)

  uint8_t *page(uint32_t place) const { return pool->base + pool->page_bytes * pages[place]; }
  void report(uint32_t kind, uint32_t page, uint64_t want, uint64_t got); // any thread; engine.cc
};

struct Item {
  Seq *seq = nullptr;
  uint32_t pos = 0, count = 0;
  const int32_t *tokens = nullptr; // count of them, each < vocab
  uint32_t want = 0;
  uint32_t n_logits = 0;           // rows wanted: the last n_logits of count
  float *logits = nullptr;         // n_logits x vocab
  std::atomic<uint64_t> *sums = nullptr; // two lanes for each page touched; NULL with guards off

  // Adds digests of rows in the page at place; any thread. Sum many rows first: it is an atomic add.
  void add_digest(uint32_t place, const uint64_t d[2]) const {
    if (!sums) return;
    std::atomic<uint64_t> *s = sums + 2 * (place - pos / kPageTokens);
    s[0].fetch_add(d[0], std::memory_order_relaxed);
    s[1].fetch_add(d[1], std::memory_order_relaxed);
  }
};

struct Step {
  Item *items = nullptr;
  uint32_t n = 0;
  uint32_t rows = 0; // sum of count, <= max_tokens
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int forward(Step &) = 0; // LH_OK, or LH_EINTERNAL, which closes the step's sequences
  // Digest of one row of n logits and whether all are finite. The same bits from every back end.
  virtual void logit_digest(const float *row, uint32_t n, uint64_t out[2], bool *finite) const;
  const Keys *keys = nullptr; // set by engine.cc
};

// On failure they return an LH_E code with text in err.
int make_ref(const Config &, std::unique_ptr<Backend> *, char *err, int errcap);
int make_cpu(const Config &, std::unique_ptr<Backend> *, char *err, int errcap); // weak default: LH_EUNSUPPORTED

// Fast digest of a page in the cpu order (bf16), and with copy its copy; false where this machine cannot run it (weak
// default), then the portable one does. rowkeys: in the order of the blocks.
bool cpu_page_sum(const uint32_t *nh, const uint64_t *rowkeys, uint32_t blocks, uint32_t head_dim, const uint8_t *page,
                  uint8_t *copy, uint32_t rows, uint64_t digest[2], uint32_t *nonzero);

// ---- guards that a faults build can turn off one by one

enum { LH_OFF_READ = 1, LH_OFF_WRITE = 2, LH_OFF_LENGTH = 4 };
#ifdef LH_FAULTS
extern std::atomic<uint32_t> g_guards_off; // LH_OFF_*; faults.cc
inline bool guard_off(uint32_t which) { return g_guards_off.load(std::memory_order_relaxed) & which; }
void after_append(const Item &); // engine.cc's commit: a late writer may keep what it will write again; faults.cc
#else
constexpr bool guard_off(uint32_t) { return false; }
inline void after_append(const Item &) {}
#endif

// ---- tags

inline uint64_t load_tag(const Seq &s, uint32_t place) {
  return __atomic_load_n(s.pool->tags + s.pages[place], __ATOMIC_ACQUIRE);
}

// The pages at places [first, end) are the sequence's; it stops at the first that is not.
inline bool read_begin(Seq &s, uint32_t first, uint32_t end) {
  if (!s.guards || guard_off(LH_OFF_READ)) return true;
  const uint64_t *now = s.pool->tags, *want = s.tags.data();
  const uint32_t *pages = s.pages.data();
  for (uint32_t place = first; place < end; place++) {
    const uint64_t got = __atomic_load_n(now + pages[place], __ATOMIC_ACQUIRE);
    if ((got & ~kSealedBit) == want[place]) continue;
    s.report(LH_FAULT_READ, pages[place], want[place], got);
    return false;
  }
  return true;
}
inline bool read_begin(Seq &s, uint32_t place) { return read_begin(s, place, place + 1); }
inline void read_fence() { std::atomic_thread_fence(std::memory_order_acquire); }
inline bool read_end(Seq &s, uint32_t place) { return read_begin(s, place); }
inline bool read_end(Seq &s, uint32_t first, uint32_t end) { return read_begin(s, first, end); }

inline bool append_begin(Seq &s, uint32_t place) {
  if (!s.guards || guard_off(LH_OFF_WRITE)) return true;
  uint64_t got = load_tag(s, place);
  if (got == s.tags[place]) return true;
  s.report(LH_FAULT_WRITE, s.pages[place], s.tags[place], got);
  return false;
}
// Stores before, the tag's load after: the one order that x86 does not give by itself.
inline void append_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline bool append_end(Seq &s, uint32_t place) { return append_begin(s, place); }

// ---- digests

inline uint32_t row_index(uint32_t layers, uint32_t kv_heads, uint32_t t, uint32_t layer, uint32_t kv, uint32_t head) {
  return ((t * layers + layer) * 2 + kv) * kv_heads + head;
}

// Both lanes of NH over words (even, >= 2) 32-bit words.
inline void nh(const uint32_t *nhk, const uint32_t *w, uint32_t words, uint64_t out[2]) {
  uint64_t a = 0, b = 0;
  for (uint32_t i = 0; i < words; i += 2) {
    a += uint64_t(uint32_t(w[i] + nhk[i])) * uint32_t(w[i + 1] + nhk[i + 1]);
    b += uint64_t(uint32_t(w[i] + nhk[i + 2])) * uint32_t(w[i + 1] + nhk[i + 3]);
  }
  out[0] = a;
  out[1] = b;
}

// sum += row key * n, each lane; row keys are (lo, hi) words.
inline void weigh(const uint32_t *rowkeys, uint32_t index, const uint64_t n[2], uint64_t sum[2]) {
  uint64_t k = uint64_t(rowkeys[2 * index]) | uint64_t(rowkeys[2 * index + 1]) << 32;
  sum[0] += k * n[0];
  sum[1] += ((k << 32 | k >> 32) | 1) * n[1];
}

// Adds the digest of one row, given as its head_dim elements in logical order.
inline void add_row(const Keys &k, uint32_t index, const void *row, uint64_t sum[2]) {
  uint64_t n[2];
  nh(k.nh, static_cast<const uint32_t *>(row), k.words, n);
  weigh(k.row, index, n, sum);
}

// ---- errors

// Writes text to err (cut to errcap) and returns code.
int fail(int code, char *err, int errcap, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

} // namespace lh
#endif
