#include "cpu_forward.h"

#include <algorithm>
#include <cmath>

#include "ref_quant.h"

namespace lh::cpu {
namespace {

// Share t of T of n things.
uint32_t share(uint32_t n, uint32_t t, uint32_t threads) { return uint32_t(uint64_t(n) * t / threads); }

void read_norm(const lh_tensor &t, float *out) { ref::row(t, 0, out); }

} // namespace

Forward::Forward(const Config &cfg, const Packed &packed, const Kernels &kernels)
    : cfg_(cfg), packed_(packed), k_(kernels), q_dim_(cfg.model.heads * kHeadDim), kv_dim_(cfg.model.kv_heads * kHeadDim),
      per_kv_(cfg.model.heads / cfg.model.kv_heads), ldx_(stride(cfg.model.embd)), ldy_(stride(q_dim_ + 2 * kv_dim_)),
      lda_(stride(q_dim_)), team_(cfg.opt.threads) {
  const lh_model &m = cfg_.model;
  size_t rows = std::max(cfg_.opt.max_tokens, kShared);
  uint32_t widest = std::max(m.embd, q_dim_), blocks = std::max(widest, m.ffn) / kBlock;
  norms_.resize(size_t(2 * m.layers + 1) * m.embd);
  for (uint32_t l = 0; l < m.layers; l++) {
    read_norm(m.layer[l].attn_norm, &norms_[size_t(2 * l) * m.embd]);
    read_norm(m.layer[l].ffn_norm, &norms_[size_t(2 * l + 1) * m.embd]);
  }
  read_norm(m.output_norm, &norms_[size_t(2 * m.layers) * m.embd]);
  for (uint32_t i = 0; i < kHeadDim / 2; i++) freq_.push_back(std::pow(double(m.rope_base), -2.0 * i / kHeadDim));
  x_ = Buffer<float>(rows * ldx_);
  y_ = Buffer<float>(rows * ldy_);
  out_ = Buffer<float>(rows * ldx_);
  attn_ = Buffer<float>(rows * lda_);
  turns_ = Buffer<float>(rows * 128);
  act_ = Activations(rows, widest);
  hidden_ = Activations(rows, m.ffn);
  tail_ = Buffer<float>(rows * kGroup);
  next_.reset(new std::atomic<uint32_t>[m.layers]);
  own_.resize(cfg_.opt.threads);
  for (Own &o : own_) {
    o.x = Buffer<float>(kShared * ldx_);
    o.attn = Buffer<float>(kShared * lda_);
    o.act = Activations(kShared, widest);
    o.scratch = Buffer<uint8_t>(gemm_scratch(blocks));
    o.groups = Buffer<QueryGroup>(size_t(kPage / kLanes) * per_kv_);
    o.wide = Buffer<WidePage>(1);
    o.q = Buffer<float>(size_t(per_kv_) * kHeadDim);
    o.parts = Buffer<Part>(per_kv_);
  }
}

int Forward::forward(Step &step) {
  try {
    plan_.make(step, cfg_.model.kv_heads, cfg_.model.vocab);
    size_t parts = size_t(plan_.parts) * per_kv_;
    if (parts > parts_room_) {
      parts_ = Buffer<Part>(parts);
      parts_room_ = parts;
    }
  } catch (const std::bad_alloc &) {
    return LH_EINTERNAL;
  }
  step_ = &step;
  rows_ = uint32_t(plan_.rows.size());
  repeated_ = rows_ <= kShared;
  for (uint32_t l = 0; l < cfg_.model.layers; l++) next_[l].store(0, std::memory_order_relaxed);
  team_.run([](void *self, uint32_t thread) { static_cast<Forward *>(self)->walk(thread); }, this);
  appended();
  return LH_OK;
}

// The fewest tiles, of even size.
uint32_t Forward::tile(uint32_t rows) const {
  uint32_t tiles = (rows + k_.max_tile - 1) / k_.max_tile;
  return (rows + tiles - 1) / tiles;
}

// The same column groups for a thread in every step, so that its caches keep what they can.
void Forward::split_gemm(const View &v, const Mat &w, const Act &act, float *out, size_t ldo) {
  k_.gemm(w, act, out, ldo, share(w.groups, v.thread, team_.size()), share(w.groups, v.thread + 1, team_.size()),
          v.own->scratch.get());
}

void Forward::embed(const View &v) {
  for (uint32_t r = v.r0; r < v.r1; r++)
    ref::row(cfg_.model.tok_embd, uint32_t(plan_.rows[r].token), v.x + ldx_ * r);
  // Cosines and sines of the step's positions, in double. A barrier comes before their first use.
  for (uint32_t r = share(rows_, v.thread, team_.size()); r < share(rows_, v.thread + 1, team_.size()); r++) {
    float *t = turns_.get() + size_t(128) * r;
    for (uint32_t i = 0; i < kHeadDim / 2; i++) {
      double angle = plan_.rows[r].pos * freq_[i];
      t[2 * i] = t[2 * i + 1] = float(std::cos(angle));
      t[65 + 2 * i] = float(std::sin(angle));
      t[64 + 2 * i] = -t[65 + 2 * i];
    }
  }
}

void Forward::project(const View &v, const PackedLayer &l, const Act &act) {
  split_gemm(v, l.q, act, y_.get(), ldy_);
  split_gemm(v, l.k, act, y_.get() + q_dim_, ldy_);
  split_gemm(v, l.v, act, y_.get() + q_dim_ + kv_dim_, ldy_);
}

void Forward::walk(uint32_t thread) {
  const lh_model &m = cfg_.model;
  const uint32_t threads = team_.size(), t = tile(rows_), tiles = (rows_ + t - 1) / t;
  Own &own = own_[thread];
  View v{&own, thread, x_.get(), attn_.get(), 0, rows_, &act_};
  if (repeated_) {
    v.x = own.x.get();
    v.attn = own.attn.get();
    v.act = &own.act;
  } else {
    v.r0 = std::min(rows_, share(tiles, thread, threads) * t);
    v.r1 = std::min(rows_, share(tiles, thread + 1, threads) * t);
  }
  const Act in = v.act->act(rows_, m.embd, t), mixed = v.act->act(rows_, q_dim_, t), hidden = hidden_.act(rows_, m.ffn, t);
  auto add_residual = [&] {
    for (uint32_t r = v.r0; r < v.r1; r++) k_.add(v.x + ldx_ * r, out_.get() + ldx_ * r, m.embd);
  };
  embed(v);
  for (uint32_t l = 0; l < m.layers; l++) {
    const PackedLayer &w = packed_.layers[l];
    const float *norm = &norms_[size_t(2 * l) * m.embd];
    k_.norm_quantise(v.x, ldx_, nullptr, norm, m.norm_eps, in, v.r0, v.r1);
    if (!repeated_) meet();
    project(v, w, in);
    meet();
    attend(v, l);
    meet();
    merge(v);
    k_.quantise(v.attn, lda_, mixed, v.r0, v.r1);
    if (!repeated_) meet();
    split_gemm(v, w.o, mixed, out_.get(), ldx_);
    meet();
    add_residual();
    k_.norm_quantise(v.x, ldx_, nullptr, norm + m.embd, m.norm_eps, in, v.r0, v.r1);
    if (!repeated_) meet();
    uint32_t blocks = m.ffn / kBlock;
    k_.gate_up(w.gate_up, in, hidden, share(blocks, thread, threads), share(blocks, thread + 1, threads), own.scratch.get());
    meet();
    split_gemm(v, w.down, hidden, out_.get(), ldx_);
    meet();
    add_residual();
  }
  if (!repeated_) meet();
  head(v);
}

// Logits of the wanted rows, in runs whose results lie one after another (all of them, unless an item was refused).
void Forward::head(const View &v) {
  const uint32_t n = uint32_t(plan_.wanted.size());
  for (uint32_t first = 0, end; first < n; first = end) {
    end = first + 1;
    while (end < n && plan_.logits[end] == plan_.logits[end - 1] + cfg_.model.vocab) end++;
    head_run(v, first, end - first);
  }
}

void Forward::head_run(const View &v, uint32_t first, uint32_t n) {
  const lh_model &m = cfg_.model;
  const uint32_t threads = team_.size(), t = tile(n), tiles = (n + t - 1) / t;
  const bool repeated = n <= kShared;
  const Act act = (repeated ? v.own->act : act_).act(n, m.embd, t);
  const uint32_t r0 = repeated ? 0 : std::min(n, share(tiles, v.thread, threads) * t);
  const uint32_t r1 = repeated ? n : std::min(n, share(tiles, v.thread + 1, threads) * t);
  if (!repeated) meet(); // the run before has read act_
  k_.norm_quantise(v.x, ldx_, &plan_.wanted[first], &norms_[size_t(2 * m.layers) * m.embd], m.norm_eps, act, r0, r1);
  if (!repeated) meet();
  const uint32_t whole = m.vocab / kGroup, rest = m.vocab % kGroup;
  float *out = plan_.logits[first];
  k_.gemm(packed_.head, act, out, m.vocab, share(whole, v.thread, threads), share(whole, v.thread + 1, threads),
          v.own->scratch.get());
  if (!rest || v.thread) return;
  k_.gemm(packed_.head, act, tail_.get() - size_t(kGroup) * whole, kGroup, whole, whole + 1, v.own->scratch.get());
  for (uint32_t r = 0; r < n; r++)
    std::copy_n(tail_.get() + size_t(kGroup) * r, rest, out + size_t(m.vocab) * r + size_t(kGroup) * whole);
}

void Forward::logit_digest(const float *row, uint32_t n, uint64_t out[2], bool *finite) const {
  *finite = true;
  out[0] = out[1] = 0;
  for (uint32_t at = 0, block = 0; at < n; at += kLogitBlock, block++) {
    alignas(64) uint32_t words[kLogitBlock] = {};
    std::memcpy(words, row + at, std::min(kLogitBlock, n - at) * sizeof(float));
    uint64_t lanes[2];
    k_.logit_block(keys->logit_nh, words, lanes, finite);
    weigh(keys->logit_row, block, lanes, out);
  }
}

} // namespace lh::cpu
