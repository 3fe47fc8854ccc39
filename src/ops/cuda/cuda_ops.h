// CudaOps: the CUDA backend (Hopper, sm_90a); one op per file beside this one defines its method, named as on the CPU.
#pragma once

#include <deque>
#include <memory>
#include <string_view>

#include "ops/cuda/make_cuda_ops.h"
#include "ops/cuda/stream.h"
#include "ops/ops.h"

namespace strata {

namespace cuda {
struct RouteView;
struct LoraArgs;
struct GluArgs;
struct LinearArgs;
}
namespace cpu {
class MatrixRows;
}

// One thread drives it. Every op only enqueues kernels on stream(): none allocates (once the arena has grown), waits, or
// looks at device data, so a step can be captured into a graph. Kernel geometry depends on BatchShape and static sizes
// alone. A failing launch throws Error; the context is lost then. Lives longer than every Tensor it made.
class CudaOps : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);
  ~CudaOps() override;

  Device device() const override { return Device::kCuda; }
  DType activation() const override { return options_.activation; }
  Buffer allocate(std::size_t bytes) override;
  Weight load(const HostMatrix& matrix, std::optional<DType> type) override;
  Tensor load_vector(const Tensor& host, float add) override;
  void write(const Tensor& to, const void* from) override;
  void read(void* to, const Tensor& from) override;
  std::unique_ptr<StepDevice> make_step_device(const StepLimits& limits) override;

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
  void norm_linear(Tensor out, const AddNorm& norm, const Weight& w, Tensor bias) override;
  void linear_glu(Tensor out, Tensor x, const Weight& w, Tensor bias, Activation activation, float limit) override;
  void expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) override;
  void expert_linear_glu(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias, Activation activation,
                         float limit) override;
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
  void moe(const MoeArgs& args) override;
  void prepare_qkv(const QkvArgs& args, const Batch& batch) override;
  void attention(const AttentionArgs& args, const Batch& batch) override;
  void causal_conv(const ConvArgs& args, const Batch& batch) override;
  void gated_delta(const GatedDeltaArgs& args, const Batch& batch) override;
  void delta_net(const DeltaNetArgs& args, const Batch& batch) override;
  void ssd(const SsdArgs& args, const Batch& batch) override;

  // ---- what a runner needs beyond the ops ----
  cuda::Stream stream() const { return stream_; }
  int processors() const { return processors_; }
  void synchronize();              // waits for everything enqueued; throws Error if any of it failed
  void copy_to_device(const Tensor& to, const void* from);         // enqueued; `from` pinned, or the call waits for the copy
  void copy_to_host(void* to, const Tensor& from);                 // likewise
  Buffer allocate_pinned(std::size_t bytes);  // host memory that the device copies from and to by itself
  StepCounters& counters() { return counters_; }

 private:
  // The f8 planes of the rows at `x` and their scales (QuantiseArgs).
  struct Planes {
    const void* x = nullptr;
    Tensor planes, scales;
  };
  // Does a norm and makes the planes of its output in the same launch, if it suits, for the products until its end.
  class NormInPlanes {
   public:
    NormInPlanes(CudaOps& ops, const AddNorm& norm);
    ~NormInPlanes() { ops_.planes_ = {}; }
    NormInPlanes(const NormInPlanes&) = delete;
    NormInPlanes& operator=(const NormInPlanes&) = delete;

   private:
    CudaOps& ops_;
    Scratch scratch_;
  };

  bool route_at_once(const MoeArgs& args, const cuda::RouteView& route);
  void run_lora(cuda::LoraArgs& args, const LoraTable& table, const Tensor& adapters, std::int64_t rows);
  void product(Tensor out, Tensor x, const Weight& w, Tensor bias, const cuda::GluArgs* glu);
  // Of a product with `rows` rows of out, as `op` names them in errors.
  cuda::LinearArgs arguments(std::string_view op, Tensor out, Tensor x, const Weight& w, Tensor bias, const cuda::GluArgs* glu,
                             std::int64_t rows) const;
  void expert_product(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias, const cuda::GluArgs* glu);
  void load_four_bit(Weight& w, const cpu::MatrixRows& rows);
  void fill_dummy(const Weight& w, std::int64_t inputs);

  CudaOptions options_;
  unsigned dummy_seed_ = 0;
  cuda::Stream stream_ = nullptr;
  int processors_ = 0;
  StepCounters counters_;
  Planes planes_;
  Buffer arrived_;              // counts blocks of a kernel that are done; zero between kernels
  std::deque<Buffer> vectors_;  // what load_vector handed out
};

}  // namespace strata
