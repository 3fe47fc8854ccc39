// What is drawn with drafts has the distribution of what is drawn without: Pearson's chi-square test through
// the engine's verify steps over many seeds, on a vocabulary of eight tokens. Rules for rejection that change
// the distribution are planted and seen.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/device_like_ops.h"
#include "runtime/scripted_drafter.h"

namespace strata {
namespace {

constexpr int kFirst = 40, kTokens = 8, kSeeds = 6000, kDrafts = 3;
constexpr float kTemperature = 1.5F;
constexpr double kLimit = 24.3;  // of chi-square with 7 degrees of freedom at p = 0.001

// `begin`, then any of the eight tokens.
class SmallVocabulary final : public Constraint {
 public:
  explicit SmallVocabulary(int begin) : begin_(begin) {}
  void allowed(std::span<std::uint32_t> mask) const override {
    for (int t = taken_ == 0 ? begin_ : kFirst; t < (taken_ == 0 ? begin_ + 1 : kFirst + kTokens); ++t)
      mask[static_cast<std::size_t>(t) / 32] |= 1U << (t % 32);
  }
  bool accept(int) override { return ++taken_, true; }
  bool complete() const override { return false; }
  bool closed() const override { return false; }
  std::shared_ptr<Constraint> clone() const override { return std::make_shared<SmallVocabulary>(*this); }

 private:
  int begin_, taken_ = 0;
};

enum class Rule {
  kOurs,         // a draft is right when it is what is drawn
  kPublished,    // kept with its probability, else a draw from the others (Leviathan et al. 2023)
  kKeepsAll,     // planted: every draft is right
  kMayComeBack,  // planted: kept with its probability, else a draw that does not exclude it
};

// Draws by a rule for the rows that a draft follows.
class RuleDevice final : public HostStepDevice {
 public:
  explicit RuleDevice(Rule rule) : rule_(rule) {}
  Batch upload(const Batch& host, std::span<const TokenSource> drawn) override {
    return batch_ = HostStepDevice::upload(host, drawn);
  }

 private:
  void draw_rows(const Tensor& logits, std::span<const DrawRow> rows, Drawing& to) override {
    std::vector<DrawRow> again(rows.begin(), rows.end());
    for (DrawRow& r : again) r.uniform = std::fmod(r.uniform * 1048573, 1);  // another number for whether
    Drawing kept{.drawn = {}, .tops = to.tops};
    HostStepDevice::draw_rows(logits, again, kept);
    std::vector<bool> keep;
    std::vector<LogitEdit> without(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const int draft = draft_after(rows[i]);
      keep.push_back(draft >= 0 && (rule_ == Rule::kKeepsAll || kept.drawn[i].token == draft));
      again[i] = rows[i];
      if (draft < 0 || rule_ != Rule::kPublished) continue;
      without[i] = {.token = draft, .subtract = INFINITY};
      again[i].edits = {&without[i], 1};
    }
    HostStepDevice::draw_rows(logits, rule_ == Rule::kOurs ? rows : again, to);
    for (std::size_t i = 0; i < rows.size() && rule_ != Rule::kOurs; ++i)
      if (keep[i]) to.drawn[i].token = draft_after(rows[i]);
  }

  int draft_after(const DrawRow& r) const {
    const int row = batch_.logit_rows.data<int>()[r.row];
    const int *tokens = batch_.tokens.data<int>(), *sequence = batch_.sequence.data<int>();
    return row + 1 < batch_.shape.rows && sequence[row + 1] == sequence[row] ? tokens[row + 1] : -1;
  }

  Rule rule_;
  Batch batch_;
};

class RuleOps final : public CpuOps {
 public:
  explicit RuleOps(Rule rule) : CpuOps(CpuOptions{.threads = 2}), rule_(rule) {}
  std::unique_ptr<StepDevice> make_step_device(const StepLimits&) override {
    return std::make_unique<RuleDevice>(rule_);
  }

 private:
  Rule rule_;
};

class DraftDistribution : public testing::Test {
 protected:
  // Probabilities of the eight tokens after the prompt and `then`, from the model's own logits.
  static std::vector<double> probabilities(const std::vector<int>& then) {
    Request r = prompt();
    r.prompt.insert(r.prompt.end(), then.begin(), then.end());
    r.max_tokens = 1;
    r.logprobs = test_model("qwen3_next").info.vocab_size;
    EngineFixture e("qwen3_next", {});
    std::vector<double> p(kTokens);
    double sum = 0;
    const Answer answer = e.solo(r);
    for (const auto& [token, logprob] : answer.logprobs.at(0).top) {
      if (token < kFirst || token >= kFirst + kTokens) continue;
      sum += p[static_cast<std::size_t>(token - kFirst)] = std::exp(logprob / kTemperature);
    }
    for (double& x : p) x /= sum;
    return p;
  }
  static Request prompt() { return greedy(test_prompt(9, 3), 1 + kDrafts); }

  // The tokens that are likely after what came before them, as drafts; tokens[0] is what every answer begins
  // with.
  static std::vector<int> likely() {
    std::vector<int> tokens = {kFirst + 2};
    while (tokens.size() <= kDrafts) {
      const auto p = probabilities(tokens);
      tokens.push_back(kFirst + static_cast<int>(std::max_element(p.begin(), p.end()) - p.begin()));
    }
    return tokens;
  }

  static std::vector<std::vector<int>> answers(const TestModel& model, const std::vector<int>& drafts) {
    EngineOptions o;
    o.speculate = "ngram";
    o.draft_tokens = kDrafts;
    o.prefix_cache = false;
    EngineFixture e(model, o, scripted({drafts}));
    for (int seed = 1; seed <= kSeeds; ++seed) {
      Request r = prompt();
      r.sampling.ignore_eos = true;
      r.sampling.temperature = kTemperature;
      r.sampling.seed = static_cast<std::uint64_t>(seed);
      r.constraint = std::make_shared<SmallVocabulary>(drafts[0]);
      EXPECT_GE(e.submit(r), 0) << e.error;
    }
    e.run();
    std::vector<std::vector<int>> out;
    for (const Answer& a : e.answers) out.push_back(a.tokens);
    return out;
  }

  // Of the tokens that came after `then`, which so many answers begin with at least.
  static double chi_square(const std::vector<std::vector<int>>& answers, const std::vector<int>& then,
                           int at_least) {
    std::vector<int> seen(kTokens);
    int n = 0;
    for (const auto& a : answers) {
      EXPECT_EQ(a.size(), 1U + kDrafts);
      if (!std::equal(then.begin(), then.end(), a.begin())) continue;
      ++seen.at(static_cast<std::size_t>(a[then.size()] - kFirst));
      ++n;
    }
    EXPECT_GE(n, at_least);
    const auto p = probabilities(then);
    double x = 0, rare = 0;  // tokens expected less than five times count together, as one
    int seen_rare = 0;
    const auto add = [&](int had, double want) { x += std::pow(had - want, 2) / want; };
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (n * p[i] >= 5)
        add(seen[i], n * p[i]);
      else
        rare += n * p[i], seen_rare += seen[i];
    }
    if (rare > 0) add(seen_rare, std::max(rare, 1.0));
    return x;
  }

  static void expect_unchanged(const TestModel& model) {
    const auto t = likely();
    const auto all = answers(model, t);
    const int other = t[1] == kFirst ? kFirst + 1 : kFirst;
    EXPECT_LT(chi_square(all, {t[0]}, kSeeds), kLimit);          // right or wrong
    EXPECT_LT(chi_square(all, {t[0], t[1]}, 400), kLimit);       // after one that was right
    EXPECT_LT(chi_square(all, {t[0], t[1], t[2]}, 50), kLimit);  // after two
    EXPECT_LT(chi_square(all, {t[0], other}, 50), kLimit);       // after one that was wrong
  }
  static void expect_seen(Rule fault) {
    const auto t = likely();
    const auto all = answers(load_test_model("qwen3_next", std::make_shared<RuleOps>(fault)), t);
    EXPECT_GT(chi_square(all, {t[0]}, kSeeds), 10 * kLimit);
    EXPECT_GT(chi_square(all, {t[0], t[1]}, 400), 10 * kLimit);
  }
};

TEST_F(DraftDistribution, IsThatOfTheModel) { expect_unchanged(test_model("qwen3_next")); }

TEST_F(DraftDistribution, IsThatOfTheModelWhereRowsAreDrawnTogether) {
  expect_unchanged(load_test_model("qwen3_next", std::make_shared<RuleOps>(Rule::kOurs)));
}

TEST_F(DraftDistribution, ThePublishedRuleGivesTheSame) {
  expect_unchanged(load_test_model("qwen3_next", std::make_shared<RuleOps>(Rule::kPublished)));
}

TEST_F(DraftDistribution, PlantedEveryDraftIsRight) { expect_seen(Rule::kKeepsAll); }

TEST_F(DraftDistribution, PlantedARejectedDraftMayComeBack) { expect_seen(Rule::kMayComeBack); }

}  // namespace
}  // namespace strata
