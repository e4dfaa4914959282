// cpu_pack.h: weights of the cpu back end, reordered once so that every kernel streams them.
//
// Output features (a tensor's rows) go in groups of 16 columns; inside a group two blocks of 32 inputs at a time:
//   [header b0][header b1][quants b0][quants b1]
//   header  16 x f16 d, then for Q4_1 16 x f16 m
//   quants  4-bit: for j = 0..3, 16 columns x 4 bytes; byte t of column c holds input 4j+t (low nibble) and 16+4j+t (high)
//           Q8_0:  for j = 0..7, 16 columns x 4 bytes; input 4j+t as value + 128
// A missing column or an odd last block is zero and never read into a result. gate and up are interleaved group by
// group, so that a thread that owns a block of the hidden layer reads one stream. The same bytes serve every SIMD path.
#ifndef LH_CPU_PACK_H_
#define LH_CPU_PACK_H_
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine.h"

namespace lh::cpu {

constexpr uint32_t kGroup = 16; // columns of a group
constexpr uint32_t kBlock = 32; // inputs that share a scale

constexpr size_t header_bytes(uint32_t type) { return type == LH_Q4_1 ? 64 : 32; }
constexpr size_t quant_bytes(uint32_t type) { return type == LH_Q8_0 ? 512 : 256; }
constexpr size_t pair_bytes(uint32_t type) { return 2 * (header_bytes(type) + quant_bytes(type)); }

// One packed matrix. data is set once the blob's address is known.
struct Mat {
  size_t offset = 0, group_bytes = 0;
  const uint8_t *data = nullptr;
  uint32_t type = 0, rows = 0, groups = 0, blocks = 0; // rows: output features, both halves of gate and up
  const uint8_t *group(uint32_t g) const { return data + size_t(g) * group_bytes; }
};

struct PackedLayer {
  Mat q, k, v, o, gate_up, down;
};

struct Packed {
  std::vector<PackedLayer> layers;
  Mat head;
  size_t bytes = 0; // of the blob, header included
};

// Lays out the blob. LH_EUNSUPPORTED with text for a shape or a type that the kernels do not have.
int plan_pack(const lh_model &, Packed *, char *err, int errcap);

// Points the matrices into a blob that lh_pack made for the same model. LH_EINVAL when it is another's; who
// keeps a blob checks that it is whole.
int bind_pack(const lh_model &, const void *blob, size_t bytes, Packed *, char *err, int errcap);

} // namespace lh::cpu
#endif
