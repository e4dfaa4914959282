// ref_team.h: a few threads that share a range. Simple on purpose: a mutex and two condition variables.
#ifndef LH_REF_TEAM_H_
#define LH_REF_TEAM_H_
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lh {
namespace ref {

// split(n, f) runs f(first, last, thread) over parts of [0, n) and returns when all are done. What f writes for an
// index must not depend on where a part begins.
class Team {
 public:
  using Body = std::function<void(uint32_t, uint32_t, uint32_t)>;

  explicit Team(uint32_t n) : n_(n) {
    for (uint32_t i = 1; i < n; i++) threads_.emplace_back([this, i] { loop(i); });
  }
  ~Team() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      stop_ = true;
    }
    go_.notify_all();
    for (std::thread &t : threads_) t.join();
  }
  uint32_t size() const { return n_; }

  void split(uint32_t n, const Body &f) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      body_ = &f;
      range_ = n;
      left_ = n_ - 1;
      round_++;
    }
    go_.notify_all();
    part(0, n, f);
    std::unique_lock<std::mutex> lock(mu_);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void part(uint32_t i, uint32_t n, const Body &f) {
    const uint32_t a = uint32_t(uint64_t(n) * i / n_), b = uint32_t(uint64_t(n) * (i + 1) / n_);
    if (a < b) f(a, b, i);
  }
  void loop(uint32_t i) {
    for (uint64_t seen = 0;;) {
      std::unique_lock<std::mutex> lock(mu_);
      go_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      const Body &f = *body_;
      const uint32_t n = range_;
      lock.unlock();
      part(i, n, f);
      lock.lock();
      if (--left_ == 0) done_.notify_one();
    }
  }

  const uint32_t n_;
  std::mutex mu_;
  std::condition_variable go_, done_;
  const Body *body_ = nullptr;
  uint32_t range_ = 0, left_ = 0;
  uint64_t round_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

} // namespace ref
} // namespace lh
#endif
