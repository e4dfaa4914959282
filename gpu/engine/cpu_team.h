// cpu_team.h: the threads of one engine. They are started once; a step is one run(), and the caller is thread 0.
// Waiting spins for a moment (a phase of a small model takes 10 to 30 us) and then sleeps, because several processes
// share the machine. Threads are not pinned: the caller is one of Go's.
#ifndef LH_CPU_TEAM_H_
#define LH_CPU_TEAM_H_
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace lh::cpu {

class Barrier {
 public:
  explicit Barrier(uint32_t n) : n_(n) {}
  void wait();
  // Fewer than announced; only before the caller's own first wait.
  void resize(uint32_t n) { n_.store(n, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> n_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

class Team {
 public:
  explicit Team(uint32_t n); // throws std::system_error
  ~Team();
  Team(const Team &) = delete;
  Team &operator=(const Team &) = delete;

  uint32_t size() const { return n_; }
  // Calls f(arg, thread) on every thread and returns when all have.
  void run(void (*f)(void *, uint32_t), void *arg);
  // Inside run: every thread reaches it before any goes on.
  void barrier() { inner_.wait(); }

 private:
  void stop();
  const uint32_t n_;
  Barrier go_, done_, inner_;
  void (*f_)(void *, uint32_t) = nullptr;
  void *arg_ = nullptr;
  std::vector<std::thread> threads_;
};

} // namespace lh::cpu
#endif
