// cpu_open.cc: choice of the SIMD path, and the entries that engine.cc calls.
#include <system_error>

#include "cpu_forward.h"

namespace lh {
namespace {

const cpu::Kernels *kernels(uint32_t simd) {
#if defined(__x86_64__)
  if (simd == LH_SIMD_AVX2) return &cpu::kAvx2;
  if (simd == LH_SIMD_AVX512) return &cpu::kAvx512;
#endif
  return nullptr;
}

uint32_t best_simd() {
  uint32_t have = lh_simd();
  return have >> LH_SIMD_AVX512 & 1 ? LH_SIMD_AVX512 : have >> LH_SIMD_AVX2 & 1 ? LH_SIMD_AVX2 : LH_SIMD_NONE;
}

} // namespace

int make_cpu(const Config &cfg, std::unique_ptr<Backend> *out, char *err, int errcap) {
  uint32_t simd = cfg.opt.simd ? cfg.opt.simd : best_simd();
  if (!(lh_simd() >> simd & 1) || !kernels(simd))
    return fail(LH_EUNSUPPORTED, err, errcap, "this machine lacks %s",
                simd == LH_SIMD_AVX512 ? "AVX-512 F, BW, VL, DQ or VNNI" : "AVX2, FMA or F16C");
  if (cfg.opt.kv != LH_KV_BF16) return fail(LH_EUNSUPPORTED, err, errcap, "the cpu back end keeps K and V in bf16");
  cpu::Packed packed;
  if (int rc = cpu::bind_pack(cfg.model, cfg.opt.packed, cfg.opt.packed_bytes, &packed, err, errcap)) return rc;
  try {
    out->reset(new cpu::Forward(cfg, packed, *kernels(simd)));
  } catch (const std::bad_alloc &) {
    return fail(LH_ENOMEM, err, errcap, "no memory for steps of %u rows", cfg.opt.max_tokens);
  } catch (const std::system_error &) {
    return fail(LH_ENOMEM, err, errcap, "cannot start %u threads", cfg.opt.threads);
  }
  return LH_OK;
}

bool cpu_page_sum(const uint32_t *nh, const uint64_t *rowkeys, uint32_t blocks, uint32_t head_dim, const uint8_t *page,
                  uint8_t *copy, uint32_t rows, uint64_t digest[2], uint32_t *nonzero) {
  static const uint32_t simd = best_simd();
  if (!simd || head_dim != cpu::kHeadDim || reinterpret_cast<uintptr_t>(copy) % 32 != 0) return false;
  kernels(simd)->page_sum(nh, rowkeys, blocks, page, copy, rows, digest, nonzero);
  return true;
}

} // namespace lh

extern "C" uint32_t lh_simd(void) {
  uint32_t have = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
      __builtin_cpu_supports("bmi2"))
    have |= 1u << LH_SIMD_AVX2;
  if (have && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
    have |= 1u << LH_SIMD_AVX512;
#endif
  return have;
}
