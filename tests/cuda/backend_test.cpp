// The backend around the ops: no GPU, uploads, graphs.
#include "base/error.h"
#include "cuda/parity.h"

namespace strata::testing {
namespace {

TEST(CudaBackend, SaysSoWithoutGpu) {
  if (cuda_devices() > 0) GTEST_SKIP() << "this machine has one";
  std::string why;
  EXPECT_EQ(cuda_devices(&why), 0);
  EXPECT_FALSE(why.empty());
  try {
    make_cuda_ops();
    FAIL() << "made a backend without a device";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no CUDA device"), std::string::npos) << e.what();
  }
}

class CudaBackendOnGpu : public Parity {};
STRATA_PARITY(CudaBackendOnGpu);

TEST_P(CudaBackendOnGpu, GraphReplaysOnNewData) {
  const PageTables tables({200, 200}, 5);
  const Pair x = activations({40, 24}, 70), out = poisoned({2, 24});
  const auto device = gpu().make_step_device({.rows = 64, .sequences = 8, .pages = 8, .logit_rows = 64, .vocab = 100});
  std::vector<const void*> addresses;
  std::unique_ptr<Recording> recording;
  for (int step = 0; step < 5; ++step) {
    const HostBatch host({{.sequence = 0, .start = step, .rows = 1 + step % 2}, {.sequence = 1, .start = 3, .rows = 2 - step % 2}}, tables);
    Batch fixed = host.batch;
    fixed.shape.longest_run = 2, fixed.shape.longest_context = 128;
    HostTensor rows({2}, DType::kI32);
    rows.view().data<std::int32_t>()[0] = 7 * step;
    rows.view().data<std::int32_t>()[1] = 39 - step;
    fixed.logit_rows = rows;
    const Batch batch = device->upload(fixed);
    addresses.push_back(batch.logit_rows.raw());
    const auto work = [&, batch] {
      const Scratch scratch(gpu().arena());
      const Tensor picked = gpu().make({2, 24});
      gpu().gather_rows(picked, x.gpu, batch.logit_rows);
      gpu().rms_norm(out.gpu, picked, {}, 1e-6F);
    };
    if (step == 0) work();
    if (step == 1) recording = device->record(work);
    if (step >= 1) recording->replay();
    const Tensor picked = cpu().make({2, 24});
    cpu().gather_rows(picked, x.cpu, fixed.logit_rows);
    cpu().rms_norm(out.cpu, picked, {}, 1e-6F);
    EXPECT_LT(distance(out), tolerance()) << "step " << step;
  }
  EXPECT_EQ(device->counters().replays, 4U);
  EXPECT_EQ(device->counters().recordings, 1U);
  EXPECT_EQ(std::count(addresses.begin(), addresses.end(), addresses[0]), 5);
}

TEST_P(CudaBackendOnGpu, PlacedNumbersStayWhileOthersAreSent) {
  const auto device = gpu().make_step_device({.rows = 64, .sequences = 8, .pages = 8, .logit_rows = 64, .vocab = 100});
  std::vector<std::pair<int, Tensor>> placed;
  for (int i = 0; i < 3000; ++i) {  // three times round: a piece must stay for the last MiB
    placed.emplace_back(i, device->place(std::vector<int>(256, i), {256}));
    if (placed.size() > 900) placed.erase(placed.begin());
    if (i % 500 != 0) continue;
    for (const auto& [number, tensor] : placed) {
      std::vector<int> back(256);
      gpu().read(back.data(), tensor);
      ASSERT_EQ(back, std::vector<int>(256, number));
    }
  }
}

// More draws than are kept, some never finished, some finished long after.
// Few numbers travel with a launch, more by a copy: both whole, in order, and not over what lies behind them.
TEST_P(CudaBackendOnGpu, NumbersOfEverySizeArrive) {
  const auto device = gpu().make_step_device({.rows = 64, .sequences = 8, .pages = 8, .logit_rows = 64, .vocab = 100});
  std::vector<std::pair<Tensor, std::vector<int>>> placed;
  for (const int n : {1, 3, 4, 5, 255, 256, 257, 2047, 2048, 2049, 9000}) {
    std::vector<int> numbers(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) numbers[static_cast<std::size_t>(i)] = 1000 * n + i;
    placed.emplace_back(device->place(numbers, {n}), numbers);
  }
  for (const auto& [there, numbers] : placed) {
    std::vector<int> got(numbers.size());
    gpu().read(got.data(), there);
    EXPECT_EQ(got, numbers) << numbers.size();
  }
}

TEST_P(CudaBackendOnGpu, BatchesTakeTokensThatAreBeingDrawn) {
  constexpr int kVocab = 100, kRows = 5;
  const auto device = gpu().make_step_device({.rows = 64, .sequences = 8, .pages = 8, .logit_rows = 64, .vocab = kVocab});
  const PageTables tables({200, 200}, 5);
  const Buffer memory = gpu().allocate(sizeof(float) * kRows * kVocab);
  const Tensor logits = memory.view(DType::kF32, {kRows, kVocab});
  std::vector<DrawRow> rows;
  for (int i = 0; i < kRows; ++i) rows.push_back({.row = i, .temperature = 0});
  const auto best = [](int round, int row) { return (7 * round + 11 * row + 1) % kVocab; };
  const auto nothing = [](int round, int row) { return row == 3 && round % 3 == 0; };
  std::vector<std::uint64_t> draws;
  for (int round = 0; round < 1500; ++round) {
    std::vector<float> host(std::size_t{kRows} * kVocab);
    for (int row = 0; row < kRows; ++row) {
      for (int t = 0; t < kVocab; ++t) {
        host[static_cast<std::size_t>(row * kVocab + t)] = nothing(round, row) ? -INFINITY : t == best(round, row) ? 2.0F : 1.0F;
      }
    }
    gpu().write(logits, host.data());
    draws.push_back(device->begin_draw(logits, rows));
    if (round < 3) continue;
    const HostBatch batch({{.sequence = 0, .start = round % 50, .rows = 3}, {.sequence = 1, .start = 3, .rows = 2}}, tables);
    const auto from = [&](int before) { return draws[static_cast<std::size_t>(round - before)]; };
    const std::vector<TokenSource> sources = {{.row = 1, .drawn = from(0) + 3}, {.row = 2, .drawn = from(2) + 4}, {.row = 4, .drawn = from(0)}};
    const Batch there = device->upload(batch.batch, sources);
    std::vector<int> tokens(5), given(5);
    gpu().read(tokens.data(), there.tokens);
    std::copy_n(batch.batch.tokens.data<int>(), 5, given.begin());
    given[1] = nothing(round, 3) ? 0 : best(round, 3);
    given[2] = best(round - 2, 4);
    given[4] = best(round, 0);
    ASSERT_EQ(tokens, given) << "round " << round;
    if (round % 4 != 0) continue;
    const int before = round % 3;
    const auto drawn = device->finish_draw(from(before));
    ASSERT_EQ(drawn.size(), rows.size());
    for (int row = 0; row < kRows; ++row) {
      EXPECT_EQ(drawn[static_cast<std::size_t>(row)].token, nothing(round - before, row) ? -1 : best(round - before, row));
    }
  }
}

TEST_P(CudaBackendOnGpu, ScratchStaysWhereItIs) {
  const auto take = [&] {
    const Scratch scratch(gpu().arena());
    const Tensor a = gpu().make({100, 1000}), b = gpu().make({3000, 30000});
    return std::pair{a.raw(), b.raw()};
  };
  const auto first = take();
  const auto blocks = gpu().arena().blocks();
  EXPECT_EQ(take(), first);
  EXPECT_EQ(gpu().arena().blocks(), blocks);
}

TEST_P(CudaBackendOnGpu, MoreMemoryThanThereIs) { EXPECT_THROW(gpu().allocate(std::size_t{1} << 44), Error); }

}  // namespace
}  // namespace strata::testing
