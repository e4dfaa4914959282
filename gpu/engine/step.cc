// step.cc: one step. Validate (no effect), plan (faults of the plan), forward, settle (lengths, digests, poison).
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "state.h"

namespace lh {
namespace {

struct Out {
  lh_result *results;
  float *logits;
  uint64_t *logits_digest;
  lh_page_digest *digests;
  lh_fault *faults;
  uint32_t cap_faults, n_digests, n_faults;
};

uint32_t wanted(const lh_work &w) { return w.want == LH_WANT_ALL ? w.count : w.want == LH_WANT_LAST ? 1 : 0; }

uint32_t pages_touched(uint32_t pos, uint32_t count) { return (pos + count - 1) / kPageTokens - pos / kPageTokens + 1; }

// Everything that is EINVAL; changes nothing but the sequences' step marks.
int validate(lh_engine *e, const lh_work *work, uint32_t n_work, const int32_t *tokens, uint32_t n_tokens,
             uint32_t logits_rows, uint32_t cap_digests, char *err, int cap) {
  const lh_options &o = e->cfg.opt;
  if (n_work < 1 || n_work > o.max_seqs || n_tokens > o.max_tokens)
    return fail(LH_EINVAL, err, cap, "%u work items (most %u), %u tokens (most %u)", n_work, o.max_seqs, n_tokens, o.max_tokens);
  uint64_t count = 0, logits = 0, pages = 0;
  e->step++;
  for (uint32_t i = 0; i < n_work; i++) {
    const lh_work &w = work[i];
    lh_engine::SeqSlot *s = find_seq(e, w.seq);
    if (!s) return fail(LH_EINVAL, err, cap, "work %u: no such sequence", i);
    if (s->step == e->step) return fail(LH_EINVAL, err, cap, "work %u: its sequence is named twice", i);
    s->step = e->step;
    if (w.count < 1 || w.count > o.max_tokens || w.want > LH_WANT_ALL)
      return fail(LH_EINVAL, err, cap, "work %u: %u tokens, want %u", i, w.count, w.want);
    count += w.count;
    logits += wanted(w);
    if (s->seq->guards) pages += pages_touched(w.pos % kPageTokens, w.count);
  }
  if (count != n_tokens) return fail(LH_EINVAL, err, cap, "work items count %llu tokens of %u", (unsigned long long)count, n_tokens);
  if (logits > logits_rows || pages > cap_digests)
    return fail(LH_EINVAL, err, cap, "room for %u logits rows of %llu, and %u page digests of %llu", logits_rows,
                (unsigned long long)logits, cap_digests, (unsigned long long)pages);
  for (uint32_t i = 0; i < n_tokens; i++)
    if (tokens[i] < 0 || uint32_t(tokens[i]) >= e->cfg.model.vocab) return fail(LH_EINVAL, err, cap, "token %u is outside the vocabulary", i);
  return LH_OK;
}

// Whether work w may run; if not, its sequence holds the record that says why.
bool plan(lh_engine::SeqSlot &slot, const lh_work &w) {
  Seq &s = *slot.seq;
  const uint64_t room = uint64_t(s.pages.size()) * kPageTokens, need = uint64_t(w.pos) + w.count;
  s.faults.clear();
  if (slot.first_fault.kind) {
    s.faults.push_back(slot.first_fault);
  } else if (w.pos != s.length && !guard_off(LH_OFF_LENGTH)) {
    s.faults.push_back({LH_FAULT_LENGTH, s.id, s.length, 0, w.pos, s.length});
  } else if (need > room) {
    s.faults.push_back({LH_FAULT_PAGES, s.id, uint32_t(s.pages.size()), 0, need, room});
  }
  return s.faults.empty();
}

void poison(lh_engine *e, const lh_work &w, lh_engine::SeqSlot &slot, lh_result &r, Out &out) {
  Seq &s = *slot.seq;
  std::sort(s.faults.begin(), s.faults.end(),
            [](const lh_fault &a, const lh_fault &b) { return a.page != b.page ? a.page < b.page : a.kind < b.kind; });
  if (s.poisoned.load() && !slot.first_fault.kind) slot.first_fault = s.faults.front();
  r.faults = uint32_t(s.faults.size());
  for (const lh_fault &f : s.faults)
    if (out.n_faults < out.cap_faults) out.faults[out.n_faults++] = f;
  const size_t vocab = e->cfg.model.vocab;
  std::fill_n(out.logits + r.logits * vocab, wanted(w) * vocab, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(out.logits_digest + 2 * r.logits, 2 * wanted(w), 0);
  r.bad = wanted(w) > 0;
}

void commit(lh_engine *e, const Item &it, lh_result &r, Out &out) {
  Seq &s = *it.seq;
  s.length = it.pos + it.count; // pos was the length; a faults build may let the plan own it
  after_append(it);
  const uint32_t first = it.pos / kPageTokens, n = pages_touched(it.pos, it.count);
  for (uint32_t p = 0; it.sums && p < n; p++) {
    lh_page_digest &d = out.digests[out.n_digests++];
    d = {s.id, first + p, std::min(s.length - (first + p) * kPageTokens, kPageTokens), 0, {it.sums[2 * p].load(), it.sums[2 * p + 1].load()}};
    const bool open = d.rows < kPageTokens;
    s.open_digest[0] = open ? d.digest[0] : 0;
    s.open_digest[1] = open ? d.digest[1] : 0;
  }
  const uint32_t vocab = e->cfg.model.vocab;
  for (uint32_t i = 0; i < it.n_logits; i++) {
    bool finite = true;
    e->backend->logit_digest(it.logits + size_t(i) * vocab, vocab, out.logits_digest + 2 * (r.logits + i), &finite);
    if (!finite) r.bad = 1;
  }
}

int step(lh_engine *e, const lh_work *work, uint32_t n_work, const int32_t *tokens, Out &out, char *err, int cap) {
  Step st;
  st.items = e->items.data();
  uint32_t row = 0, logit = 0, sum_page = 0;
  for (uint32_t i = 0; i < n_work; i++) {
    lh_engine::SeqSlot &slot = *find_seq(e, work[i].seq);
    out.results[i] = {slot.seq->length, 0, logit, wanted(work[i]), 0, 0};
    if (plan(slot, work[i])) {
      Item &it = e->items[st.n];
      it = {slot.seq.get(), work[i].pos, work[i].count, tokens + row, work[i].want, wanted(work[i]),
            out.logits + size_t(logit) * e->cfg.model.vocab, nullptr};
      if (it.seq->guards) {
        it.sums = e->sums.get() + size_t(2) * sum_page;
        const uint32_t n = pages_touched(it.pos, it.count);
        for (uint32_t k = 0; k < 2 * n; k++) it.sums[k].store(k < 2 ? it.seq->open_digest[k] : 0, std::memory_order_relaxed);
        sum_page += n;
      }
      e->planned[st.n++] = i;
      st.rows += it.count;
    }
    row += work[i].count;
    logit += wanted(work[i]);
  }
  if (int rc = st.n ? e->backend->forward(st) : int(LH_OK)) {
    for (uint32_t k = 0; k < st.n; k++) find_seq(e, work[e->planned[k]].seq)->seq.reset();
    return fail(LH_EINTERNAL, err, cap, "the back end failed (%d); the step's sequences are closed", rc);
  }
  for (uint32_t i = 0, k = 0; i < n_work; i++) {
    lh_engine::SeqSlot &slot = *find_seq(e, work[i].seq);
    const bool ran = k < st.n && e->planned[k] == i;
    if (ran && !slot.seq->poisoned.load()) commit(e, st.items[k], out.results[i], out);
    else poison(e, work[i], slot, out.results[i], out);
    out.results[i].length = slot.seq->length;
    k += ran;
  }
  return LH_OK;
}

} // namespace
} // namespace lh

int lh_step(lh_engine *e, const lh_work *work, uint32_t n_work, const int32_t *tokens, uint32_t n_tokens,
            lh_result *results, float *logits, uint32_t logits_rows, uint64_t *logits_digest,
            lh_page_digest *page_digests, uint32_t cap_digests, uint32_t *n_digests, lh_fault *faults,
            uint32_t cap_faults, uint32_t *n_faults, char *err, int cap) try {
  if (!e || !work || !tokens || !results || !n_digests || !n_faults) return LH_EINVAL;
  *n_digests = *n_faults = 0;
  if (int rc = lh::validate(e, work, n_work, tokens, n_tokens, logits_rows, cap_digests, err, cap)) return rc;
  lh::Out out{results, logits, logits_digest, page_digests, faults, cap_faults, 0, 0};
  int rc = lh::step(e, work, n_work, tokens, out, err, cap);
  *n_digests = out.n_digests;
  *n_faults = out.n_faults;
  return rc;
} catch (const std::bad_alloc &) {
  return lh::fail(LH_ENOMEM, err, cap, "out of memory");
} catch (...) {
  return lh::fail(LH_EINTERNAL, err, cap, "step failed");
}
