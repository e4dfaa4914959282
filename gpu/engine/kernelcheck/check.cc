#include "check.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "../cpu_kernels.h"
#include "../cpu_pack.cc" // pack_group, as the back end packs
#include "../ref_quant.h"
#include "scalar.h"

namespace lh {
int fail(int code, char *, int, const char *, ...) { return code; }
} // namespace lh

namespace {

using namespace lh;
using namespace lh::cpu;

const Kernels *path(uint32_t simd) {
  if (!lh_check_has(simd)) return nullptr;
  return simd == LH_SIMD_AVX2 ? &kAvx2 : &kAvx512;
}

template <class T> class Memory {
 public:
  explicit Memory(size_t n) : p_(static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) + 127) / 64 * 64))) {}
  ~Memory() { std::free(p_); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  T *get() const { return p_; }

 private:
  T *p_;
};

// Quantised rows with their memory.
struct Rows {
  Rows(uint32_t rows, uint32_t cols, uint32_t max_tile)
      : q(size_t(rows) * cols), d(size_t(rows) * cols / 32), dsum(size_t(rows) * cols / 32), sum(size_t(rows) * cols / 32) {
    uint32_t tiles = (rows + max_tile - 1) / max_tile;
    act = {q.get(), d.get(), dsum.get(), sum.get(), rows, cols / 32, (rows + tiles - 1) / tiles};
  }
  size_t at(uint32_t row, uint32_t block) const {
    uint32_t t = row / act.tile * act.tile, n = std::min(act.tile, act.rows - t);
    return size_t(t) * act.blocks + size_t(block) * n + (row - t);
  }
  int64_t differing(uint32_t row, const std::vector<scalar::Block> &want) const {
    int64_t n = 0;
    for (uint32_t b = 0; b < act.blocks; b++) {
      size_t i = at(row, b);
      n += !scalar::same(act.d[i], want[b].d) + !scalar::same(act.dsum[i], want[b].dsum) + (act.sum[i] != want[b].sum);
      for (int j = 0; j < 32; j++) n += act.q[32 * i + j] != want[b].q[j];
    }
    return n;
  }
  Memory<int8_t> q;
  Memory<float> d, dsum;
  Memory<int32_t> sum;
  Act act;
};

// A matrix as a GGUF file has it, and packed.
struct Matrix {
  Matrix(uint32_t type, uint32_t rows, uint32_t cols, scalar::Random &rng) : raw(size_t(rows) * cols / 32 * source_block_bytes(type)) {
    for (uint8_t &b : raw) b = uint8_t(rng.next() >> 8);
    size_t step = source_block_bytes(type);
    for (size_t i = 0; i < raw.size(); i += step) { // scales that are numbers
      raw[i + 1] = uint8_t(0x20 | (raw[i + 1] & 0x87));
      if (type == LH_Q4_1) raw[i + 3] = uint8_t(0x28 | (raw[i + 3] & 0x87));
      if (type == LH_Q8_0)
        for (size_t j = 2; j < step; j++) raw[i + j] = raw[i + j] == 0x80 ? 0x81 : raw[i + j];
    }
    tensor = {raw.data(), type, rows, cols};
  }
  const uint8_t *block(uint32_t row, uint32_t b) const {
    return raw.data() + (size_t(row) * tensor.cols / 32 + b) * source_block_bytes(tensor.type);
  }
  // One output feature in the stated order.
  float dot(uint32_t row, const std::vector<scalar::Block> &x) const {
    float acc = 0;
    for (uint32_t b = 0; b < x.size(); b++) {
      const uint8_t *p = block(row, b);
      int sum = 0;
      for (int i = 0; i < 32; i++) {
        int w = tensor.type == LH_Q8_0 ? int8_t(p[2 + i])
                                       : (p[(tensor.type == LH_Q4_1 ? 4 : 2) + i % 16] >> (i / 16 * 4) & 15) - (tensor.type == LH_Q4_0 ? 8 : 0);
        sum += w * x[b].q[i];
      }
      acc = std::fma(float(sum), ref::half(p) * x[b].d, acc);
      if (tensor.type == LH_Q4_1) acc = std::fma(ref::half(p + 2), x[b].dsum, acc);
    }
    return acc;
  }
  std::vector<uint8_t> raw;
  lh_tensor tensor;
};

struct PackedMatrix {
  PackedMatrix(std::initializer_list<const Matrix *> parts) : bytes(0) {
    const lh_tensor &t = (*parts.begin())->tensor;
    mat = place(t, uint32_t(parts.size()), &bytes);
    memory = std::make_unique<Memory<uint8_t>>(bytes + 8192);
    uint32_t n = uint32_t(parts.size()), part = 0;
    for (const Matrix *m : parts) {
      for (uint32_t g = 0; g < mat.groups / n; g++)
        pack_group(m->tensor, g, memory->get() + size_t(part + n * g) * mat.group_bytes, mat.group_bytes);
      part++;
    }
    mat.data = memory->get();
  }
  size_t bytes;
  std::unique_ptr<Memory<uint8_t>> memory;
  Mat mat;
};

std::vector<float> gauss(size_t n, scalar::Random &rng) {
  std::vector<float> v(n);
  for (float &x : v) x = rng.gauss();
  return v;
}

float bf16(float x) { return ref::bf16(ref::to_bf16(x)); }

// A sequence's head blocks, and the same K and V as rows.
struct Cache {
  // sparse: most weights underflow, and of a third of the pages every other row of V is 0, or all are.
  Cache(const Kernels &k, uint32_t rows, scalar::Random &rng, bool sparse = false) : blocks(size_t(rows + 63) / 64 * kHeadBlock) {
    memset(blocks.get(), 0xff, size_t(rows + 63) / 64 * kHeadBlock); // rows that were never written hold NaN
    for (uint32_t t = 0; t < rows; t++) {
      keys.push_back(gauss(64, rng));
      values.push_back(gauss(64, rng));
      if (sparse) {
        for (float &x : keys[t]) x *= 16;
        if (t / 64 % 3 == 1 && (t % 2 || t / 64 % 2)) values[t].assign(64, 0);
      }
      k.append(keys[t].data(), values[t].data(), block(t / 64), t % 64, nullptr, nullptr, 0, 0, nullptr);
      for (float &x : keys[t]) x = bf16(x);
      for (float &x : values[t]) x = bf16(x);
    }
  }
  uint8_t *block(uint32_t place) const { return blocks.get() + place * kHeadBlock; }
  Memory<uint8_t> blocks;
  std::vector<std::vector<float>> keys, values;
};

int64_t differing(const float *a, const float *b, size_t n) {
  int64_t d = 0;
  for (size_t i = 0; i < n; i++) d += !scalar::same(a[i], b[i]);
  return d;
}

std::vector<float> attend(const Cache &c, const float *q, uint32_t keys) {
  std::vector<float> out(64);
  scalar::attend(
      q, keys, [&](uint32_t k) { return c.keys[k].data(); }, [&](uint32_t k) { return c.values[k].data(); }, out.data());
  return out;
}

} // namespace

int lh_check_has(uint32_t simd) {
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (simd == LH_SIMD_AVX2) return avx2;
#ifdef LH_EMULATE_AVX512
  return avx2;
#else
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#endif
}

int64_t lh_check_gemm(uint32_t simd, uint32_t type, uint32_t rows, uint32_t cols, uint32_t n, uint64_t seed) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  Matrix m(type, n, cols, rng);
  PackedMatrix w({&m});
  std::vector<float> x = gauss(size_t(rows) * cols, rng);
  if (rows > 1) std::fill_n(x.begin() + cols, 32, 0.0f); // a block of zeros
  Rows act(rows, cols, k->max_tile);
  k->quantise(x.data(), cols, act.act, 0, rows);
  Memory<uint8_t> scratch(gemm_scratch(cols / 32));
  std::vector<float> out(size_t(rows) * w.mat.groups * 16);
  size_t ldo = size_t(w.mat.groups) * 16;
  uint32_t half = w.mat.groups / 2; // as two threads do
  k->gemm(w.mat, act.act, out.data(), ldo, 0, half, scratch.get());
  k->gemm(w.mat, act.act, out.data(), ldo, half, w.mat.groups, scratch.get());
  int64_t bad = 0;
  for (uint32_t r = 0; r < rows; r++) {
    std::vector<scalar::Block> row = scalar::quantise_row(&x[size_t(r) * cols], cols);
    bad += act.differing(r, row);
    for (uint32_t c = 0; c < n; c++) bad += !scalar::same(out[r * ldo + c], m.dot(c, row));
  }
  return bad;
}

int64_t lh_check_norm(uint32_t simd, uint32_t rows, uint32_t cols, uint64_t seed) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  std::vector<float> x = gauss(size_t(rows) * cols, rng), w = gauss(cols, rng);
  Rows act(rows, cols, k->max_tile);
  uint32_t half = rows / 2;
  k->norm_quantise(x.data(), cols, nullptr, w.data(), 1e-5f, act.act, 0, half);
  k->norm_quantise(x.data(), cols, nullptr, w.data(), 1e-5f, act.act, half, rows);
  int64_t bad = 0;
  for (uint32_t r = 0; r < rows; r++)
    bad += act.differing(r, scalar::quantise_row(scalar::norm(&x[size_t(r) * cols], w.data(), 1e-5f, cols).data(), cols));
  return bad;
}

int64_t lh_check_gate_up(uint32_t simd, uint32_t type, uint32_t rows, uint32_t cols, uint32_t ffn, uint64_t seed) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  Matrix gate(type, ffn, cols, rng), up(type, ffn, cols, rng);
  PackedMatrix w({&gate, &up});
  std::vector<float> x = gauss(size_t(rows) * cols, rng);
  Rows act(rows, cols, k->max_tile), hidden(rows, ffn, k->max_tile);
  k->quantise(x.data(), cols, act.act, 0, rows);
  Memory<uint8_t> scratch(gemm_scratch(cols / 32));
  k->gate_up(w.mat, act.act, hidden.act, 0, ffn / 64, scratch.get());
  k->gate_up(w.mat, act.act, hidden.act, ffn / 64, ffn / 32, scratch.get());
  int64_t bad = 0;
  for (uint32_t r = 0; r < rows; r++) {
    std::vector<scalar::Block> row = scalar::quantise_row(&x[size_t(r) * cols], cols);
    std::vector<float> h(ffn);
    for (uint32_t c = 0; c < ffn; c++) h[c] = scalar::silu_mul(gate.dot(c, row), up.dot(c, row));
    bad += hidden.differing(r, scalar::quantise_row(h.data(), ffn));
  }
  return bad;
}

int64_t lh_check_append(uint32_t simd, uint32_t t, uint64_t seed) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  std::vector<float> key = gauss(64, rng), value = gauss(64, rng), turn = gauss(128, rng);
  std::vector<uint32_t> keys(34 + 4);
  for (uint32_t &w : keys) w = uint32_t(rng.next() >> 16);
  float turned[64], want[64];
  k->rope(key.data(), turn.data(), 0.18f, turned);
  scalar::rope(key.data(), turn.data(), 0.18f, want);
  int64_t bad = differing(turned, want, 64);
  Memory<uint16_t> block(kHeadBlock / 2);
  std::vector<uint16_t> expect(kHeadBlock / 2);
  for (size_t i = 0; i < kHeadBlock / 2; i++) block.get()[i] = expect[i] = uint16_t(rng.next() >> 20);
  uint64_t sums[2] = {1, 2}, sum[2] = {1, 2};
  k->append(turned, value.data(), reinterpret_cast<uint8_t *>(block.get()), t, keys.data(), keys.data() + 34, 0, 1, sums);
  uint16_t rows[2][64];
  for (uint32_t d = 0; d < 64; d++) {
    rows[0][d] = expect[d / 2 * 128 + t * 2 + d % 2] = ref::to_bf16(turned[d]);
    rows[1][d] = expect[4096 + t / 2 * 128 + d * 2 + t % 2] = ref::to_bf16(value[d]);
  }
  Keys names;
  names.words = 32, names.nh = keys.data(), names.row = keys.data() + 34;
  uint32_t words[2][32];
  memcpy(words, rows, sizeof words);
  add_row(names, 0, words[0], sum);
  add_row(names, 1, words[1], sum);
  for (size_t i = 0; i < kHeadBlock / 2; i++) bad += block.get()[i] != expect[i];
  return bad + (sums[0] != sum[0]) + (sums[1] != sum[1]);
}

int64_t lh_check_decode(uint32_t simd, uint32_t heads, uint32_t pos, uint64_t seed) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  Cache c(*k, pos + 1, rng);
  std::vector<float> q = gauss(size_t(heads) * 64, rng);
  uint32_t pages = pos / 64 + 1, chunks = (pages + kChunk - 1) / kChunk;
  Memory<Part> parts(size_t(chunks) * heads);
  for (uint32_t i = 0; i < chunks * heads; i++) part_init(parts.get() + i);
  for (uint32_t p = 0; p < pages; p++)
    k->one_page(parts.get() + p / kChunk * heads, reinterpret_cast<const float(*)[64]>(q.data()), heads, c.block(p),
                std::min(64u, pos + 1 - p * 64));
  int64_t bad = 0;
  for (uint32_t h = 0; h < heads; h++) {
    float out[64];
    k->merge(parts.get() + h, heads, chunks, out);
    bad += differing(out, attend(c, &q[size_t(h) * 64], pos + 1).data(), 64);
  }
  return bad;
}

// The group of 16 positions around pos, up to last: lanes after it are unused, and their rows were never written.
static int64_t check_prefill(uint32_t simd, uint32_t pos, uint32_t last, uint64_t seed, bool sparse) {
  const Kernels *k = path(simd);
  if (!k) return -1;
  scalar::Random rng(seed);
  const uint32_t first = pos / kLanes * kLanes, used = last - first + 1;
  Cache c(*k, last + 1, rng, sparse);
  std::vector<float> q = gauss(size_t(kLanes) * 64, rng);
  for (uint32_t i = 0; sparse && i < kLanes * 64; i++)
    if (i % 64 > 20 && i % 64 % 5) q[i] = 0;
  Memory<QueryGroup> g(1);
  Memory<WidePage> wide(1);
  k->group_init(g.get(), first);
  for (uint32_t i = 0; i < used; i++)
    for (uint32_t d = 0; d < 64; d++) g.get()->q[d][i] = q[i * 64 + d];
  k->group_ready(g.get());
  for (uint32_t p = 0; p <= last / 64; p++) {
    k->widen(c.block(p), wide.get(), std::min(64u, last + 1 - p * 64));
    k->group_page(g.get(), wide.get(), p * 64);
    if (p % kChunk == kChunk - 1 || p == last / 64) k->group_chunk(g.get());
  }
  int64_t bad = 0;
  for (uint32_t i = 0; i < used; i++) {
    float out[64];
    k->group_out(g.get(), i, out);
    std::vector<float> want = attend(c, &q[i * 64], first + i + 1);
    for (int d = 0; sparse && d < 64; d++) out[d] += 0.0f, want[d] += 0.0f; // zeros of either sign are one
    bad += differing(out, want.data(), 64);
  }
  return bad;
}

int64_t lh_check_prefill(uint32_t simd, uint32_t pos, uint64_t seed) { return check_prefill(simd, pos, pos | (kLanes - 1), seed, false); }
int64_t lh_check_partial_prefill(uint32_t simd, uint32_t pos, uint64_t seed) { return check_prefill(simd, pos, pos, seed, false); }
int64_t lh_check_sparse_prefill(uint32_t simd, uint32_t pos, uint64_t seed) { return check_prefill(simd, pos, pos | (kLanes - 1), seed, true); }
