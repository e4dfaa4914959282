// cpu_gemm.inl.h: quantised matrix products, shared by the SIMD paths; each has its own register tile before this file.
//
// out[r][c] over blocks b in order:  isum = sum w_q * a_q (exact int32);  acc = fma(float(isum), dw * da, acc);
// Q4_1 then  acc = fma(m, da * sum(a_q), acc).  So 1, 8 or 512 rows give equal bits, equal to a scalar fmaf loop.
// One or two tiles of rows read the packed group itself (the bytes of the weights: 0.625 a Q4_1 weight, 0.5625 Q4_0,
// 1.0625 Q8_0; the second time from L1). More rows unpack a group to 8 bits and f32 scales once for kRowBlock rows.

template <uint32_t TYPE> void unpack_group(const uint8_t *group, uint32_t blocks, const Wide wide) {
  for (uint32_t b = 0; b < blocks; b++) {
    const uint8_t *h = group + (b >> 1) * pair_bytes(TYPE) + (b & 1) * header_bytes(TYPE);
    unpack_block<TYPE>(group + (b >> 1) * pair_bytes(TYPE) + 2 * header_bytes(TYPE) + (b & 1) * quant_bytes(TYPE),
                       wide.q + size_t(b) * 512);
    unpack_scales(h, wide.d + 16 * b);
    if (TYPE == LH_Q4_1) unpack_scales(h + 32, wide.m + 16 * b);
  }
}

template <uint32_t TYPE, bool WIDE, int R>
INL void tile_of(int rows, const uint8_t *group, const Wide wide, const Act &act, size_t at, float *out, size_t ldo) {
  if constexpr (R > 1) {
    if (rows < R) return tile_of<TYPE, WIDE, R - 1>(rows, group, wide, act, at, out, ldo);
  }
  tile<TYPE, R, WIDE>(group, wide, act, at, out, ldo);
}

// Rows [r0, r1), whole tiles, of one column group.
template <uint32_t TYPE>
void group_rows(const uint8_t *group, const Wide wide, const Act &act, uint32_t r0, uint32_t r1, float *out, size_t ldo) {
  const bool unpack = act.rows > 2 * act.tile;
  if (unpack) unpack_group<TYPE>(group, act.blocks, wide);
  for (uint32_t r = r0; r < r1; r += act.tile) {
    uint32_t rows = act.rows - r < act.tile ? act.rows - r : act.tile;
    float *to = out + ldo * (r - r0);
    if (unpack)
      tile_of<TYPE, true, kTile>(rows, group, wide, act, size_t(r) * act.blocks, to, ldo);
    else
      tile_of<TYPE, false, kTile>(rows, group, wide, act, size_t(r) * act.blocks, to, ldo);
  }
}

INL void any_group_rows(const Mat &w, uint32_t g, const Wide wide, const Act &act, uint32_t r0, uint32_t r1, float *out,
                        size_t ldo) {
  switch (w.type) {
  case LH_Q4_0: return group_rows<LH_Q4_0>(w.group(g), wide, act, r0, r1, out, ldo);
  case LH_Q4_1: return group_rows<LH_Q4_1>(w.group(g), wide, act, r0, r1, out, ldo);
  default: return group_rows<LH_Q8_0>(w.group(g), wide, act, r0, r1, out, ldo);
  }
}

INL Wide wide_of(void *scratch, uint32_t blocks) {
  Wide w;
  w.acc = static_cast<float *>(scratch);
  w.rows = w.acc + kMaxTile * 16;
  w.d = w.rows + size_t(kRowBlock) * 64;
  w.m = w.d + 16 * size_t(blocks);
  w.q = reinterpret_cast<uint8_t *>(w.m + 16 * size_t(blocks));
  return w;
}

void gemm(const Mat &w, const Act &act, float *out, size_t ldo, uint32_t g0, uint32_t g1, void *scratch) {
  Wide wide = wide_of(scratch, act.blocks);
  uint32_t step = kRowBlock / act.tile * act.tile;
  for (uint32_t r0 = 0; r0 < act.rows; r0 += step) {
    uint32_t r1 = act.rows - r0 < step ? act.rows : r0 + step;
    for (uint32_t g = g0; g < g1; g++) any_group_rows(w, g, wide, act, r0, r1, out + ldo * r0 + 16 * g, ldo);
  }
}

void gate_up(const Mat &w, const Act &act, const Act &hidden, uint32_t b0, uint32_t b1, void *scratch) {
  Wide wide = wide_of(scratch, act.blocks);
  uint32_t step = kRowBlock / act.tile * act.tile;
  for (uint32_t r0 = 0; r0 < act.rows; r0 += step) {
    uint32_t r1 = act.rows - r0 < step ? act.rows : r0 + step;
    for (uint32_t b = b0; b < b1; b++) {
      for (uint32_t i = 0; i < 4; i++) any_group_rows(w, 4 * b + i, wide, act, r0, r1, wide.rows + 16 * i, 64);
      quantise_rows(
          [&](uint32_t r, uint32_t, float *x) INL_LAMBDA {
            const float *p = wide.rows + size_t(r - r0) * 64;
            store(x, silu_mul(load(p), load(p + 16)));
            store(x + 16, silu_mul(load(p + 32), load(p + 48)));
          },
          hidden, r0, r1, b, b + 1);
    }
  }
}
