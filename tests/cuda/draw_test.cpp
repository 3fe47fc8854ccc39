// Tokens drawn on the GPU against the CPU's sampler: the same ones from the same logits.
#include <cmath>
#include <random>

#include "base/error.h"
#include "cuda/parity.h"
#include "runtime/sampler.h"

namespace strata::testing {
namespace {

class DrawOnGpu : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    gpu_ = std::make_unique<CudaOps>(CudaOptions{});
    vocab_ = GetParam();
    device_ =
        gpu_->make_step_device({.rows = 256, .sequences = 4, .pages = 4, .logit_rows = 256, .vocab = vocab_});
    buffer_ =
        gpu_->allocate(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(vocab_) * sizeof(float));
  }
  void TearDown() override {
    device_.reset();
    buffer_ = {};
    gpu_.reset();
  }

  // The rows of kRows x vocab logits; `grain` > 0 makes ties.
  void fill(unsigned seed, float spread, float grain) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    host_.resize(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(vocab_));
    for (float& x : host_) {
      x = normal(random);
      if (grain > 0) x = std::round(x / grain) * grain;
    }
    send();
  }
  void send() {
    logits_ = buffer_.view(DType::kF32, {kRows, vocab_});
    gpu_->write(logits_, host_.data());
  }
  std::span<const float> row(int r) const {
    return std::span(host_).subspan(static_cast<std::size_t>(r) * static_cast<std::size_t>(vocab_),
                                    static_cast<std::size_t>(vocab_));
  }

  // Draws on both sides; the number of rows that differ.
  int compare(const std::vector<DrawRow>& rows) {
    const auto got = device_->draw(logits_, rows);
    int different = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<std::pair<float, int>> top;
      const Drawn want = sampler_.draw(row(rows[i].row), rows[i], top);
      different += got[i].token != want.token ? 1 : 0;
      EXPECT_EQ(got[i].finite, want.finite);
      if (rows[i].logprobs < 0 || got[i].token != want.token || want.token < 0 || !want.finite) continue;
      EXPECT_NEAR(got[i].logprob, want.logprob, 1e-4);
      EXPECT_EQ(got[i].top.size(), want.top.size());
      for (std::size_t t = 0; t < std::min(got[i].top.size(), want.top.size()); ++t) {
        EXPECT_EQ(got[i].top[t].second, want.top[t].second) << "place " << t;
        EXPECT_NEAR(got[i].top[t].first, want.top[t].first, 1e-4);
      }
    }
    return different;
  }

  static constexpr int kRows = 7;
  int vocab_ = 0;
  std::unique_ptr<CudaOps> gpu_;
  std::unique_ptr<StepDevice> device_;
  Buffer buffer_;
  Tensor logits_;
  std::vector<float> host_;
  Sampler sampler_;
};

TEST_P(DrawOnGpu, EveryParameterAsOnTheCpu) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> uniform(0, 1);
  int all = 0, different = 0;
  for (const float grain : {0.0F, 0.25F, 4.0F}) {
    for (const float spread : {1.0F, 3.0F, 8.0F}) {
      fill(static_cast<unsigned>(1 + all), spread, grain);
      std::vector<DrawRow> rows;
      for (const float temperature : {0.0F, 0.3F, 1.0F, 2.5F}) {
        for (const int top_k : {0, 1, 2, 50, 1000}) {
          for (const float top_p : {1.0F, 0.95F, 0.5F, 0.01F, 0.0F}) {
            for (const float min_p : {0.0F, 0.05F}) {
              if (uniform(random) < (vocab_ > 100000 ? 0.8 : 0.3)) continue;  // the CPU takes long
              rows.push_back({.row = static_cast<int>(rows.size()) % kRows,
                              .temperature = temperature,
                              .top_k = top_k,
                              .top_p = top_p,
                              .min_p = min_p,
                              .uniform = uniform(random),
                              .logprobs = static_cast<int>(rows.size()) % 5 - 1});
            }
          }
        }
      }
      all += static_cast<int>(rows.size());
      different += compare(rows);
    }
  }
  EXPECT_EQ(different, 0) << "of " << all;
}

TEST_P(DrawOnGpu, EditsMasksAndScores) {
  std::mt19937 random(5);
  fill(3, 3, 0);
  std::vector<std::vector<LogitEdit>> edits;
  std::vector<std::vector<std::uint32_t>> masks;
  std::vector<DrawRow> rows;
  for (int i = 0; i < 40; ++i) {
    std::vector<LogitEdit> e;
    for (int token = i % 3; token < vocab_; token += 1 + vocab_ / 200) {
      e.push_back({.token = token,
                   .add = static_cast<float>(token % 7) - 3,
                   .repetition = i % 2 == 0 ? 1.3F : 1.0F,
                   .subtract = token % 11 == 0 ? INFINITY : 0.25F * static_cast<float>(token % 5)});
    }
    std::shuffle(e.begin(), e.end(), random);
    edits.push_back(e);
    std::vector<std::uint32_t> mask((static_cast<std::size_t>(vocab_) + 31) / 32);
    for (auto& word : mask) word = random() & random();
    masks.push_back(mask);
  }
  for (int i = 0; i < 40; ++i) {
    const auto at = static_cast<std::size_t>(i);
    rows.push_back({.row = i % kRows,
                    .temperature = i % 4 == 0 ? 0.0F : 1.0F,
                    .top_p = i % 3 == 0 ? 0.9F : 1.0F,
                    .uniform = (i + 0.5) / 40,
                    .edits = i % 5 == 4 ? std::span<const LogitEdit>{} : edits[at],
                    .allowed = i % 2 == 0 ? std::span<const std::uint32_t>{} : masks[at],
                    .score = i % 10 == 9 ? i % vocab_ : -1,
                    .logprobs = i % 3});
  }
  EXPECT_EQ(compare(rows), 0);
}

TEST_P(DrawOnGpu, NothingMayCome) {
  fill(3, 3, 0);
  const std::vector<std::uint32_t> none((static_cast<std::size_t>(vocab_) + 31) / 32);
  host_[1] = NAN;
  host_[static_cast<std::size_t>(vocab_)] = INFINITY;
  send();
  const std::vector<DrawRow> rows = {
      {.row = 3, .allowed = none}, {.row = 0, .temperature = 0}, {.row = 1, .temperature = 0}};
  const auto got = device_->draw(logits_, rows);
  EXPECT_EQ(got[0].token, -1);
  EXPECT_NE(got[1].token, 1);  // a NaN is never drawn
  EXPECT_TRUE(got[1].finite);
  EXPECT_EQ(got[2].token, 0);
  EXPECT_FALSE(got[2].finite);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, DrawOnGpu, ::testing::Values(5, 320, 8193, 20000, 151936, 262144),
                         [](const auto& test) { return "of_" + std::to_string(test.param); });

TEST(DrawOnGpuOnce, RefusesAVocabularyThatIsTooLarge) {
  if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  CudaOps gpu(CudaOptions{});
  EXPECT_THROW(
      gpu.make_step_device({.rows = 1, .sequences = 1, .pages = 1, .logit_rows = 1, .vocab = 1 << 20}),
      Error);
}

}  // namespace
}  // namespace strata::testing
