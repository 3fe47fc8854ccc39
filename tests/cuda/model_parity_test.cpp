// Every golden model on the CPU and on the GPU. In f32 they must agree. In bf16 they cannot agree better than
// roundings allow: the CPU with the same roundings and otherwise exact ops says how far that is, and the GPU
// may be little worse. Every layer is also compared by itself, given the CPU's input. Where two experts score
// nearly alike bf16 may choose the other: such rows are counted, and the comparison goes on with the CPU's
// choices.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "cuda/model_runs.h"

namespace strata::testing {
namespace {

constexpr double kF32Rows = 1e-4;  // every row's logits, f32
constexpr double kLayer = 2e-2;    // what a layer adds, bf16
constexpr double kOverFloor =
    1.5;  // of the error of exact ops with the same roundings: other roundings fall otherwise
constexpr double kNoise = 1e-3;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden" / name;
}

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden(""))) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Model load(const std::string& name, Ops& ops) {
  Checkpoint checkpoint = Checkpoint::open(golden(name));
  return load_model(checkpoint, ops);
}

// Outputs of the products that are f32 on the GPU: the head's and the routers'.
std::vector<std::int64_t> exact_outputs(const std::string& name) {
  const ModelConfig config = ModelConfig::load(golden(name));
  std::vector<std::int64_t> outputs;
  for (const char* key : {"vocab_size", "num_experts", "n_routed_experts", "num_local_experts"}) {
    const int n = config.text().get_int(key, 0);
    outputs.insert(outputs.end(), {n, n + 1});  // a router may hold the shared expert's gate too
  }
  return outputs;
}

// Rows whose choices differ, and a name for the first few: the number of the row and of the router.
std::set<std::size_t> differing_rows(const ModelRun& got, const ModelRun& want, int& choices,
                                     std::string& names) {
  std::set<std::size_t> rows;
  if (got.chosen.size() != want.chosen.size()) {
    ADD_FAILURE() << got.chosen.size() << " choices recorded, " << want.chosen.size() << " made";
    return rows;
  }
  const std::vector<bool> padding = padding_rows();
  const std::vector<Step> steps = model_steps();
  const std::size_t routers = want.chosen.size() / want.streams.size();
  std::size_t row0 = 0;
  for (std::size_t call = 0; call < want.chosen.size(); ++call) {
    const std::size_t step = call / routers;
    const std::size_t step_rows = rows_of(steps[step]);
    const auto &a = got.chosen[call].expert, &b = want.chosen[call].expert;
    const std::size_t k = b.size() / step_rows;
    for (std::size_t r = 0; r < step_rows; ++r) {
      if (padding[row0 + r]) continue;
      const std::set<int> mine(a.begin() + static_cast<std::ptrdiff_t>(r * k),
                               a.begin() + static_cast<std::ptrdiff_t>((r + 1) * k));
      int missing = 0;
      for (std::size_t j = 0; j < k; ++j) missing += mine.contains(b[r * k + j]) ? 0 : 1;
      if (missing == 0) continue;
      choices += missing;
      if (rows.insert(row0 + r).second && rows.size() <= 4)
        names += fmt::format(" {} (router {})", row0 + r, call % routers);
    }
    if (call % routers == routers - 1) row0 += step_rows;
  }
  return rows;
}

class ModelParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(ModelParity, F32) {
  RoundedOps cpu(false, {});
  RecordingCudaOps gpu({.activation = DType::kF32});
  const Model on_cpu = load(GetParam(), cpu), on_gpu = load(GetParam(), gpu);
  const ModelRun want = run_model(on_cpu, cpu, DType::kF32), got = run_model(on_gpu, gpu);
  int choices = 0;
  std::string names;
  EXPECT_TRUE(differing_rows(got, want, choices, names).empty()) << names;
  const double most = tenths(row_errors(got, want), 10);
  EXPECT_LT(most, kF32Rows);
  std::printf("  %-18s f32: relative error of a row's logits at most %.1e\n", GetParam().c_str(), most);
}

TEST_P(ModelParity, BF16) {
  RoundedOps cpu(false, {}), rounded(true, exact_outputs(GetParam()));
  RecordingCudaOps gpu({.activation = DType::kBF16});
  const Model on_cpu = load(GetParam(), cpu), on_rounded = load(GetParam(), rounded),
              on_gpu = load(GetParam(), gpu);
  const ModelRun want = run_model(on_cpu, cpu, DType::kF32);

  // By itself each layer is right.
  const RunOptions taught{.forced = &want.chosen, .teacher = &want};
  const std::vector<double> layers = layer_errors(run_model(on_gpu, gpu, taught), want),
                            layer_floor =
                                layer_errors(run_model(on_rounded, rounded, DType::kBF16, taught), want);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_LT(layers[i], std::max(kLayer, kOverFloor * layer_floor[i])) << on_gpu.layers[i].name;
    EXPECT_LT(layers[i], kOverFloor * layer_floor[i] + kNoise) << on_gpu.layers[i].name;
  }
  std::printf("  %-18s bf16: layers %.1e (roundings %.1e)", GetParam().c_str(), tenths(layers, 10),
              tenths(layer_floor, 10));

  // All together, the experts being the same.
  const RunOptions forced{.forced = &want.chosen};
  const std::vector<double> errors = row_errors(run_model(on_gpu, gpu, forced), want),
                            floor = row_errors(run_model(on_rounded, rounded, DType::kBF16, forced), want);
  for (const int i : {5, 9})
    EXPECT_LT(tenths(errors, i), kOverFloor * tenths(floor, i) + kNoise) << i << " tenths";
  EXPECT_LT(tenths(errors, 10), 3 * tenths(floor, 10)) << "one row";
  std::printf(", rows: median %.1e (%.1e), most %.1e (%.1e)", tenths(errors, 5), tenths(floor, 5),
              tenths(errors, 10), tenths(floor, 10));

  // And choosing for itself: not more other choices than roundings make.
  if (!want.chosen.empty()) {
    int choices = 0, floor_choices = 0;
    std::string names, floor_names;
    const ModelRun own = run_model(on_gpu, gpu);
    const auto rows = differing_rows(own, want, choices, names);
    differing_rows(run_model(on_rounded, rounded, DType::kBF16), want, floor_choices, floor_names);
    EXPECT_LE(choices, 2 * floor_choices + 16);
    std::printf("; own experts: median %.1e, most %.1e, %d choices differ (%d) in %zu rows:%s",
                tenths(row_errors(own, want), 5), tenths(row_errors(own, want), 10), choices, floor_choices,
                rows.size(), names.c_str());
  }
  std::printf("\n");
}

TEST(ModelParityFault, AnInaccurateOpShows) {
  if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  const std::string name = "qwen3_5_moe_real";
  RoundedOps cpu(false, {});
  RecordingCudaOps gpu({.activation = DType::kBF16});
  const Model on_cpu = load(name, cpu), on_gpu = load(name, gpu);
  const ModelRun want = run_model(on_cpu, cpu, DType::kF32);
  gpu.attention_factor = 1.03F;
  const std::vector<double> layers =
      layer_errors(run_model(on_gpu, gpu, {.forced = &want.chosen, .teacher = &want}), want);
  for (std::size_t i = 0; i < layers.size(); ++i)
    EXPECT_EQ(layers[i] > kLayer, on_gpu.layers[i].name.ends_with(".attention"))
        << on_gpu.layers[i].name << " " << layers[i];
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelParity, ::testing::ValuesIn(golden_models()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace strata::testing
