// nocpu.cc: what the library answers where the cpu back end is not compiled in. Weak: cpu_* replaces each.
#include "internal.h"

#define LH_WEAK __attribute__((weak))

namespace lh {

LH_WEAK int make_cpu(const Config &, std::unique_ptr<Backend> *, char *err, int errcap) {
  return fail(LH_EUNSUPPORTED, err, errcap, "the cpu back end is not compiled in for this machine");
}

LH_WEAK bool cpu_page_sum(const uint32_t *, const uint64_t *, uint32_t, uint32_t, const uint8_t *, uint8_t *, uint32_t,
                          uint64_t *, uint32_t *) {
  return false;
}

} // namespace lh

LH_WEAK uint32_t lh_simd(void) { return 0; }

LH_WEAK size_t lh_pack_bytes(const lh_model *) { return 0; }

LH_WEAK int lh_pack(const lh_model *, void *, size_t, uint32_t, char *err, int errcap) {
  return lh::fail(LH_EUNSUPPORTED, err, errcap, "the cpu back end is not compiled in for this machine");
}
