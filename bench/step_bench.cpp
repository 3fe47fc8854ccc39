// Times whole steps of a published model's shape on the GPU, with dummy weights: prefill, decode at a batch
// and context, and verify of several rows a sequence, each replayed from a graph. Beside each time the bytes
// it must move (matrices that its rows touch, keys and values, states) and how far it is from the device's
// copy rate.
//   step_bench SHAPE [--dtype f8_e4m3] [--batches 1,16] [--contexts 1024] [--prefill 8192] [--verify 4]
//   [--mtp 3] [--acceptance 0.8] [--head f8_e4m3] [--draft-head q4_0] [--activations fp8] [--json] [--once]
// --mtp K: also what a token takes with K drafts of the model's own head, of which each is accepted with the
// probability
// --acceptance after those before it: (a verify step of K + 1 rows + K passes of the head) / tokens a step.
// --head, --draft-head: types of the output head and of the copy of it that drafts are made with (bf16 and none).
// --once: one eager decode step of the first batch and context between profiler marks, for ncu
// --profile-from-start off;
// --prefill-once: a prefill instead.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "base/error.h"
#include "loader/dummy.h"
#include "model/registry.h"
#include "ops/cuda/batch_upload.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/fill.h"
#include "ops/cuda/make_cuda_ops.h"
#include "ops/cuda/op_checks.h"
#include "runtime/batch_builder.h"
#include "runtime/memory_pools.h"

namespace strata {
namespace {

struct Flags {
  std::string shape;
  DType dtype = DType::kBF16;
  LoadOptions load;
  std::vector<int> batches = {1, 16, 64, 256}, contexts = {1024, 8192, 65536}, prefill = {8192}, verify;
  int mtp = 0;
  double acceptance = 0.8;
  bool json = false, once = false, prefill_once = false, f8_activations = false;
};

std::vector<int> numbers(const std::string& text) {
  std::vector<int> all;
  std::stringstream in(text);
  for (std::string one; std::getline(in, one, ',');) all.push_back(std::stoi(one));
  return all;
}

Flags parse(int argc, char** argv) {
  Flags f;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw Error("{} needs a value", arg);
      return std::string(argv[++i]);
    };
    const auto type = [&] {
      const std::string text = value();
      constexpr std::array kTypes = {DType::kBF16, DType::kF8E4M3, DType::kQ4_0, DType::kQ4_1, DType::kMXFP4, DType::kNVFP4};
      const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](DType t) { return name(t) == text; });
      if (known == kTypes.end()) throw Error("{} {}: bf16, f8_e4m3, q4_0, q4_1, mxfp4 or nvfp4", arg, text);
      return *known;
    };
    if (arg == "--dtype") {
      f.dtype = type();
    } else if (arg == "--head") {
      f.load.head = type();
    } else if (arg == "--draft-head") {
      f.load.draft_head = type();
    } else if (arg == "--batches") {
      f.batches = numbers(value());
    } else if (arg == "--contexts") {
      f.contexts = numbers(value());
    } else if (arg == "--prefill") {
      f.prefill = numbers(value());
    } else if (arg == "--verify") {
      f.verify = numbers(value());
    } else if (arg == "--mtp") {
      f.mtp = std::stoi(value());
      if (f.mtp < 1 || f.mtp >= kTapeRows) throw Error("--mtp must be 1 to {}", kTapeRows - 1);
    } else if (arg == "--acceptance") {
      f.acceptance = std::stod(value());
    } else if (arg == "--activations") {
      f.f8_activations = value() == "fp8";
    } else if (arg == "--json") {
      f.json = true;
    } else if (arg == "--once") {
      f.once = true;
    } else if (arg == "--prefill-once") {
      f.once = f.prefill_once = true;
    } else {
      f.shape = arg;
    }
  }
  return f;
}

// Bytes of matrices: of every step, and of the experts (of which a step reads a part).
struct MatrixBytes {
  double dense = 0, experts = 0;
  int count = 0, chosen = 0;

  MatrixBytes(const Checkpoint& checkpoint, std::optional<DType> head) {
    const Json& c = checkpoint.config().text();
    count = c.get_int("num_experts", 0);
    chosen = c.get_int("num_experts_per_tok", 0);
    for (const TensorSummary& t : checkpoint.list()) {
      if (t.name.starts_with("mtp.") || t.name.starts_with("embed_tokens")) continue;
      const bool other = head && t.name == "lm_head.weight";
      (t.name.find(".experts.") != std::string::npos ? experts : dense) +=
          static_cast<double>(other ? bytes_of(*head, t.extents[0] * t.extents[1]) : t.bytes);
    }
  }
  double of(int rows) const {
    return dense + (count == 0 ? 0 : experts * (1 - std::pow(1 - static_cast<double>(chosen) / count, rows)));
  }
};

class Subject {
 public:
  Subject(const Model& model, CudaOps& ops, cuda::BatchUpload& upload, int sequences, int context, int tapes)
      : model_(model),
        ops_(ops),
        upload_(upload),
        sequences_(sequences),
        pages_each_((context + kPageTokens - 1) / kPageTokens),
        pools_(specs(), {.pages = sequences * pages_each_, .slots = sequences + 1, .tapes = tapes},
               DType::kBF16, ops) {
    if (model.fusion != nullptr) {
      const std::int64_t rows = std::int64_t{sequences} * kTapeRows;
      hidden_ = ops.allocate(bytes_of(ops.activation(), rows * model.hidden_size));
      fill(hidden_.view(ops.activation(), {rows, model.hidden_size}));
    }
    for (const Memory& memory : pools_.views()) {
      const auto* kv = std::get_if<KvView>(&memory);
      if (kv == nullptr) continue;
      for (const Tensor& t : {kv->k, kv->v}) {
        if (!t.empty()) fill(t);
      }
    }
  }
  static double bytes(std::span<const StateSpec> specs, int sequences, int context) {
    return static_cast<double>(MemoryPools::page_bytes(specs, DType::kBF16)) *
               ((context + kPageTokens - 1) / kPageTokens) * sequences +
           static_cast<double>(MemoryPools::slot_bytes(specs)) * (sequences + 1);
  }

  // `rows` rows of every sequence after `past` tokens. Verify: with tapes, of which half is replayed.
  Batch batch(int rows, int past, bool verify) {
    builder_.clear();
    std::vector<int> order(static_cast<std::size_t>(sequences_ * pages_each_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    std::vector<int> tokens(static_cast<std::size_t>(rows));
    for (int s = 0; s < sequences_; ++s) {
      for (int i = 0; i < rows; ++i)
        tokens[static_cast<std::size_t>(i)] = (7919 * (past + i) + 104729 * s + 1) % model_.vocab_size;
      const std::span<const int> pages(order.data() + s * pages_each_, static_cast<std::size_t>(pages_each_));
      BatchRun run{.tokens = tokens, .start = past, .pages = pages, .state_in = past == 0 ? -1 : s + 1};
      if (verify) run.tape = s, run.replay = (rows + 1) / 2, run.state_out = s + 1;
      const int row = builder_.add(run);
      if (!verify) builder_.save(row + rows - 1, s + 1);
      for (int i = verify ? 0 : rows - 1; i < rows; ++i) builder_.want_logits(row + i);
    }
    return builder_.batch();
  }

  void forward(const Batch& batch) {
    const Scratch scratch(ops_.arena());
    const Tensor hidden = model_.fusion == nullptr
                              ? Tensor()
                              : hidden_.view(ops_.activation(), {batch.shape.rows, model_.hidden_size});
    model_.forward(batch, pools_.views(), ops_, hidden);
  }

  // Seconds of a step: the median of `repeat` replays.
  double time(const Batch& host, int repeat) {
    const Batch batch = upload_.send(host);
    forward(batch);  // grows the arena
    ops_.synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cuda::check_cuda(cudaStreamBeginCapture(ops_.stream(), cudaStreamCaptureModeThreadLocal), "capture");
    forward(batch);
    cuda::check_cuda(cudaStreamEndCapture(ops_.stream(), &graph), "capture");
    cuda::check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin = nullptr, end = nullptr;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < repeat + 2; ++i) {
      cudaEventRecord(begin, ops_.stream());
      cuda::check_cuda(cudaGraphLaunch(exec, ops_.stream()), "launch");
      cudaEventRecord(end, ops_.stream());
      cuda::check_cuda(cudaEventSynchronize(end), "step");
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      if (i >= 2) times.push_back(ms);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3;
  }
  void once(const Batch& host) {
    const Batch batch = upload_.send(host);
    forward(batch);
    ops_.synchronize();
    cudaProfilerStart();
    forward(batch);
    ops_.synchronize();
    cudaProfilerStop();
  }

 private:
  std::vector<StateSpec> specs() const { return model_.states(); }
  void fill(const Tensor& t) {
    cuda::launch_fill({.to = {t.raw(), t.row_size(), cuda::elem_of(t.dtype())},
                       .rows = t.rows(),
                       .columns = t.row_size(),
                       .deviation = 1},
                      ops_.stream());
  }

  const Model& model_;
  CudaOps& ops_;
  cuda::BatchUpload& upload_;
  int sequences_, pages_each_;
  MemoryPools pools_;
  Buffer hidden_;  // of the head's rows
  BatchBuilder builder_;
};

// Bytes a second of a large device copy, read and write counted.
double copy_rate(CudaOps& ops) {
  const std::size_t bytes = std::size_t{2} << 30;
  const Buffer a = ops.allocate(bytes), b = ops.allocate(bytes);
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e9F;
  for (int i = 0; i < 5; ++i) {
    cudaEventRecord(begin, ops.stream());
    cuda::check_cuda(cudaMemcpyAsync(a.data(), b.data(), bytes, cudaMemcpyDeviceToDevice, ops.stream()),
                     "copy");
    cudaEventRecord(end, ops.stream());
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = std::min(best, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 2.0 * static_cast<double>(bytes) / (best * 1e-3);
}

int run(const Flags& f) {
  CudaOps ops({.f8_activations = f.f8_activations, .dummy_weights = true});
  const double rate = copy_rate(ops);
  const ModelConfig config = published_shape(f.shape);
  const auto start = std::chrono::steady_clock::now();
  Checkpoint checkpoint(dummy_source(config, f.dtype), config, f.shape);
  const MatrixBytes matrices(checkpoint, f.load.head);
  const Model model = load_model(checkpoint, ops, f.load);
  ops.synchronize();
  const double loaded = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<StateSpec> specs = model.states();
  cuda::BatchUpload upload(ops, 32 << 20);
  nlohmann::ordered_json out = {{"shape", f.shape},
                                {"dtype", std::string(name(f.dtype))},
                                {"copy_bytes_per_second", rate},
                                {"load_seconds", loaded},
                                {"steps", nlohmann::ordered_json::array()}};
  if (!f.json) {
    std::printf("%s %s: %.1f GB of matrices made in %.1f s, copy %.3f TB/s\n", f.shape.c_str(),
                std::string(name(f.dtype)).c_str(), (matrices.dense + matrices.experts) / 1e9, loaded,
                rate / 1e12);
    std::printf("%-8s %6s %6s %8s %10s %10s %8s %12s\n", "step", "batch", "rows", "context", "ms", "floor ms",
                "of it", "rows/s");
  }
  // Seconds; 0 where it does not fit.
  const auto measure = [&](const char* kind, int sequences, int rows, int past, bool verify) -> double {
    const double need = Subject::bytes(specs, sequences, past + rows + 64);
    if (need > static_cast<double>(cuda_free_bytes()) - 6e9) {
      if (!f.json)
        std::printf("%-8s %6d %6d %8d    does not fit: %.0f GB\n", kind, sequences, rows, past, need / 1e9);
      return 0;
    }
    Subject subject(model, ops, upload, sequences, past + rows + 64, verify ? sequences : 0);
    const Batch batch = subject.batch(rows, past, verify);
    if (f.once) {
      subject.once(batch);
      return 0;
    }
    const double t = subject.time(batch, rows > 64 ? 3 : 15);
    const double kv = static_cast<double>(MemoryPools::page_bytes(specs, DType::kBF16)) / kPageTokens *
                      (past + rows) * sequences;
    const double states =
        static_cast<double>(MemoryPools::slot_bytes(specs)) * sequences * (past > 0 ? 2 : 1);
    const double bytes = matrices.of(sequences * rows) + kv + states, floor = bytes / rate;
    out["steps"].push_back({{"kind", kind},
                            {"batch", sequences},
                            {"rows", rows},
                            {"context", past},
                            {"seconds", t},
                            {"bytes", bytes},
                            {"floor_seconds", floor}});
    if (!f.json)
      std::printf("%-8s %6d %6d %8d %10.3f %10.3f %7.0f%% %12.0f\n", kind, sequences, rows, past, t * 1e3,
                  floor * 1e3, 100 * floor / t, sequences * rows / t);
    std::fflush(stdout);
    return t;
  };
  // Tokens a step in the mean: the drafts accepted in turn, and the one drawn behind them.
  double tokens = 1;
  for (int i = 1; i <= f.mtp; ++i) tokens += std::pow(f.acceptance, i);
  // Pass d of the head reads a row for every token of the last step and one for every draft before it, as
  // MtpDrafter does; beyond the depths that have keys of their own, the newest draft alone.
  const auto measure_mtp = [&](int sequences, int past) {
    constexpr int kDepths = 3;
    const double verify = measure("verify", sequences, f.mtp + 1, past, true);
    if (verify == 0) return;
    double drafts = 0;
    Subject head(*model.mtp, ops, upload, sequences, past + kTapeRows + 64, 0);
    for (int d = 0; d < f.mtp; ++d) {
      const int rows = d < kDepths ? static_cast<int>(std::lround(tokens)) + d : 1;
      drafts += head.time(head.batch(rows, past, false), 15);
    }
    const double each = (verify + drafts) / tokens;
    out["steps"].push_back({{"kind", "mtp"},
                            {"batch", sequences},
                            {"context", past},
                            {"drafts", f.mtp},
                            {"acceptance", f.acceptance},
                            {"verify_seconds", verify},
                            {"draft_seconds", drafts},
                            {"tokens_a_step", tokens},
                            {"seconds_a_token", each}});
    if (!f.json)
      std::printf(
          "%-8s %6d %6d %8d %10.3f a token: (verify %.3f + %d drafts %.3f) / %.3f tokens, %.0f tokens/s\n",
          "mtp", sequences, f.mtp + 1, past, each * 1e3, verify * 1e3, f.mtp, drafts * 1e3, tokens,
          sequences / each);
    std::fflush(stdout);
  };
  if (f.mtp > 0 && model.mtp == nullptr) throw Error("{} has no MTP head", f.shape);
  if (!f.once || f.prefill_once) {
    for (const int rows : f.prefill) measure("prefill", 1, rows, 0, false);
  }
  if (f.prefill_once) return 0;
  for (const int context : f.contexts) {
    for (const int batch : f.batches) {
      measure("decode", batch, 1, context - 1, false);
      if (f.once) return 0;
      for (const int k : f.verify) measure("verify", batch, k, context - 1, true);
      if (f.mtp > 0) measure_mtp(batch, context - 1);
    }
  }
  if (f.json) std::printf("%s\n", out.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  try {
    return strata::run(strata::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "step_bench: %s\n", e.what());
    return 1;
  }
}
