// Every golden model on the CPU and on the GPU: logits of prompts in chunks, several sequences together, and
// verify rows with and without tapes.
#include <algorithm>
#include <filesystem>

#include "cuda/parity.h"
#include "model/registry.h"

namespace strata::testing {
namespace {

constexpr int kSlots = 6;

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden")) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Model load(const std::string& name, Ops& ops) {
  Checkpoint checkpoint = Checkpoint::open(std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden" / name);
  return load_model(checkpoint, ops);
}

// Memory of all layers; every float a number so large that reading it shows.
std::vector<Memory> memory_of(const Model& model, Ops& ops, int pages, std::deque<Buffer>& buffers,
                              DType kv_dtype) {
  const auto make = [&](const Shape& shape, DType dtype) {
    buffers.push_back(ops.allocate(bytes_of(dtype, shape.elements())));
    return buffers.back().view(dtype, shape);
  };
  std::vector<Memory> all;
  for (const StateSpec& spec : model.states()) {
    if (const auto* kv = std::get_if<PagedKv>(&spec)) {
      KvView view{make({pages, kPageTokens, kv->heads, kv->head_dim}, kv_dtype), {}, {}};
      const int values = kv->value_dim < 0 ? kv->head_dim : kv->value_dim;
      if (values > 0) view.v = make({pages, kPageTokens, kv->heads, values}, kv_dtype);
      if (kv->index_dim > 0) view.index = make({pages, kPageTokens, kv->index_dim}, DType::kF32);
      all.emplace_back(view);
    } else if (const auto* recurrent = std::get_if<Recurrent>(&spec)) {
      StateView view;
      for (const Shape& shape : recurrent->tensors) {
        Shape slots{kSlots};
        for (int i = 0; i < shape.rank(); ++i) slots.append(shape[i]);
        view.tensors.push_back(make(slots, DType::kF32));
      }
      for (const int n : recurrent->tape) view.tapes.push_back(make({2, kTapeRows, n}, DType::kF32));
      all.emplace_back(view);
    } else {
      all.emplace_back(Stateless{});
    }
  }
  return all;
}

class ModelParity : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

// Steps as the runtime makes them.
std::vector<Step> steps() {
  const auto verify = [](int sequence, int start, int rows, int replay) {
    return RowRun{.sequence = sequence,
                  .start = start,
                  .rows = rows,
                  .state_in = sequence,
                  .tape = 0,
                  .replay = replay,
                  .state_out = sequence};
  };
  return {
      {run_of(0, 0, 70), run_of(1, 0, 5)},
      {run_of(1, 5, 60),
       run_of(0, 70, 1),
       {.sequence = 0, .start = 0, .rows = 2, .saves = {{1, kSlots - 1}}, .padding = true}},
      {run_of(0, 71, 50), run_of(1, 65, 1)},
      {verify(0, 121, 5, 0), run_of(1, 66, 1)},
      {verify(0, 124, 4, 3)},  // three of five were right
      {{.sequence = 1, .start = 67, .rows = 4, .state_in = 1, .saves = {{0, 2}, {1, 3}, {2, 4}, {3, 1}}}},
      {{.sequence = 1, .start = 69, .rows = 3, .state_in = 3, .saves = {{2, 1}}}},  // the slot after the
                                                                                    // second row
  };
}

TEST_P(ModelParity, LogitsAgree) {
  if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  const auto& [name, activation] = GetParam();
  CpuOps cpu(CpuOptions{});
  CudaOps gpu({.activation = activation});
  cuda::BatchUpload upload(gpu, 4 << 20);
  const Model on_cpu = load(name, cpu), on_gpu = load(name, gpu);
  const PageTables tables({160, 100}, 3);
  std::deque<Buffer> buffers;
  const auto cpu_memory = memory_of(on_cpu, cpu, tables.total, buffers, DType::kF32);
  const auto gpu_memory = memory_of(on_gpu, gpu, tables.total, buffers, activation);
  std::vector<double> errors;  // of each row
  for (const Step& step : steps()) {
    const HostBatch host(step, tables);
    Batch batch = host.batch;
    const HostTensor tokens({batch.shape.rows}, DType::kI32), all_rows({batch.shape.rows}, DType::kI32);
    for (int t = 0; t < batch.shape.rows; ++t) {
      tokens.view().data<int>()[t] = 2 + (batch.positions.data<int>()[t] * 37 + 11) % 300;
      all_rows.view().data<int>()[t] = t;
    }
    batch.tokens = tokens;
    batch.logit_rows = all_rows;
    batch.shape.logit_rows = batch.shape.rows;
    const Scratch scratch(cpu.arena()), device_scratch(gpu.arena());
    const Tensor want = on_cpu.forward(batch, cpu_memory, cpu).logits;
    const Tensor logits = on_gpu.forward(upload.send(batch), gpu_memory, gpu).logits;
    std::vector<float> got(static_cast<std::size_t>(logits.elements()));
    gpu.copy_to_host(got.data(), logits);
    gpu.synchronize();
    int row = 0;
    for (const RowRun& run : step) {
      for (int i = 0; i < run.rows; ++i, ++row) {
        double error = 0, norm = 0;
        for (std::int64_t c = 0; c < want[1] && !run.padding; ++c) {
          const double a = got[static_cast<std::size_t>(row * want[1] + c)], b = want.row<float>(row)[c];
          error += (a - b) * (a - b);
          norm += b * b;
        }
        if (!run.padding) errors.push_back(std::isfinite(error) ? std::sqrt(error / norm) : INFINITY);
      }
    }
  }
  std::sort(errors.begin(), errors.end());
  // In f32 every row must agree. In bf16 most: where two experts score nearly alike, the other one may be
  // chosen.
  const double most = errors.back(), median = errors[errors.size() / 2];
  EXPECT_LT(activation == DType::kF32 ? most : median, activation == DType::kF32 ? 1e-4 : 5e-2);
  EXPECT_LT(most, 2.0);
  std::printf("  %-20s %s relative error of a row's logits: median %.1e, largest %.1e\n", name.c_str(),
              std::string(strata::name(activation)).c_str(), median, most);
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelParity,
                         ::testing::Combine(::testing::ValuesIn(golden_models()),
                                            ::testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" + std::string(name(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace strata::testing
