#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "runtime/philox.h"

namespace strata {
namespace {

TEST(Philox, MatchesThePublishedVectors) {  // Random123's kat_vectors, philox4x32 10
  EXPECT_EQ(philox(0, 0, 0), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ULL, ~0ULL, ~0ULL), (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class Draws {
 public:
  explicit Draws(std::vector<float> logits) : logits_(std::move(logits)) {}
  SamplingParams params;
  TokenHistory history;
  int output_tokens = 0;
  std::vector<int> ends;
  std::vector<std::uint32_t> allowed;

  int at(std::uint64_t position, std::uint64_t seed = 1) {
    return sampler_.sample(logits_, {.params = params, .history = history, .seed = seed, .position = position,
                                     .output_tokens = output_tokens, .end_tokens = ends, .allowed = allowed});
  }
  std::map<int, int> count(int n) {
    std::map<int, int> c;
    for (int i = 0; i < n; ++i) ++c[at(static_cast<std::uint64_t>(i))];
    return c;
  }

 private:
  std::vector<float> logits_;
  Sampler sampler_;
};

// Pearson's statistic of counts against probabilities.
double chi_square(const std::map<int, int>& counts, const std::vector<double>& p, int n) {
  double x = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const auto at = counts.find(static_cast<int>(i));
    const double seen = at == counts.end() ? 0 : at->second, want = p[i] * n;
    if (want > 0) x += (seen - want) * (seen - want) / want;
    else EXPECT_EQ(seen, 0) << i;
  }
  return x;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature, const std::vector<bool>& keep = {}) {
  std::vector<double> p;
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    p.push_back(keep.empty() || keep[i] ? std::exp(static_cast<double>(logits[i]) / temperature) : 0);
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return p;
}

const std::vector<float> kLogits = {1.0F, 3.0F, 0.5F, 2.0F, 3.0F, -1.0F, 2.5F, 0.0F};

TEST(Sampler, TheDistributionIsTheSoftmaxOfWhatIsKept) {  // chi square, 7 degrees of freedom: 24.3 is p = 0.001
  constexpr int kDraws = 20000;
  Draws all(kLogits);
  EXPECT_LT(chi_square(all.count(kDraws), softmax(kLogits, 1), kDraws), 24.3);
  Draws warm(kLogits);
  warm.params.temperature = 1.7F;
  EXPECT_LT(chi_square(warm.count(kDraws), softmax(kLogits, 1.7), kDraws), 24.3);
  EXPECT_GT(chi_square(warm.count(kDraws), softmax(kLogits, 1), kDraws), 100);  // the test can fail
  Draws top3(kLogits);
  top3.params.top_k = 3;
  EXPECT_LT(chi_square(top3.count(kDraws), softmax(kLogits, 1, {false, true, false, false, true, false, true, false}), kDraws), 13.8);
  Draws nucleus(kLogits);  // 1 and 4 hold 0.31 each, 6 0.19, 3 0.11
  nucleus.params.top_p = 0.7F;
  EXPECT_LT(chi_square(nucleus.count(kDraws), softmax(kLogits, 1, {false, true, false, false, true, false, true, false}), kDraws), 13.8);
  Draws minp(kLogits);  // exp(2 - 3) = 0.37 of the best
  minp.params.min_p = 0.35F;
  EXPECT_LT(chi_square(minp.count(kDraws), softmax(kLogits, 1, {false, true, false, true, true, false, true, false}), kDraws), 16.3);
}

TEST(Sampler, GreedyTakesTheLowestIdOfATie) {
  for (const auto& change : std::vector<std::function<void(SamplingParams&)>>{
           [](SamplingParams& p) { p.temperature = 0; }, [](SamplingParams& p) { p.top_p = 0; }, [](SamplingParams& p) { p.top_k = 1; }}) {
    Draws d(kLogits);
    change(d.params);
    for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(d.at(i, i), 1);
  }
}

TEST(Sampler, TopKAbsentZeroAndMinusOneAreOff) {  // case 42
  for (const int k : {0, -1}) {
    Draws d(kLogits);
    d.params.top_k = k;
    EXPECT_EQ(d.count(500), Draws(kLogits).count(500));
    EXPECT_GE(d.count(20).size(), 3U);
  }
}

TEST(Sampler, ADrawDependsOnSeedAndPositionAlone) {
  Draws a(kLogits), b(kLogits);
  (void)b.count(100);  // earlier draws leave nothing behind
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(a.at(i, 9), b.at(i, 9));
  int differ = 0;
  for (std::uint64_t i = 0; i < 100; ++i) differ += a.at(i, 9) != a.at(i, 2) ? 1 : 0;
  EXPECT_GT(differ, 50);
}

TEST(Sampler, PenaltiesBiasAndMasks) {
  Draws d(kLogits);
  d.params.temperature = 0;
  d.history.output = {{1, 2}};
  d.params.presence_penalty = 0.1F;
  EXPECT_EQ(d.at(0), 4);
  d.params.frequency_penalty = -0.2F;  // twice: +0.4 - 0.1
  EXPECT_EQ(d.at(0), 1);
  d.params.logit_bias = {{1, -100}, {5, 50}};
  EXPECT_EQ(d.at(0), 5);
  d.params.min_tokens = 3;
  d.ends = {5};
  EXPECT_EQ(d.at(0), 4);
  d.output_tokens = 3;
  EXPECT_EQ(d.at(0), 5);
  d.allowed = {0b00001100};
  EXPECT_EQ(d.at(0), 3);
  d.allowed = {0};
  EXPECT_EQ(d.at(0), -1);

  Draws r(kLogits);
  r.params.temperature = 0;
  r.params.repetition_penalty = 2;
  r.history.seen = {{1, 1}, {4, 1}, {5, 1}};  // 3 -> 1.5, -1 -> -2
  EXPECT_EQ(r.at(0), 6);
}

TEST(Sampler, LogprobsAreOfTheUnchangedLogits) {
  Sampler s;
  const TokenLogprob l = s.logprob(kLogits, 3, 3);
  const auto p = softmax(kLogits, 1);
  EXPECT_NEAR(l.logprob, std::log(p[3]), 1e-6);
  ASSERT_EQ(l.top.size(), 3U);
  EXPECT_EQ(l.top[0].first, 1);
  EXPECT_EQ(l.top[1].first, 4);
  EXPECT_NEAR(l.top[2].second, std::log(p[6]), 1e-6);
  EXPECT_EQ(s.logprob(kLogits, 3, 100).top.size(), kLogits.size());
}

TEST(Sampler, LargeVocabulariesSortOnlyWhatTheyNeed) {
  std::vector<float> logits(50000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 1000) / 1000;
  Draws d(logits);
  d.params.top_p = 0.5F;
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_GE(logits[static_cast<std::size_t>(d.at(i))], 0.3F);
}

}  // namespace
}  // namespace strata
