// engine.cc: open and close of engines, pools and sequences.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <new>

#include "state.h"

namespace lh {

int fail(int code, char *err, int errcap, const char *fmt, ...) {
  if (err && errcap > 0) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err, size_t(errcap), fmt, ap);
    va_end(ap);
  }
  return code;
}

void Seq::report(uint32_t kind, uint32_t page, uint64_t want, uint64_t got) {
  poisoned.store(true, std::memory_order_relaxed);
  std::lock_guard<std::mutex> lock(mu);
  for (const lh_fault &f : faults)
    if (f.kind == kind && f.page == page) return;
  if (faults.size() < kFaultsPerSeq) faults.push_back({kind, id, page, 0, want, got});
}

namespace {

int check_options(const lh_options &o, const lh_model &m, char *err, int cap) {
  if (o.backend > LH_BACKEND_CPU || o.kv > LH_KV_F32 || o.simd > LH_SIMD_AVX512)
    return fail(LH_EINVAL, err, cap, "back end %u, kv %u, simd %u", o.backend, o.kv, o.simd);
  if (o.kv == LH_KV_F32 && o.backend != LH_BACKEND_REF)
    return fail(LH_EUNSUPPORTED, err, cap, "f32 KV is for the reference back end only");
  if (o.threads > 1024 || o.max_tokens < 1 || o.max_tokens > 1u << 20 || o.max_seqs < 1 || o.max_seqs > kSlotMask + 1)
    return fail(LH_EINVAL, err, cap, "%u threads, %u tokens, %u sequences", o.threads, o.max_tokens, o.max_seqs);
  const uint32_t most = 1u << 24;
  for (uint32_t n : {m.layers, m.embd, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab})
    if (n < 1 || n > most) return fail(LH_EINVAL, err, cap, "a model dimension is %u", n);
  if (m.layers > 1024 || m.heads > 1024 || m.heads % m.kv_heads || m.head_dim > 1024 || m.head_dim % 4)
    return fail(LH_EUNSUPPORTED, err, cap, "%u layers, %u heads over %u kv heads, head_dim %u", m.layers, m.heads, m.kv_heads, m.head_dim);
  if (!(m.rope_base > 0) || !(m.norm_eps >= 0)) return fail(LH_EINVAL, err, cap, "rope base or norm eps");
  return LH_OK;
}

int check_tensors(const lh_model &m, char *err, int cap) {
  const uint32_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  if (!good(m.tok_embd, m.vocab, m.embd) || !good(m.output_norm, 1, m.embd) ||
      (m.output.data && !good(m.output, m.vocab, m.embd)))
    return fail(LH_EINVAL, err, cap, "embedding or output tensors do not fit the model");
  for (uint32_t i = 0; i < m.layers; i++) {
    const lh_layer &l = m.layer[i];
    if (!good(l.attn_norm, 1, m.embd) || !good(l.q, q, m.embd) || !good(l.k, kv, m.embd) || !good(l.v, kv, m.embd) ||
        !good(l.o, m.embd, q) || !good(l.ffn_norm, 1, m.embd) || !good(l.gate, m.ffn, m.embd) ||
        !good(l.up, m.ffn, m.embd) || !good(l.down, m.embd, m.ffn))
      return fail(LH_EINVAL, err, cap, "tensors of layer %u do not fit the model", i);
  }
  return LH_OK;
}

int set_keys(lh_engine *e, const lh_options &o, char *err, int cap) {
  const lh_model &m = e->cfg.model;
  const size_t words = size_t(m.head_dim) * (o.kv == LH_KV_F32 ? 4 : 2) / 4;
  const size_t row = size_t(2) * kPageTokens * m.layers * 2 * m.kv_heads;
  const size_t logit = 2 * ((size_t(m.vocab) + kLogitBlock - 1) / kLogitBlock);
  const size_t want = words + 2 + row + kLogitBlock + 2 + logit;
  if (!o.digest_keys || o.digest_words != want)
    return fail(LH_EINVAL, err, cap, "%zu words of digest keys, want %zu", o.digest_words, want);
  e->keys.assign(o.digest_keys, o.digest_keys + want);
  Keys &k = e->cfg.keys;
  k.words = uint32_t(words);
  k.nh = e->keys.data();
  k.row = k.nh + words + 2;
  k.logit_nh = k.row + row;
  k.logit_row = k.logit_nh + kLogitBlock + 2;
  e->cfg.opt.digest_keys = e->keys.data();
  return LH_OK;
}

int open(const lh_options &o, const lh_model &m, lh_engine **out, char *err, int cap) {
  if (int rc = check_options(o, m, err, cap)) return rc;
  if (!m.layer) return fail(LH_EINVAL, err, cap, "no layers");
  if (int rc = check_tensors(m, err, cap)) return rc;
  auto e = std::make_unique<lh_engine>();
  e->cfg.opt = o;
  e->cfg.opt.threads = std::max(o.threads, 1u);
  e->cfg.model = m;
  e->layers.assign(m.layer, m.layer + m.layers);
  e->cfg.model.layer = e->layers.data();
  if (!m.output.data) e->cfg.model.output = m.tok_embd;
  e->cfg.page_bytes = uint64_t(2) * kPageTokens * m.layers * m.kv_heads * m.head_dim * (o.kv == LH_KV_F32 ? 4 : 2);
  if (int rc = set_keys(e.get(), o, err, cap)) return rc;
  e->seqs.resize(o.max_seqs);
  e->items.resize(o.max_seqs);
  e->planned.resize(o.max_seqs);
  e->sum_pages = o.max_tokens / kPageTokens + 2 * o.max_seqs;
  e->sums.reset(new std::atomic<uint64_t>[size_t(2) * e->sum_pages]);
  auto make = o.backend == LH_BACKEND_CPU ? make_cpu : make_ref;
  if (int rc = make(e->cfg, &e->backend, err, cap)) return rc;
  e->backend->keys = &e->cfg.keys;
  *out = e.release();
  return LH_OK;
}

int open_seq(lh_engine *e, uint32_t pool_id, uint32_t verified, const uint32_t *pages, const uint64_t *tags,
             uint32_t n, const uint64_t *start, uint32_t *out, char *err, int cap) {
  const uint32_t pool_slot = pool_id & kSlotMask;
  if (pool_slot >= e->pools.size() || !e->pools[pool_slot].pool || e->pools[pool_slot].generation != pool_id >> kSlotBits)
    return fail(LH_EINVAL, err, cap, "the pool is closed");
  Pool *pool = e->pools[pool_slot].pool.get();
  if (n < 1 || n > pool->pages || !pages || !tags)
    return fail(LH_EINVAL, err, cap, "%u pages of a pool of %u", n, pool->pages);
  if (verified > uint64_t(n) * kPageTokens) return fail(LH_EINVAL, err, cap, "%u verified rows in %u pages", verified, n);
  const bool partial = verified % kPageTokens != 0;
  if (e->cfg.opt.guards && partial && !start)
    return fail(LH_EINVAL, err, cap, "%u verified rows end inside a page, and its digest is missing", verified);
  std::vector<uint32_t> sorted(pages, pages + n);
  std::sort(sorted.begin(), sorted.end());
  if (sorted.back() >= pool->pages) return fail(LH_EINVAL, err, cap, "page %u of %u", sorted.back(), pool->pages);
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return fail(LH_EINVAL, err, cap, "a page is named twice");
  for (uint32_t i = 0; i < n; i++)
    if (!(tags[i] >> 41)) return fail(LH_EINVAL, err, cap, "page %u is granted to nobody", pages[i]);

  auto slot = std::find_if(e->seqs.begin(), e->seqs.end(), [](const lh_engine::SeqSlot &s) { return !s.seq; });
  if (slot == e->seqs.end()) return fail(LH_ENOMEM, err, cap, "%zu sequences are open", e->seqs.size());
  auto s = std::make_unique<Seq>();
  s->pool = pool;
  s->length = verified;
  s->guards = e->cfg.opt.guards != 0;
  s->pages.assign(pages, pages + n);
  s->tags.assign(tags, tags + n);
  for (uint64_t &t : s->tags) t &= ~kSealedBit;
  if (partial && start) s->open_digest[0] = start[0], s->open_digest[1] = start[1];
  s->faults.reserve(kFaultsPerSeq);
  slot->generation = (slot->generation + 1) & kSlotMask;
  if (!slot->generation) slot->generation = 1;
  s->id = *out = slot->generation << kSlotBits | uint32_t(slot - e->seqs.begin());
  slot->step = 0;
  slot->first_fault = {};
  slot->seq = std::move(s);
  return LH_OK;
}

int open_pool(lh_engine *e, void *base, uint64_t page_bytes, uint32_t pages, const uint64_t *tags, uint32_t *out,
              char *err, int cap) {
  if (!base || !tags || !pages || uintptr_t(base) % 64 || uintptr_t(tags) % 8)
    return fail(LH_EINVAL, err, cap, "pool: no memory, or not aligned");
  if (page_bytes != e->cfg.page_bytes)
    return fail(LH_EINVAL, err, cap, "pool: pages of %llu bytes, this layout has %llu", (unsigned long long)page_bytes,
                (unsigned long long)e->cfg.page_bytes);
  auto p = std::make_unique<Pool>();
  p->base = static_cast<uint8_t *>(base);
  p->page_bytes = page_bytes;
  p->pages = pages;
  p->tags = tags;
  auto slot = std::find_if(e->pools.begin(), e->pools.end(), [](const lh_engine::PoolSlot &s) { return !s.pool; });
  if (slot == e->pools.end()) {
    if (e->pools.size() > kSlotMask) return fail(LH_ENOMEM, err, cap, "%zu pools are open", e->pools.size());
    slot = e->pools.insert(slot, lh_engine::PoolSlot());
  }
  slot->generation = (slot->generation + 1) & kSlotMask;
  if (!slot->generation) slot->generation = 1;
  slot->pool = std::move(p);
  *out = slot->generation << kSlotBits | uint32_t(slot - e->pools.begin());
  return LH_OK;
}

} // namespace
} // namespace lh

int lh_open(const lh_options *o, const lh_model *m, lh_engine **out, char *err, int cap) try {
  if (!o || !m || !out) return LH_EINVAL;
  *out = nullptr;
  return lh::open(*o, *m, out, err, cap);
} catch (const std::bad_alloc &) {
  return lh::fail(LH_ENOMEM, err, cap, "out of memory");
} catch (...) {
  return lh::fail(LH_EINTERNAL, err, cap, "open failed");
}

void lh_close(lh_engine *e) { delete e; }

int lh_pool_open(lh_engine *e, void *base, uint64_t page_bytes, uint32_t pages, const uint64_t *tags, uint32_t *pool,
                 char *err, int cap) try {
  return e && pool ? lh::open_pool(e, base, page_bytes, pages, tags, pool, err, cap) : int(LH_EINVAL);
} catch (const std::bad_alloc &) {
  return lh::fail(LH_ENOMEM, err, cap, "out of memory");
}

int lh_pool_close(lh_engine *e, uint32_t id) {
  const uint32_t slot = id & lh::kSlotMask;
  if (!e || slot >= e->pools.size() || !e->pools[slot].pool || e->pools[slot].generation != id >> lh::kSlotBits)
    return LH_EINVAL;
  for (lh_engine::SeqSlot &s : e->seqs)
    if (s.seq && s.seq->pool == e->pools[slot].pool.get()) s.seq.reset();
  e->pools[slot].pool.reset();
  return LH_OK;
}

int lh_seq_open(lh_engine *e, uint32_t pool, uint32_t verified, const uint32_t *pages, const uint64_t *tags, uint32_t n,
                const uint64_t *start, uint32_t *seq, char *err, int cap) try {
  return e && seq ? lh::open_seq(e, pool, verified, pages, tags, n, start, seq, err, cap) : int(LH_EINVAL);
} catch (const std::bad_alloc &) {
  return lh::fail(LH_ENOMEM, err, cap, "out of memory");
}

int lh_seq_guard(lh_engine *e, uint32_t id) {
  lh_engine::SeqSlot *s = e ? lh::find_seq(e, id) : nullptr;
  if (!s || s->seq->length) return LH_EINVAL;
  s->seq->guards = true;
  return LH_OK;
}

int lh_seq_close(lh_engine *e, uint32_t id) {
  lh_engine::SeqSlot *s = e ? lh::find_seq(e, id) : nullptr;
  if (!s) return LH_EINVAL;
  s->seq.reset();
  return LH_OK;
}
