// engine.h: the whole C surface of the gpu module. Every function
//   - returns 0 or a negative LH_E code and never throws, exits or prints;
//   - takes and returns flat values, or memory that the caller owns for the call;
//   - keeps no pointer to Go memory after it returns (weights, pools and tags are mapped memory, not Go memory).
//
// One engine = one model on one back end. Calls on one engine come from one thread at a time (the Go side locks).
//
// Sequences. The engine owns a sequence's length: `verified` rows at open, +1 for each row appended. A work item names
// the position that it starts at; any other than the length is a fault. The page table of a sequence is fixed at open.
//
// Guards. Every kernel that reads KV loads the tag of each page it reads (acquire) before the loads of a pass and again
// after them, and compares with the tag the sequence was opened with (sealed bit masked). Append checks before and
// after its stores, and needs the sealed bit clear. A mismatch is reported as lh_fault and poisons that sequence's
// output with NaN; no other sequence is touched, nothing traps. A sequence that met a foreign tag (READ, WRITE) stays
// poisoned: later steps append nothing and report its first record again. A wrong plan (LENGTH, PAGES) costs that step
// only: nothing is appended.
//
// Bits. A sequence's rows and logits do not depend on its companions, on chunk size or on the number of threads.
#ifndef LH_ENGINE_H_
#define LH_ENGINE_H_
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { LH_OK = 0, LH_EINVAL = -1, LH_ENOMEM = -2, LH_EUNSUPPORTED = -3, LH_EINTERNAL = -4 };

// ggml tensor types that we read (values are GGUF's).
enum { LH_F32 = 0, LH_F16 = 1, LH_Q4_0 = 2, LH_Q4_1 = 3, LH_Q8_0 = 8, LH_BF16 = 30 };

typedef struct {
  const void *data; // row after row, as in the file; NULL: absent
  uint32_t type;
  uint32_t rows; // output features
  uint32_t cols; // input features
} lh_tensor;

typedef struct {
  lh_tensor attn_norm, q, k, v, o, ffn_norm, gate, up, down;
} lh_layer;

typedef struct {
  uint32_t layers, embd, ffn, heads, kv_heads, head_dim, vocab;
  float rope_base, norm_eps;
  lh_tensor tok_embd, output_norm, output; // output.data NULL: tied to tok_embd
  const lh_layer *layer;                   // layers entries
} lh_model;

enum { LH_KV_BF16 = 0, LH_KV_F32 = 1 }; // F32 only on ref
enum { LH_BACKEND_REF = 0, LH_BACKEND_CPU = 1 };
enum { LH_SIMD_NONE = 0, LH_SIMD_AVX2 = 1, LH_SIMD_AVX512 = 2 };

typedef struct {
  uint32_t backend, simd; // simd 0 with cpu: the best that this machine has
  uint32_t kv;
  uint32_t threads; // 0: 1
  uint32_t max_tokens; // most rows of one step
  uint32_t max_seqs;   // most open sequences
  uint32_t guards;     // 1: tag checks and page digests on
  const void *packed;  // from lh_pack; NULL for ref
  size_t packed_bytes;
  const uint32_t *digest_keys; // see pagesum: page keys (nh, rows), then the logit keys for vocab; copied
  size_t digest_words;
} lh_options;

typedef struct lh_engine lh_engine;

// What this machine has: bit i set = LH_SIMD_i can run. Compiled-in paths only.
uint32_t lh_simd(void);

// Packed weights of the cpu back end (16-column groups, see cpu_pack). Same bytes for every SIMD path. A change of the
// format raises the version, which is in the name of cached files.
enum { LH_PACK_VERSION = 1 };
size_t lh_pack_bytes(const lh_model *);
int lh_pack(const lh_model *, void *out, size_t bytes, uint32_t threads, char *err, int errcap);

int lh_open(const lh_options *, const lh_model *, lh_engine **out, char *err, int errcap);
void lh_close(lh_engine *);

// An attach handle: pool memory and its read-only tags. Closing it closes its sequences.
int lh_pool_open(lh_engine *, void *base, uint64_t page_bytes, uint32_t pages, const uint64_t *tags, uint32_t *pool,
                 char *err, int errcap);
int lh_pool_close(lh_engine *, uint32_t pool);

// digests: running digest state is kept per open page; a page that holds verified rows and will be appended to
// starts from start_digest (16 bytes as two words; NULL when verified % 64 == 0).
int lh_seq_open(lh_engine *, uint32_t pool, uint32_t verified, const uint32_t *pages, const uint64_t *tags,
                uint32_t n_pages, const uint64_t *start_digest, uint32_t *seq, char *err, int errcap);
int lh_seq_close(lh_engine *, uint32_t seq);

// Turns the guards on for one sequence without rows, in an engine that was opened without them.
int lh_seq_guard(lh_engine *, uint32_t seq);

enum { LH_WANT_NONE = 0, LH_WANT_LAST = 1, LH_WANT_ALL = 2 };

typedef struct {
  uint32_t seq;
  uint32_t pos;   // must equal the sequence's length
  uint32_t count; // rows to append, >= 1; tokens are taken in order from the step's token array
  uint32_t want;  // LH_WANT_*: logits
} lh_work;

typedef struct {
  uint32_t length;  // rows appended so far, counted by the engine
  uint32_t faults;  // records of this sequence in this step; > 0: its logits are NaN
  uint32_t logits;  // index of its first logits row in the step's logits array
  uint32_t n_logits;
  uint32_t bad;     // 1: NaN or Inf among its logits
  uint32_t pad;
} lh_result;

typedef struct {
  uint32_t seq, place, rows, pad; // place of the page in the sequence; rows in it so far
  uint64_t digest[2];
} lh_page_digest;

enum { LH_FAULT_READ = 1, LH_FAULT_WRITE = 2, LH_FAULT_LENGTH = 3, LH_FAULT_PAGES = 4 };

typedef struct {
  uint32_t kind, seq, page, pad; // LENGTH: page = engine's length, want = plan's pos
  uint64_t want, got;
} lh_fault;

// One step. results has n_work entries. logits: row-major [row][vocab] f32, logits_digest two words a row (NH over the
// row's bits, see pagesum.Logits). page_digests: pages touched in this step. n_digests, n_faults: out counts; faults
// over cap_faults are counted in results only.
// EINVAL leaves every sequence as it was.
int lh_step(lh_engine *, const lh_work *work, uint32_t n_work, const int32_t *tokens, uint32_t n_tokens,
            lh_result *results, float *logits, uint32_t logits_rows, uint64_t *logits_digest,
            lh_page_digest *page_digests, uint32_t cap_digests, uint32_t *n_digests, lh_fault *faults,
            uint32_t cap_faults, uint32_t *n_faults, char *err, int errcap);

// Digest of one page, gathered from the physical layout (rows: 1..64; keys: the page's at least; blocked: its row keys as
// [layer][kv head][K|V][64 tokens]). nonzero: how many of the rows' tokens have any bit set, in any layer and head. With
// copy, the whole page is copied there, and the digest is of the bytes that the copy got.
int lh_page_sum(uint32_t backend, uint32_t kv, uint32_t layers, uint32_t kv_heads, uint32_t head_dim, const void *page,
                void *copy, uint32_t rows, const uint32_t *keys, size_t words, const uint64_t *blocked,
                uint64_t digest[2], uint32_t *nonzero);

#ifdef __cplusplus
}
#endif
#endif
