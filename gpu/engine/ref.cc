// ref.cc: the parts of the reference forward pass that are not attention.
#include "ref.h"

#include <algorithm>

#include "ref_dot.h"
#include "ref_math.h"
#include "ref_quant.h"

namespace lh {
namespace ref {

Ref::Ref(const Config &cfg)
    : cfg_(cfg), elem_(cfg.opt.kv == LH_KV_F32 ? 4 : 2), q_dim_(cfg.model.heads * cfg.model.head_dim),
      kv_dim_(cfg.model.kv_heads * cfg.model.head_dim), team_(cfg.opt.threads), weights_(team_.size()),
      scores_(team_.size()) {
  const lh_model &m = cfg.model;
  const size_t rows = cfg.opt.max_tokens;
  for (uint32_t i = 0; i < m.head_dim / 2; i++) freq_.push_back(ref::exp(-2.0 * i / m.head_dim * ref::log(m.rope_base)));
  pos_.resize(rows);
  for (auto *v : {&x_, &h_, &y_}) v->resize(rows * m.embd);
  for (auto *v : {&q_, &a_}) v->resize(rows * q_dim_);
  for (auto *v : {&k_, &v_}) v->resize(rows * kv_dim_);
  for (auto *v : {&g_, &u_}) v->resize(rows * m.ffn);
  for (auto &w : weights_) w.resize(std::max({m.embd, m.ffn, q_dim_}));
}

// y[t][r] = w[r] . x[t]
void Ref::matmul(const lh_tensor &w, const float *x, uint32_t rows, float *y) {
  team_.split(w.rows, [&](uint32_t first, uint32_t last, uint32_t thread) {
    float *buf = weights_[thread].data();
    for (uint32_t r = first; r < last; r++) {
      row(w, r, buf);
      for (uint32_t t = 0; t < rows; t++) y[size_t(t) * w.rows + r] = dot(buf, x + size_t(t) * w.cols, w.cols);
    }
  });
}

void Ref::norm(const lh_tensor &w, const std::vector<float> &x, std::vector<float> &out, uint32_t rows) {
  const uint32_t n = w.cols;
  float *scale = weights_[0].data();
  row(w, 0, scale);
  for (uint32_t t = 0; t < rows; t++) {
    const float *in = x.data() + size_t(t) * n;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += double(in[i]) * in[i];
    const float inv = float(1 / std::sqrt(sum / n + double(cfg_.model.norm_eps)));
    for (uint32_t i = 0; i < n; i++) out[size_t(t) * n + i] = in[i] * inv * scale[i];
  }
}

void Ref::embed(const Step &st) {
  uint32_t t = 0;
  for (uint32_t i = 0; i < st.n; i++)
    for (uint32_t j = 0; j < st.items[i].count; j++, t++) {
      pos_[t] = st.items[i].pos + j;
      row(cfg_.model.tok_embd, uint32_t(st.items[i].tokens[j]), x_.data() + size_t(t) * cfg_.model.embd);
    }
}

// Rotates pairs (2i, 2i+1) of each head of q and k: GGUF's llama weights are permuted for that.
void Ref::rope(const Step &st) {
  const uint32_t dim = cfg_.model.head_dim;
  team_.split(st.rows, [&](uint32_t first, uint32_t last, uint32_t) {
    for (uint32_t t = first; t < last; t++)
      for (uint32_t i = 0; i < dim / 2; i++) {
        double sd, cd;
        sincos(pos_[t] * freq_[i], &sd, &cd);
        const float s = float(sd), c = float(cd);
        auto turn = [&](float *head) {
          const float a = head[2 * i], b = head[2 * i + 1];
          head[2 * i] = a * c - b * s;
          head[2 * i + 1] = b * c + a * s;
        };
        for (uint32_t h = 0; h < q_dim_; h += dim) turn(q_.data() + size_t(t) * q_dim_ + h);
        for (uint32_t h = 0; h < kv_dim_; h += dim) turn(k_.data() + size_t(t) * kv_dim_ + h);
      }
  });
}

void Ref::mlp(const lh_layer &l, uint32_t rows) {
  norm(l.ffn_norm, x_, h_, rows);
  matmul(l.gate, h_.data(), rows, g_.data());
  matmul(l.up, h_.data(), rows, u_.data());
  team_.split(rows, [&](uint32_t first, uint32_t last, uint32_t) {
    const size_t n = cfg_.model.ffn;
    for (size_t i = first * n; i < last * n; i++) g_[i] = float(g_[i] / (1 + ref::exp(-double(g_[i])))) * u_[i];
  });
  matmul(l.down, g_.data(), rows, y_.data());
  for (size_t i = 0; i < size_t(rows) * cfg_.model.embd; i++) x_[i] += y_[i];
}

// Wanted rows are packed to the front of h_, so that each weight row is dequantised once.
void Ref::logits(const Step &st) {
  const lh_model &m = cfg_.model;
  std::vector<float *> out;
  uint32_t t = 0;
  for (uint32_t i = 0; i < st.n; t += st.items[i].count, i++) {
    const Item &it = st.items[i];
    for (uint32_t j = 0; j < it.n_logits; j++) {
      const float *x = x_.data() + size_t(t + it.count - it.n_logits + j) * m.embd;
      std::copy(x, x + m.embd, y_.data() + out.size() * m.embd);
      out.push_back(it.logits + size_t(j) * m.vocab);
    }
  }
  norm(m.output_norm, y_, h_, uint32_t(out.size()));
  team_.split(m.vocab, [&](uint32_t first, uint32_t last, uint32_t thread) {
    float *buf = weights_[thread].data();
    for (uint32_t r = first; r < last && !out.empty(); r++) {
      row(m.output, r, buf);
      for (size_t k = 0; k < out.size(); k++) out[k][r] = dot(buf, h_.data() + k * m.embd, m.embd);
    }
  });
}

int Ref::forward(Step &st) {
  const lh_model &m = cfg_.model;
  embed(st);
  for (uint32_t layer = 0; layer < m.layers; layer++) {
    const lh_layer &l = m.layer[layer];
    norm(l.attn_norm, x_, h_, st.rows);
    matmul(l.q, h_.data(), st.rows, q_.data());
    matmul(l.k, h_.data(), st.rows, k_.data());
    matmul(l.v, h_.data(), st.rows, v_.data());
    rope(st);
    append(st, layer);
    attend(st, layer);
    matmul(l.o, a_.data(), st.rows, y_.data());
    for (size_t i = 0; i < size_t(st.rows) * m.embd; i++) x_[i] += y_[i];
    mlp(l, st.rows);
  }
  logits(st);
  return LH_OK;
}

} // namespace ref

int make_ref(const Config &cfg, std::unique_ptr<Backend> *out, char *err, int cap) {
  const lh_model &m = cfg.model;
  auto unread = [](const lh_tensor &t) { return ref::row_bytes(t.type, t.cols) == 0; };
  bool bad = unread(m.tok_embd) || unread(m.output) || unread(m.output_norm);
  for (uint32_t i = 0; i < m.layers; i++) {
    const lh_layer &l = m.layer[i];
    for (const lh_tensor *t : {&l.attn_norm, &l.q, &l.k, &l.v, &l.o, &l.ffn_norm, &l.gate, &l.up, &l.down}) bad |= unread(*t);
  }
  if (bad) return fail(LH_EUNSUPPORTED, err, cap, "a tensor's type or row length is not supported");
  *out = std::make_unique<ref::Ref>(cfg);
  return LH_OK;
}

} // namespace lh
