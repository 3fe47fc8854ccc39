// The cost of adapters: decode steps of 16 and 64 sequences where each has one of 1, 4 or 16 adapters, beside
// the base alone, in turns. Medians of steps and their ratio to the base's.
//   build/cpu/bench/lora_bench [MODEL ADAPTER]      default: the embedded model and its `bracket` adapter,
//   once a slot
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "loader/checkpoint.h"
#include "model/lora_bank.h"
#include "model/registry.h"
#include "ops/cpu/cpu_ops.h"
#include "runtime/batch_builder.h"
#include "runtime/memory_pools.h"

namespace strata {
namespace {

constexpr int kContext = 100, kRounds = 60, kWarm = 5;

class Bench {
 public:
  Bench(const std::filesystem::path& model, const std::filesystem::path& adapter)
      : model_(load(model)),
        bank_(model_, ops_, {.adapters = 16}),
        pools_(model_.states(), {.pages = 64 * 2, .slots = 64, .tapes = 0}, DType::kF32, ops_) {
    const LoraAdapter loaded = load_lora_adapter(adapter);
    for (int slot = 0; slot < 16; ++slot) bank_.put(slot, loaded);
    std::printf("%d targets, rank %d, %.1f MiB an adapter\n", static_cast<int>(loaded.targets.size()),
                loaded.rank, static_cast<double>(bank_.bytes(0)) / (1 << 20));
  }

  // Seconds of a step of `sequences` rows; adapters 0 = base alone.
  double step(int sequences, int adapters) {
    builder_.clear();
    for (int s = 0; s < sequences; ++s) {
      const int token = 10 + s, pages[] = {2 * s, 2 * s + 1};
      const int row = builder_.add({.tokens = {&token, 1},
                                    .start = kContext,
                                    .pages = pages,
                                    .state_in = s,
                                    .adapter = adapters > 0 ? s % adapters : -1});
      builder_.save(row, s);
      builder_.want_logits(row);
    }
    Batch batch = builder_.batch();
    if (batch.shape.adapters) batch.lora = &bank_.tables();
    const auto start = std::chrono::steady_clock::now();
    const Scratch scratch(ops_.arena());
    model_.forward(batch, pools_.views(), ops_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Model load(const std::filesystem::path& path) {
    Checkpoint checkpoint = Checkpoint::open(path);
    return load_model(checkpoint, ops_);
  }

  CpuOps ops_;
  Model model_;
  LoraBank bank_;
  MemoryPools pools_;
  BatchBuilder builder_;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

int run(const std::filesystem::path& model, const std::filesystem::path& adapter) {
  Bench bench(model, adapter);
  const int counts[] = {0, 1, 4, 16};
  for (const int sequences : {16, 64}) {
    std::vector<double> times[4];
    for (int round = 0; round < kWarm + kRounds; ++round) {
      for (int i = 0; i < 4; ++i) {
        const double t = bench.step(sequences, counts[i]);
        if (round >= kWarm) times[i].push_back(t);
      }
    }
    const double base = median(times[0]);
    std::printf("batch of %d: base %.3f ms", sequences, base * 1e3);
    for (int i = 1; i < 4; ++i)
      std::printf("; %d adapters %.3f ms, x %.2f", counts[i], median(times[i]) * 1e3,
                  median(times[i]) / base);
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  const std::filesystem::path embedded = std::filesystem::path(STRATA_SOURCE_DIR) / "models/tiny-hybrid";
  try {
    return strata::run(argc == 3 ? argv[1] : embedded, argc == 3 ? argv[2] : embedded / "lora/bracket");
  } catch (const strata::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
