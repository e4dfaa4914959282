#include "cpu_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace lh::cpu {
namespace {

constexpr int kSpins = 800; // 10 to 30 us

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void futex(std::atomic<uint32_t> *word, int op, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), op, value, nullptr, nullptr, 0);
}

} // namespace

void Barrier::wait() {
  if (n_.load(std::memory_order_relaxed) == 1) return;
  uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_.load(std::memory_order_relaxed)) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst)) futex(&phase_, FUTEX_WAKE_PRIVATE, INT_MAX);
    return;
  }
  for (int i = 0; i < kSpins; i++) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    relax();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (phase_.load(std::memory_order_seq_cst) == phase) futex(&phase_, FUTEX_WAIT_PRIVATE, phase);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

Team::Team(uint32_t n) : n_(n), go_(n), done_(n), inner_(n) {
  threads_.reserve(n - 1);
  for (uint32_t i = 1; i < n; i++) {
    try {
      threads_.emplace_back([this, i] {
        for (;;) {
          go_.wait();
          if (!f_) return;
          f_(arg_, i);
          done_.wait();
        }
      });
    } catch (...) {
      go_.resize(i);
      stop();
      throw;
    }
  }
}

void Team::stop() {
  f_ = nullptr;
  go_.wait();
  for (std::thread &t : threads_) t.join();
}

Team::~Team() { stop(); }

void Team::run(void (*f)(void *, uint32_t), void *arg) {
  f_ = f;
  arg_ = arg;
  go_.wait();
  f(arg, 0);
  done_.wait();
}

} // namespace lh::cpu
