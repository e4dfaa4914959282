// cpu_forward.h: the cpu back end's forward pass. One step is a plan, then every thread of the team walks the layers:
//   norm+quantise | q, k, v | append | attention | merge+quantise | output | norm+quantise | gate, up, silu | down
// with a barrier where rows turn to columns or back. A step of at most kShared rows keeps its residual rows once a
// thread: each repeats the row work, which is cheaper than meeting for it.
#ifndef LH_CPU_FORWARD_H_
#define LH_CPU_FORWARD_H_
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "cpu_kernels.h"
#include "cpu_plan.h"
#include "cpu_team.h"
#include "internal.h"

namespace lh::cpu {

constexpr uint32_t kShared = 6; // at most the smallest register tile

template <class T> class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t n) : p_(static_cast<T *>(std::aligned_alloc(64, (n * sizeof(T) + 63) / 64 * 64 + 64))) {
    if (!p_) throw std::bad_alloc();
  }
  T *get() const { return p_.get(); }

 private:
  struct Free {
    void operator()(T *p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> p_;
};

class Activations {
 public:
  Activations() = default;
  Activations(size_t rows, uint32_t cols)
      : blocks_(cols / kBlock), q_(rows * cols), d_(rows * blocks_), dsum_(rows * blocks_), sum_(rows * blocks_) {}
  Act act(uint32_t rows, uint32_t cols, uint32_t tile) const {
    return {q_.get(), d_.get(), dsum_.get(), sum_.get(), rows, cols / kBlock, tile};
  }

 private:
  size_t blocks_ = 0;
  Buffer<int8_t> q_;
  Buffer<float> d_, dsum_;
  Buffer<int32_t> sum_;
};

class Forward final : public Backend {
 public:
  Forward(const Config &, const Packed &, const Kernels &); // throws bad_alloc, system_error
  int forward(Step &) override;
  void logit_digest(const float *row, uint32_t n, uint64_t out[2], bool *finite) const override;

 private:
  // What one thread has to itself.
  struct Own {
    Buffer<float> x, attn; // kShared rows
    Activations act;       // kShared rows of the widest input
    Buffer<uint8_t> scratch;
    Buffer<QueryGroup> groups;
    Buffer<WidePage> wide;
    Buffer<float> q; // turned queries of one kv head
    Buffer<Part> parts;
  };
  // One thread's view of a step.
  struct View {
    Own *own;
    uint32_t thread;
    float *x, *attn;
    uint32_t r0, r1;   // rows whose row work is this thread's
    const Activations *act;
  };

  void walk(uint32_t thread);
  void embed(const View &);
  void project(const View &, const PackedLayer &, const Act &);
  bool append(uint32_t layer, const Span &, uint32_t head);
  void appended();
  void attend(const View &, uint32_t layer);
  void attend_row(const View &, uint32_t layer, const Unit &);
  void attend_group(const View &, uint32_t layer, const Unit &);
  void merge(const View &);
  void head(const View &);
  void head_run(const View &, uint32_t first, uint32_t n);
  void split_gemm(const View &, const Mat &, const Act &, float *out, size_t ldo);
  void meet() { team_.barrier(); }
  uint32_t tile(uint32_t rows) const;
  bool poisoned(uint32_t item) const { return step_->items[item].seq->poisoned.load(std::memory_order_relaxed); }
  uint8_t *block(const Seq &, uint32_t place, uint32_t layer, uint32_t head) const;
  const float *turn(uint32_t row) const { return turns_.get() + size_t(128) * row; }

  const Config cfg_;
  const Packed packed_;
  const Kernels &k_;
  const uint32_t q_dim_, kv_dim_, per_kv_; // per_kv_: query heads of a kv head
  const size_t ldx_, ldy_, lda_;
  std::vector<float> norms_; // attn_norm, ffn_norm of each layer, then output_norm
  std::vector<double> freq_;
  std::vector<Own> own_;
  Buffer<float> x_, y_, out_, attn_, turns_; // y_: q, k, v of a row
  Activations act_, hidden_;
  Buffer<float> tail_; // one column group of logits
  Buffer<Part> parts_;
  size_t parts_room_ = 0;
  std::unique_ptr<std::atomic<uint32_t>[]> next_; // unit counter of each layer

  Plan plan_;
  Step *step_ = nullptr;
  uint32_t rows_ = 0;
  bool repeated_ = false; // row work is done once a thread
  Team team_;             // last: its threads end first
};

} // namespace lh::cpu
#endif
