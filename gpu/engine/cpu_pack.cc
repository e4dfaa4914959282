#include "cpu_pack.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "internal.h"

namespace lh::cpu {
namespace {

constexpr uint64_t kMagic = 0x31304b43'5048'4cull; // "LHPCK01"
constexpr size_t kHeader = 64;

struct Header {
  uint64_t magic, bytes, shape;
};

const char *type_name(uint32_t type) {
  switch (type) {
  case LH_F32: return "F32";
  case LH_F16: return "F16";
  case LH_BF16: return "BF16";
  case LH_Q4_0: return "Q4_0";
  case LH_Q4_1: return "Q4_1";
  case LH_Q8_0: return "Q8_0";
  default: return "an unknown type";
  }
}

size_t source_block_bytes(uint32_t type) { return type == LH_Q8_0 ? 34 : type == LH_Q4_1 ? 20 : 18; }

bool packable(uint32_t type) { return type == LH_Q4_0 || type == LH_Q4_1 || type == LH_Q8_0; }

struct Need {
  const lh_tensor &tensor;
  const char *what;
  uint32_t rows, cols;
};

int check(const Need &n, char *err, int errcap) {
  const lh_tensor &t = n.tensor;
  if (!t.data) return fail(LH_EINVAL, err, errcap, "%s is absent", n.what);
  if (t.rows != n.rows || t.cols != n.cols)
    return fail(LH_EINVAL, err, errcap, "%s is %u x %u, want %u x %u", n.what, t.rows, t.cols, n.rows, n.cols);
  if (!packable(t.type))
    return fail(LH_EUNSUPPORTED, err, errcap, "%s is %s; the cpu back end has Q4_0, Q4_1 and Q8_0 matrices", n.what,
                type_name(t.type));
  return LH_OK;
}

Mat place(const lh_tensor &t, uint32_t halves, size_t *at) {
  Mat m;
  m.type = t.type;
  m.rows = t.rows * halves;
  m.groups = (t.rows + kGroup - 1) / kGroup * halves;
  m.blocks = t.cols / kBlock;
  m.group_bytes = (m.blocks + 1) / 2 * pair_bytes(t.type);
  m.offset = *at;
  *at += size_t(m.groups) * m.group_bytes;
  return m;
}

const lh_tensor &head_tensor(const lh_model &m) { return m.output.data ? m.output : m.tok_embd; }

uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x9e3779b97f4a7c15ull ^ (h >> 29); }

uint64_t shape_of(const lh_model &m, const Packed &p) {
  uint64_t h = 1;
  for (uint64_t v : {m.layers, m.embd, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab}) h = mix(h, v);
  for (const PackedLayer &l : p.layers)
    for (const Mat *w : {&l.q, &l.k, &l.v, &l.o, &l.gate_up, &l.down}) h = mix(h, w->type);
  return mix(h, p.head.type);
}

// Packs group g of one tensor (g counts that tensor's own groups).
void pack_group(const lh_tensor &t, uint32_t g, uint8_t *out, size_t bytes) {
  memset(out, 0, bytes);
  uint32_t blocks = t.cols / kBlock;
  size_t hb = header_bytes(t.type), qb = quant_bytes(t.type), pb = pair_bytes(t.type), sb = source_block_bytes(t.type);
  for (uint32_t c = 0; c < kGroup; c++) {
    uint32_t row = g * kGroup + c;
    if (row >= t.rows) return;
    const uint8_t *src = static_cast<const uint8_t *>(t.data) + size_t(row) * blocks * sb;
    for (uint32_t b = 0; b < blocks; b++, src += sb) {
      uint8_t *h = out + (b / 2) * pb + (b & 1) * hb, *q = out + (b / 2) * pb + 2 * hb + (b & 1) * qb;
      memcpy(h + 2 * c, src, 2);
      if (t.type == LH_Q4_1) memcpy(h + 32 + 2 * c, src + 2, 2);
      const uint8_t *qs = src + (t.type == LH_Q4_1 ? 4 : 2);
      if (t.type == LH_Q8_0)
        for (uint32_t i = 0; i < kBlock; i++) q[i / 4 * 64 + c * 4 + i % 4] = uint8_t(qs[i] + 128);
      else
        for (uint32_t j = 0; j < 4; j++) memcpy(q + j * 64 + c * 4, qs + 4 * j, 4);
    }
  }
}

struct Job {
  const lh_tensor *tensor;
  const Mat *mat;
  uint32_t first, step; // group g of the tensor is group first + step * g of the matrix
};

// Huge pages, where the memory is anonymous and not touched yet: a decode step reads all of it, and walks of 4 KiB
// pages cost a fifth of the time. Only a hint.
void advise_huge(void *p, size_t bytes) {
  constexpr uintptr_t kHuge = uintptr_t(2) << 20;
  uintptr_t first = (reinterpret_cast<uintptr_t>(p) + kHuge - 1) / kHuge * kHuge;
  uintptr_t last = (reinterpret_cast<uintptr_t>(p) + bytes) / kHuge * kHuge;
  if (first < last) (void)madvise(reinterpret_cast<void *>(first), last - first, MADV_HUGEPAGE);
}

std::vector<Job> jobs_of(const lh_model &m, const Packed &p) {
  std::vector<Job> jobs;
  for (uint32_t i = 0; i < m.layers; i++) {
    const lh_layer &l = m.layer[i];
    const PackedLayer &w = p.layers[i];
    for (Job j : {Job{&l.q, &w.q, 0, 1}, Job{&l.k, &w.k, 0, 1}, Job{&l.v, &w.v, 0, 1}, Job{&l.o, &w.o, 0, 1},
                  Job{&l.gate, &w.gate_up, 0, 2}, Job{&l.up, &w.gate_up, 1, 2}, Job{&l.down, &w.down, 0, 1}})
      jobs.push_back(j);
  }
  jobs.push_back({&head_tensor(m), &p.head, 0, 1});
  return jobs;
}

void run_job(const Job &j, uint8_t *base) {
  uint32_t groups = (j.tensor->rows + kGroup - 1) / kGroup;
  for (uint32_t g = 0; g < groups; g++)
    pack_group(*j.tensor, g, base + j.mat->offset + size_t(j.first + j.step * g) * j.mat->group_bytes,
               j.mat->group_bytes);
}

} // namespace

int plan_pack(const lh_model &m, Packed *p, char *err, int errcap) {
  if (m.head_dim != 64)
    return fail(LH_EUNSUPPORTED, err, errcap, "head_dim is %u; the cpu back end has 64", m.head_dim);
  if (!m.layers || !m.kv_heads || !m.vocab || m.heads % m.kv_heads)
    return fail(LH_EINVAL, err, errcap, "%u heads over %u kv heads, %u layers, vocabulary %u", m.heads, m.kv_heads,
                m.layers, m.vocab);
  if (!m.embd || m.embd % kBlock || !m.ffn || m.ffn % kBlock)
    return fail(LH_EUNSUPPORTED, err, errcap, "embd %u and ffn %u must be multiples of %u", m.embd, m.ffn, kBlock);
  uint32_t qd = m.heads * m.head_dim, kd = m.kv_heads * m.head_dim;
  size_t at = kHeader;
  p->layers.clear();
  for (uint32_t i = 0; i < m.layers; i++) {
    const lh_layer &l = m.layer[i];
    for (const Need &n : {Need{l.q, "attn_q", qd, m.embd}, Need{l.k, "attn_k", kd, m.embd},
                          Need{l.v, "attn_v", kd, m.embd}, Need{l.o, "attn_output", m.embd, qd},
                          Need{l.gate, "ffn_gate", m.ffn, m.embd}, Need{l.up, "ffn_up", m.ffn, m.embd},
                          Need{l.down, "ffn_down", m.embd, m.ffn}})
      if (int rc = check(n, err, errcap)) return rc;
    if (l.gate.type != l.up.type)
      return fail(LH_EUNSUPPORTED, err, errcap, "layer %u: ffn_gate is %s and ffn_up %s", i, type_name(l.gate.type),
                  type_name(l.up.type));
    PackedLayer w;
    w.q = place(l.q, 1, &at);
    w.k = place(l.k, 1, &at);
    w.v = place(l.v, 1, &at);
    w.o = place(l.o, 1, &at);
    w.gate_up = place(l.gate, 2, &at);
    w.down = place(l.down, 1, &at);
    p->layers.push_back(w);
  }
  if (int rc = check({head_tensor(m), "output", m.vocab, m.embd}, err, errcap)) return rc;
  p->head = place(head_tensor(m), 1, &at);
  p->bytes = at;
  return LH_OK;
}

int bind_pack(const lh_model &m, const void *blob, size_t bytes, Packed *p, char *err, int errcap) {
  if (int rc = plan_pack(m, p, err, errcap)) return rc;
  if (!blob || bytes != p->bytes || reinterpret_cast<uintptr_t>(blob) % 64)
    return fail(LH_EINVAL, err, errcap, "packed weights: %zu bytes, want %zu, aligned to 64", blob ? bytes : 0,
                p->bytes);
  const uint8_t *base = static_cast<const uint8_t *>(blob);
  Header h;
  memcpy(&h, base, sizeof h);
  if (h.magic != kMagic || h.bytes != bytes || h.shape != shape_of(m, *p))
    return fail(LH_EINVAL, err, errcap, "packed weights belong to another model or version");
  for (PackedLayer &l : p->layers)
    for (Mat *w : {&l.q, &l.k, &l.v, &l.o, &l.gate_up, &l.down}) w->data = base + w->offset;
  p->head.data = base + p->head.offset;
  return LH_OK;
}

} // namespace lh::cpu

extern "C" size_t lh_pack_bytes(const lh_model *m) {
  try {
    lh::cpu::Packed p;
    return m && lh::cpu::plan_pack(*m, &p, nullptr, 0) == LH_OK ? p.bytes : 0;
  } catch (const std::bad_alloc &) {
    return 0;
  }
}

extern "C" int lh_pack(const lh_model *m, void *out, size_t bytes, uint32_t threads, char *err, int errcap) try {
  using namespace lh::cpu;
  if (!m) return lh::fail(LH_EINVAL, err, errcap, "pack: no model");
  Packed p;
  if (int rc = plan_pack(*m, &p, err, errcap)) return rc; // before out: without memory, it tells why bytes are 0
  if (!out || bytes != p.bytes) return lh::fail(LH_EINVAL, err, errcap, "pack: %zu bytes given, want %zu", bytes, p.bytes);
  uint8_t *base = static_cast<uint8_t *>(out);
  advise_huge(out, bytes);
  std::vector<Job> jobs = jobs_of(*m, p);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < jobs.size();) run_job(jobs[i], base);
  };
  std::vector<std::thread> team;
  for (uint32_t i = 1; i < std::min<uint32_t>(threads, 64); i++) team.emplace_back(work);
  work();
  for (std::thread &t : team) t.join();
  Header h{kMagic, bytes, shape_of(*m, p)};
  memset(base, 0, kHeader);
  memcpy(base, &h, sizeof h);
  return LH_OK;
} catch (const std::exception &) {
  return lh::fail(LH_ENOMEM, err, errcap, "pack: out of memory or threads");
}
