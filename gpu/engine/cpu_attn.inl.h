// cpu_attn.inl.h: paged attention over bf16 K and V, with f32 arithmetic. Decode (lanes are keys, then dimensions) and
// prefill (lanes are queries) perform the same operations for a (query, head), so their bits are equal:
//   s[k]  = fma chain over dimensions 0..63 of K[k][d] * q[d] from 0; keys beyond the query: -inf
//   m'    = max(m, max s);  c = 2^(m - m');  p[k] = 2^(s[k] - m')
//   l     = fma(l, c, sum p), sum in 16 chains (key k in chain k mod 16, ascending), then hsum16's tree
//   o[d]  = fma chain over keys in order of V[k][d] * p[k] from o[d] * c
// for the pages of a chunk in order; chunks (m, l, o) merge in order as M' = max(M, m), X = fma(x, 2^(m-M'), X * 2^(M-M')).
// Adding a product in which one factor is 0 changes nothing but the sign of a zero, which no later kernel sees: masked
// keys, weights that underflow, rows of V and dimensions of q that are 0. Prefill leaves those out where 16 queries agree;
// K and V are finite, or the sequence's logits are not and its answer ends. (The canary model is made of zeros; half of
// its products go.)
// Bytes: a page's 16 KiB a kv head once for all its query heads. Reference: ref.cc; scalar order in cpu_kernel_test.

INL float hsum(V16 v) { return hsum16(low_half(v), high_half(v)); }
INL float hmax(V16 v) {
  __m256 m8 = _mm256_max_ps(low_half(v), high_half(v));
  __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}
INL float first_lane(V16 v) { return _mm256_cvtss_f32(low_half(v)); }

// io[h][0, 16 W) = fma chain over 2 * pairs elements of a[pair][lane][2] * x[h][element].
template <int H, int W> INL void pair_chain(const uint8_t *a, uint32_t pairs, const float (*x)[64], float *io, size_t ldio) {
  V16 acc[H][W];
  UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < W; i++) acc[h][i] = load(io + ldio * h + 16 * i);
  for (uint32_t j = 0; j < pairs; j++, a += 256) {
    UNROLL for (int i = 0; i < W; i++) {
      V16 v = low_bf16(a + 64 * i);
      UNROLL for (int h = 0; h < H; h++) acc[h][i] = fma(v, all(x[h][2 * j]), acc[h][i]);
      v = high_bf16(a + 64 * i);
      UNROLL for (int h = 0; h < H; h++) acc[h][i] = fma(v, all(x[h][2 * j + 1]), acc[h][i]);
    }
  }
  UNROLL for (int h = 0; h < H; h++) UNROLL for (int i = 0; i < W; i++) store(io + ldio * h + 16 * i, acc[h][i]);
}

// The even element of one more pair: the odd one's row may never have been written, and 0 times what lies there may be NaN.
template <int H, int W> INL void even_chain(const uint8_t *a, const float (*x)[64], uint32_t e, float *io, size_t ldio) {
  UNROLL for (int i = 0; i < W; i++) {
    V16 v = low_bf16(a + 64 * i);
    UNROLL for (int h = 0; h < H; h++) store(io + ldio * h + 16 * i, fma(v, all(x[h][e]), load(io + ldio * h + 16 * i)));
  }
}

constexpr int kWidth = LH_CPU_AVX512 ? 4 : 2; // V16 of pair_chain

template <int H> INL void heads_page(Part *st, const float (*q)[64], const uint8_t *block, uint32_t valid) {
  alignas(64) float s[H][64] = {};
  for (uint32_t k = 0; k < valid; k += 16 * kWidth) pair_chain<H, kWidth>(block + 4 * k, 32, q, &s[0][k], 64);
  for (int h = 0; h < H; h++) {
    V16 v[4], top = all(-__builtin_inff());
    for (int i = 0; i < 4; i++) {
      v[i] = keep_below(load(&s[h][16 * i]), int(valid) - 16 * i);
      top = max(top, v[i]);
    }
    float before = st[h].m, best = hmax(top), now = best > before ? best : before;
    V16 c = exp2v(all(before) - all(now)), sum;
    for (int i = 0; i < 4; i++) {
      v[i] = exp2v(v[i] - all(now));
      store(&s[h][16 * i], v[i]);
      sum = i ? sum + v[i] : v[i];
    }
    st[h].m = now;
    st[h].l = first_lane(fma(all(st[h].l), c, all(hsum(sum))));
    for (int i = 0; i < 4; i++) store(st[h].o + 16 * i, load(st[h].o + 16 * i) * c);
  }
  for (int i = 0; i < 64; i += 16 * kWidth) {
    const uint8_t *v = block + 8192 + 4 * i;
    pair_chain<H, kWidth>(v, valid / 2, s, st[0].o + i, sizeof(Part) / sizeof(float));
    if (valid % 2) even_chain<H, kWidth>(v + 256 * (valid / 2), s, valid - 1, st[0].o + i, sizeof(Part) / sizeof(float));
  }
}

void one_page(Part *st, const float (*q)[64], uint32_t heads, const uint8_t *block, uint32_t valid) {
  for (; heads >= 3; heads -= 3, st += 3, q += 3) heads_page<3>(st, q, block, valid);
  if (heads == 2) heads_page<2>(st, q, block, valid);
  if (heads == 1) heads_page<1>(st, q, block, valid);
}

// M becomes M'; a and b are the factors of what was merged and of what comes.
INL void merge_step(V16 &M, V16 m, V16 &a, V16 &b) {
  V16 top = max(M, m);
  a = exp2v(M - top);
  b = exp2v(m - top);
  M = top;
}

void merge(const Part *p, size_t step, uint32_t chunks, float *out) {
  V16 M = all(-__builtin_inff()), L = all(0), O[4] = {all(0), all(0), all(0), all(0)};
  for (uint32_t c = 0; c < chunks; c++, p += step) {
    V16 a, b;
    merge_step(M, all(p->m), a, b);
    L = fma(all(p->l), b, L * a);
    for (int i = 0; i < 4; i++) O[i] = fma(load(p->o + 16 * i), b, O[i] * a);
  }
  for (int i = 0; i < 4; i++) store(out + 16 * i, O[i] / L);
}

void group_init(QueryGroup *g, uint32_t pos) {
  __builtin_memset(g, 0, sizeof *g);
  g->pos = pos;
  store(g->m, all(-__builtin_inff()));
  store(g->M, all(-__builtin_inff()));
}

void group_ready(QueryGroup *g) {
  g->dims = 0;
  for (uint32_t d = 0; d < kHeadDim; d++)
    if (some(load(g->q[d]))) g->dim[g->dims++] = uint8_t(d);
}

// V rows from valid on are zero: they may never have been written, and a masked key's 0 times NaN is NaN.
void widen(const uint8_t *block, WidePage *w, uint32_t valid) {
  w->live = 0;
  for (int j = 0; j < 32; j++) {
    const uint8_t *k = block + 256 * j, *v = block + 8192 + 256 * j;
    V16 low = all(0), high = all(0);
    for (int i = 0; i < 4; i++) {
      store(&w->k[2 * j][16 * i], low_bf16(k + 64 * i));
      store(&w->k[2 * j + 1][16 * i], high_bf16(k + 64 * i));
      V16 a = low_bf16(v + 64 * i), b = high_bf16(v + 64 * i);
      store(&w->v[2 * j][16 * i], a);
      store(&w->v[2 * j + 1][16 * i], b);
      low = low | a;
      high = high | b;
    }
    w->live |= uint64_t(some(low)) << (2 * j) | uint64_t(some(high)) << (2 * j + 1);
  }
  if (valid < kPage) {
    __builtin_memset(w->v[valid], 0, (kPage - valid) * sizeof w->v[0]);
    w->live &= (uint64_t(1) << valid) - 1;
  }
}

// The elements of a chain: all of them, or those of a list.
struct Each {
  INL uint32_t operator[](uint32_t e) const { return e; }
};
using Listed = const uint8_t *;

// io[i][lanes] = fma chain over n elements e of x[e][lanes] * y[e][i], for i in [0, N), from io * c.
template <int N, class AT>
INL void lane_chain(const float (*x)[kLanes], const float (*y)[64], AT at, uint32_t n, float (*io)[kLanes], V16 c) {
  V16 acc[N];
  UNROLL for (int i = 0; i < N; i++) acc[i] = load(io[i]) * c;
  for (uint32_t j = 0; j < n; j++) {
    const uint32_t e = at[j];
    V16 v = load(x[e]);
    UNROLL for (int i = 0; i < N; i++) acc[i] = fma(v, all(y[e][i]), acc[i]);
  }
  UNROLL for (int i = 0; i < N; i++) store(io[i], acc[i]);
}

// The same from 0.
template <int N, class AT> INL void zero_chain(const float (*x)[kLanes], const float (*y)[64], AT at, uint32_t n, float (*io)[kLanes]) {
  V16 acc[N];
  UNROLL for (int i = 0; i < N; i++) acc[i] = all(0);
  for (uint32_t j = 0; j < n; j++) {
    const uint32_t e = at[j];
    V16 v = load(x[e]);
    UNROLL for (int i = 0; i < N; i++) acc[i] = fma(v, all(y[e][i]), acc[i]);
  }
  UNROLL for (int i = 0; i < N; i++) store(io[i], acc[i]);
}

constexpr int kBroad = LH_CPU_AVX512 ? 16 : 6; // accumulators of lane_chain; the rest of 64 goes by four

INL const float (*shift(const float (*y)[64], uint32_t i))[64] {
  return reinterpret_cast<const float(*)[64]>(&y[0][i]);
}

template <class AT> INL void group_scores(const QueryGroup *g, WidePage *w, AT at, uint32_t n, uint32_t keys) {
  uint32_t i = 0;
  for (; i + kBroad <= keys; i += kBroad) zero_chain<kBroad>(g->q, shift(w->k, i), at, n, w->s + i);
  for (; i < keys; i += 4) zero_chain<4>(g->q, shift(w->k, i), at, n, w->s + i);
}

template <class AT> INL void group_values(QueryGroup *g, const WidePage *w, AT at, uint32_t n, V16 c) {
  uint32_t i = 0;
  for (; i + kBroad <= kHeadDim; i += kBroad) lane_chain<kBroad>(w->s, shift(w->v, i), at, n, g->o + i, c);
  for (; i < kHeadDim; i += 4) lane_chain<4>(w->s, shift(w->v, i), at, n, g->o + i, c);
}

void group_page(QueryGroup *g, WidePage *w, uint32_t first) {
  uint32_t keys = g->pos + kLanes - first < kPage ? g->pos + kLanes - first : kPage;
  if (g->dims == kHeadDim)
    group_scores(g, w, Each{}, kHeadDim, keys);
  else
    group_scores(g, w, Listed(g->dim), g->dims, keys);
  V16 top = all(-__builtin_inff());
  bool edge = first + keys > g->pos;
  for (uint32_t k = 0; k < keys; k++) {
    V16 s = load(w->s[k]);
    if (edge) store(w->s[k], s = keep_from(s, int(first + k - g->pos)));
    top = max(top, s);
  }
  V16 before = load(g->m), now = max(before, top), c = exp2v(before - now), least = all(1), chain[16];
  for (int k = 0; k < 16; k++) {
    for (uint32_t j = k; j < keys; j += 16) {
      V16 p = exp2v(load(w->s[j]) - now);
      store(w->s[j], p);
      least = min(least, p);
      chain[k] = j < 16 ? p : chain[k] + p;
    }
  }
  for (int n = 8; n; n /= 2)
    for (int k = 0; k < n; k++) chain[k] = chain[k] + chain[k + n];
  store(g->m, now);
  store(g->l, fma(load(g->l), c, chain[0]));
  if (!~w->live && every(least)) {
    group_values(g, w, Each{}, keys, c);
    return;
  }
  uint8_t live[kPage];
  uint32_t n = 0;
  for (uint32_t k = 0; k < keys; k++)
    if ((w->live >> k & 1) && some(load(w->s[k]))) live[n++] = uint8_t(k);
  group_values(g, w, Listed(live), n, c);
}

void group_chunk(QueryGroup *g) {
  V16 M = load(g->M), a, b;
  merge_step(M, load(g->m), a, b);
  store(g->M, M);
  store(g->L, fma(load(g->l), b, load(g->L) * a));
  for (uint32_t d = 0; d < kHeadDim; d++) {
    store(g->O[d], fma(load(g->o[d]), b, load(g->O[d]) * a));
    store(g->o[d], all(0));
  }
  store(g->m, all(-__builtin_inff()));
  store(g->l, all(0));
}

void group_out(const QueryGroup *g, uint32_t lane, float *out) {
  float L = g->L[lane];
  for (uint32_t d = 0; d < kHeadDim; d++) out[d] = g->O[d][lane] / L;
}
