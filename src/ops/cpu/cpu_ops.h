// CpuOps: the CPU backend and the specification of every op; one file per op beside this one defines its method.
#pragma once

#include <deque>
#include <memory>

#include "ops/cpu/products.h"
#include "ops/cpu/thread_pool.h"
#include "ops/cpu/weight_heap.h"
#include "ops/ops.h"

namespace strata {

// Instruction sets of the products' bodies; quantised products have one each, and all give the same bits.
enum class CpuIsa : std::uint8_t { kBest, kAvx2, kAvxVnni, kAvx512, kAmx };
bool machine_has(CpuIsa isa);

struct CpuOptions {
  int threads = 0;       // 0 = one per core this process may use
  bool scalar = false;   // run the plain scalar bodies instead of the SIMD ones (tests; bits may differ, results agree)
  CpuIsa isa = CpuIsa::kBest;  // of the products; Error if the machine has it not (tests, comparisons)
};

// One thread drives it. Results do not depend on the number of threads nor on what else is in the batch.
class CpuOps : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options = {});
  ~CpuOps() override;

  Device device() const override { return Device::kCpu; }
  DType activation() const override { return DType::kF32; }
  Buffer allocate(std::size_t bytes) override { return Buffer::host(bytes); }
  Weight load(const HostMatrix& matrix, std::optional<DType> type) override;
  Tensor load_vector(const Tensor& host, float add) override;

  void embed(Tensor out, Tensor tokens, const Weight& table, float scale) override;
  void gather_rows(Tensor out, Tensor x, Tensor rows) override;
  void save_rows(Tensor x, Tensor saves, Tensor state) override;
  void concat(Tensor out, Tensor a, Tensor b) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override;
  void add_rms_norm(Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps) override;
  void gated_norm(const GatedNormArgs& args) override;
  void add(Tensor x, Tensor delta, float scale) override;
  void multiply(Tensor x, Tensor y) override;
  void scale(Tensor x, float factor, float softcap) override;
  void activate(Tensor x, Activation activation) override;
  void glu(Tensor out, Tensor gate_up, Activation activation, float limit) override;
  void linear(Tensor out, Tensor x, const Weight& w, Tensor bias) override;
  void expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) override;
  void lora(Tensor out, Tensor x, const LoraTable& table, Tensor adapters) override;
  void expert_lora(Tensor out, Tensor x, const Routing& routing, const LoraTable& table, Tensor adapters) override;
  void set_lora(LoraTable& table, int slot, const LoraPair* pair) override;
  Routing route(const RouteArgs& args, int k) override;
  void mix_streams(Tensor out, Tensor x, Tensor mix) override;
  void inject_streams(Tensor x, Tensor delta, Tensor weight) override;
  void gate_streams(Tensor out, Tensor key, Tensor query, Tensor value) override;
  void store_index(const IndexArgs& args, const Batch& batch) override;
  void select_blocks(const SelectArgs& args, const Batch& batch) override;
  void ngram_rows(const NgramArgs& args, const Batch& batch) override;
  Routing route_all(std::int64_t rows, std::int64_t experts) override;
  void combine(Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate) override;
  void prepare_qkv(const QkvArgs& args, const Batch& batch) override;
  void attention(const AttentionArgs& args, const Batch& batch) override;
  void causal_conv(const ConvArgs& args, const Batch& batch) override;
  void gated_delta(const GatedDeltaArgs& args, const Batch& batch) override;
  void ssd(const SsdArgs& args, const Batch& batch) override;

  ThreadPool& threads() { return *threads_; }
  bool scalar() const { return scalar_; }

 private:
  struct LoraWork;
  void run_lora(const LoraWork& work);

  std::unique_ptr<ThreadPool> threads_;
  bool scalar_;
  cpu::ProductKernels kernels_;
  cpu::WeightHeap weight_heap_;
  std::deque<Buffer> vectors_;  // what load_vector handed out
};

}  // namespace strata
