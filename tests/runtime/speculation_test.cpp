// Speculative decoding through the whole engine: the cases from the field, each against the run without
// drafts, bit for bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "runtime/scripted_drafter.h"

namespace strata {
namespace {

using Texts = std::vector<std::vector<int>>;

EngineOptions drafting(const char* speculate, int drafts) {
  EngineOptions o;
  o.speculate = speculate;
  o.draft_tokens = drafts;
  return o;
}

Request endless(std::vector<int> prompt, int tokens) {
  Request r = greedy(std::move(prompt), tokens);
  r.sampling.ignore_eos = true;
  return r;
}

std::vector<int> operator+(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int> values(const std::vector<TokenLogprob>& logprobs, std::vector<float>& out) {
  std::vector<int> tokens;
  for (const TokenLogprob& l : logprobs) tokens.push_back(l.token), out.push_back(l.logprob);
  return tokens;
}

void expect_idle(EngineFixture& e) {
  const EngineMetrics& m = e.core().metrics();
  EXPECT_EQ(m.pages_used, 0);
  EXPECT_EQ(m.slots_used, 0);
  EXPECT_EQ(e.core().residency().pages().free() + e.core().residency().pages().held(), m.pages_total);
}

// The same prompts alone, without drafts and without a cache.
std::vector<Answer> plain(const std::string& model, const std::vector<Request>& requests) {
  EngineOptions o;
  o.prefix_cache = false;
  EngineFixture e(model, o);
  std::vector<Answer> out;
  for (const Request& r : requests) out.push_back(e.solo(r));
  return out;
}

Texts texts(const std::vector<Answer>& answers) {
  std::vector<std::vector<int>> out;
  for (const Answer& a : answers) out.push_back(a.tokens);
  return out;
}

// Case 1: a conversation of three turns and a prompt longer than three pages, with cache and drafts on and
// off.
TEST(Speculation, Case1CacheAndDraftsTogether) {
  for (const char* model : {"qwen3_next", "qwen3_5_moe", "tiny-hybrid"}) {
    const int tokens = std::string(model) == "tiny-hybrid" ? 12 : 40;
    Texts expected;
    for (const bool cache : {false, true}) {
      for (const char* speculate : {"none", "mtp", "ngram"}) {
        EngineOptions o = drafting(speculate, 3);
        o.prefix_cache = cache;
        EngineFixture e(model, o);
        Texts answers;
        auto history = test_prompt(90, 1);
        for (int turn = 0; turn < 3; ++turn) {
          const Request r = endless(history, tokens);
          const Answer cold = e.solo(r), warm = e.solo(r);
          EXPECT_EQ(cold, warm) << model << ' ' << speculate << " turn " << turn;
          if (cache) {
            EXPECT_GE(warm.usage.cached_tokens, kPageTokens);
          }
          answers.push_back(cold.tokens);
          history = history + cold.tokens + test_prompt(20, 10 + turn);
        }
        answers.push_back(e.solo(endless(test_prompt(230, 7), tokens)).tokens);
        if (expected.empty()) expected = answers;
        EXPECT_EQ(answers, expected) << model << ' ' << speculate << " cache " << cache;
        expect_idle(e);
      }
    }
  }
}

// Case 2: a prompt of 2.8 pages with drafts: snapshots only where a state was saved, and resuming from each
// equals cold.
TEST(Speculation, Case2SnapshotsAreWhereStatesWereSaved) {
  const auto prompt = test_prompt(179, 2);
  EngineFixture cold("qwen3_next", {});
  const auto answer = cold.solo(endless(prompt, 40));
  for (const bool lazy : {true, false}) {
    EngineOptions o = drafting("mtp", 3);
    o.lazy_slots = lazy;
    EngineFixture e("qwen3_next", o);
    ASSERT_EQ(e.solo(endless(prompt, 40)), answer);
    const auto all = prompt + answer.tokens;
    std::set<int> at;
    for (const auto& entry : e.core().residency().cache().entries()) {
      ASSERT_LE(entry.tokens.size(), all.size() - 1);
      EXPECT_TRUE(std::equal(entry.tokens.begin(), entry.tokens.end(), all.begin()));
      if (entry.slot >= 0) at.insert(static_cast<int>(entry.tokens.size()));
    }
    EXPECT_EQ(at, (std::set<int>{128, 192}));  // the last boundary of the prompt, and of the answer: none at
                                               // 64, which nothing saved
    EngineOptions off;
    off.prefix_cache = false;
    EngineFixture fresh("qwen3_next", off);
    for (const int boundary : at) {
      auto start = all;
      start.resize(static_cast<std::size_t>(boundary));
      const Request r = endless(start + test_prompt(5, 40), 20);
      const Answer warm = e.solo(r);
      EXPECT_EQ(warm.usage.cached_tokens, boundary);
      EXPECT_EQ(warm, fresh.solo(r)) << boundary;
    }
  }
}

// Case 7: 26 requests in pages for about six, with drafts: preempted and evicted, every answer stays, and so
// does acceptance.
TEST(Speculation, Case7EvictionUnderDrafts) {
  std::vector<Request> requests;
  for (int i = 0; i < 26; ++i) requests.push_back(endless(test_prompt(40 + 3 * i, 300 + i, 1180), 45));
  EngineOptions o = drafting("mtp", 2);
  o.max_sequences = 26;
  const auto run = [&](const EngineOptions& options, Answer* all) {
    EngineFixture e("tiny-hybrid", options);
    for (const Request& r : requests) EXPECT_GE(e.submit(r), 0) << e.error;
    e.run();
    for (const Answer& a : e.answers) {
      all->usage.drafted_tokens += a.usage.drafted_tokens;
      all->usage.accepted_tokens += a.usage.accepted_tokens;
    }
    expect_idle(e);
    EXPECT_EQ(e.core().metrics().preemptions > 0, options.kv_pages > 0);
    return e.answers;
  };
  Answer idle, full;
  const auto roomy = run(o, &idle);
  o.kv_pages = 12;
  const auto tight = run(o, &full);
  EXPECT_EQ(texts(tight), texts(roomy));
  const auto rate = [](const Answer& a) {
    return 100.0 * a.usage.accepted_tokens / std::max(a.usage.drafted_tokens, 1);
  };
  EXPECT_GT(idle.usage.drafted_tokens, 300);
  EXPECT_NEAR(rate(full), rate(idle), 5);
}

// Case 14: the last chunk of a prompt is one token, in a step with three sequences that verify drafts.
TEST(Speculation, Case14APromptsLastChunkOfOneTokenBesideDrafts) {
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(endless(test_prompt(20 + i, i), 60));
  for (int i = 0; i < 5; ++i) requests.push_back(endless(test_prompt(i % 2 == 0 ? 17 : 33, 50 + i), 5));
  for (const char* model : {"qwen3_next", "qwen3_5_moe"}) {
    const auto expected = plain(model, requests);
    bool seen = false;
    int before = 0;
    EngineOptions o = drafting("mtp", 3);
    o.max_batch_tokens = 28;  // three times four rows, and a chunk of sixteen
    o.max_sequences = 4;
    EngineFixture e(model, o);
    for (const Request& r : requests) ASSERT_GE(e.submit(r), 0);
    std::uint64_t computed = 0, verified = 0;
    while (e.step()) {
      const EngineMetrics& m = e.core().metrics();
      int begun = 0;  // short prompts with a first token: theirs comes with a chunk of one row, or the step
                      // has 16 rows more
      for (std::size_t i = 3; i < e.answers.size(); ++i) begun += e.answers[i].tokens.empty() ? 0 : 1;
      seen |= begun > before && m.verify_rows - verified >= 12 && m.computed_tokens - computed <= 16;
      before = begun, computed = m.computed_tokens, verified = m.verify_rows;
    }
    EXPECT_TRUE(seen) << "no step had twelve rows to verify and one of a prompt";
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(e.answers[i], expected[i]) << model << ' ' << i;
  }
}

// Case 19: n-gram drafts on a text that repeats itself.
TEST(Speculation, Case19NgramDraftsOnRepetitiveText) {
  const auto block = test_prompt(23, 4);
  const Request r = endless(block + test_prompt(5, 5) + block + test_prompt(4, 6) + block, 64);
  for (const char* model : {"tiny-hybrid", "qwen3_next"}) {
    EngineFixture e(model, drafting("ngram", 7));
    const Answer a = e.solo(r);
    EXPECT_EQ(a, plain(model, {r})[0]) << model;
    EXPECT_GT(a.usage.drafted_tokens, 0) << model;
  }
}

// Case 20: a plain decode row before two verifying sequences in one step leaves every logprob as it is.
TEST(Speculation, Case20APlainRowBeforeTwoThatVerify) {
  std::vector<Request> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(endless(test_prompt(30 + 7 * i, 20 + i), 40));
    requests.back().logprobs = 3;
  }
  for (const char* model : {"qwen3_next", "qwen3_5_moe"}) {
    const auto expected = plain(model, requests);
    // Wrong at position 0: nothing is drafted for the first sequence.
    EngineOptions o = drafting("ngram", 3);
    auto answers = texts(expected);
    answers[0].clear();
    EngineFixture e(model, o, scripted(answers, [](const Sequence& s) { return s.output_tokens() % 4; }));
    for (const Request& r : requests) e.submit(r);
    e.run();
    EXPECT_EQ(e.answers[0].usage.drafted_tokens, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<float> a, b;
      EXPECT_EQ(values(e.answers[i].logprobs, a), values(expected[i].logprobs, b));
      EXPECT_EQ(a, b) << model << " request " << i;
      if (i > 0) {
        EXPECT_GT(e.answers[i].usage.accepted_tokens, 10);
      }
    }
  }
}

// Case 21: an end token at each position of a block of which all would be accepted: the answer and its usage
// end there.
TEST(Speculation, Case21AnEndTokenInsideAnAcceptedBlock) {
  const Request base = endless(test_prompt(40, 2), 16);
  const Answer expected = plain("qwen3_next", {base})[0];
  for (std::size_t p = 0; p < 8; ++p) {
    Request r = base;
    r.stop_tokens = {expected.tokens[p]};
    const auto at = std::find(expected.tokens.begin(), expected.tokens.end(), expected.tokens[p]) -
                    expected.tokens.begin();
    EngineFixture e("qwen3_next", drafting("ngram", 7), scripted(Texts{expected.tokens}));
    const Answer a = e.solo(r);
    EXPECT_EQ(a.finish, FinishReason::kStop);
    EXPECT_EQ(a.usage.output_tokens, at + 1);
    EXPECT_EQ(a.tokens, std::vector<int>(expected.tokens.begin(), expected.tokens.begin() + at + 1));
    expect_idle(e);
  }
}

class Steers final : public Constraint {  // only tokens of one parity, by turns
 public:
  void allowed(std::span<std::uint32_t> mask) const override {
    std::fill(mask.begin(), mask.end(), odd_ ? 0xaaaaaaaaU : 0x55555555U);
  }
  bool accept(int token) override {
    const bool right = (token % 2 == 1) == odd_;
    odd_ = !odd_;
    return right;
  }
  bool complete() const override { return false; }
  bool closed() const override { return false; }
  std::shared_ptr<Constraint> clone() const override { return std::make_shared<Steers>(*this); }

 private:
  bool odd_ = false;
};

// Case 22: what steers sampling applies to every drafted row. Drafts of the unsteered text are all wrong
// somewhere, those of the steered text all right; both give the steered text.
TEST(Speculation, Case22PenaltiesBiasMinTokensAndConstraintsOnEveryDraftRow) {
  struct Steering {
    const char* name;
    std::function<void(Request&, const Answer& unsteered)> apply;
  };
  const std::vector<Steering> steerings = {
      {"min_tokens",
       [](Request& r, const Answer& a) {
         r.stop_tokens = {a.tokens[0], a.tokens[3]}, r.sampling.min_tokens = 20;
       }},
      {"presence_penalty", [](Request& r, const Answer&) { r.sampling.presence_penalty = 2; }},
      {"frequency_penalty", [](Request& r, const Answer&) { r.sampling.frequency_penalty = 1.5F; }},
      {"repetition_penalty", [](Request& r, const Answer&) { r.sampling.repetition_penalty = 1.8F; }},
      {"logit_bias",
       [](Request& r, const Answer& a) {
         r.sampling.logit_bias = {{a.tokens[1], -100.0F}, {a.tokens[5], -100.0F}};
       }},
      {"constraint", [](Request& r, const Answer&) { r.constraint = std::make_shared<Steers>(); }},
      {"all, sampled", [](Request& r, const Answer& a) {
         r.sampling.temperature = 1, r.sampling.seed = 5, r.sampling.top_p = 0.9F,
         r.sampling.presence_penalty = 2;
         r.sampling.logit_bias = {{a.tokens[1], -100.0F}}, r.sampling.min_tokens = 20,
         r.stop_tokens = {a.tokens[0]};
       }}};
  const auto base = [] { return greedy(test_prompt(30, 11), 36); };
  Request free = base();
  free.sampling.ignore_eos = true;
  const Answer unsteered = plain("qwen3_next", {free})[0];
  for (const Steering& steering : steerings) {
    const auto request = [&] {  // a constraint is used up by its request
      Request r = base();
      steering.apply(r, unsteered);
      return r;
    };
    const Answer expected = plain("qwen3_next", {request()})[0];
    EXPECT_NE(expected.tokens, unsteered.tokens) << steering.name << " does nothing here";
    for (const bool lazy : {true, false}) {
      for (const auto& drafts : {unsteered.tokens, expected.tokens}) {
        EngineOptions o = drafting("ngram", 3);
        o.lazy_slots = lazy;
        EngineFixture e("qwen3_next", o, scripted(Texts{drafts}));
        const Answer a = e.solo(request());
        EXPECT_EQ(a, expected) << steering.name << " lazy " << lazy;
        EXPECT_EQ(a.usage.output_tokens, expected.usage.output_tokens);
        if (drafts == expected.tokens) {
          EXPECT_GE(a.usage.accepted_tokens, a.usage.drafted_tokens - 3) << steering.name;
          EXPECT_GT(a.usage.drafted_tokens, 10) << steering.name;
        }
      }
    }
  }
}

std::string bytes_of_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Case 23: a rejection forced at each position: keys, values, convolution windows and states equal a plain
// run's, byte for byte.
TEST(Speculation, Case23StatesAfterARejectionEqualAPlainRuns) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("strata-states-{}", getpid());
  const Request r = endless(test_prompt(50, 3), 100);
  for (const char* model : {"qwen3_next", "qwen3_5_moe"}) {
    const Answer expected = plain(model, {r})[0];
    const auto states = [&](const DrafterFactory& drafter,
                            bool lazy) {  // of all pages and snapshots when the answer is over
      EngineOptions o = drafting("ngram", 5);
      o.cache_file = file;
      o.lazy_slots = lazy;
      EngineFixture e(model, o, drafter);
      EXPECT_EQ(e.solo(r), expected);
      e.core().save_cache();
      return bytes_of_file(file);
    };
    const std::string undrafted = states(scripted(Texts{{}}), true);
    ASSERT_GT(undrafted.size(), 10000U);
    for (int wrong = 0; wrong <= 5; ++wrong) {
      for (const bool lazy : {true, false}) {
        EXPECT_TRUE(states(scripted(Texts{expected.tokens}, [=](const Sequence&) { return wrong; }), lazy) ==
                    undrafted)
            << model << " wrong at " << wrong << " lazy " << lazy;
      }
    }
    // The planted fault: another text's states are other bytes.
    Request other = r;
    other.prompt[10] ^= 1;
    EngineOptions o = drafting("ngram", 5);
    o.cache_file = file;
    EngineFixture e(model, o, scripted(Texts{{}}));
    e.solo(other);
    e.core().save_cache();
    EXPECT_TRUE(bytes_of_file(file) != undrafted);
  }
  std::filesystem::remove(file);
}

// Case 24: four sequences, each with another number of right drafts in every step.
TEST(Speculation, Case24DifferentAcceptCountsTogether) {
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(endless(test_prompt(20 + 11 * i, 80 + i), 70));
  for (const char* model : {"qwen3_next", "qwen3_5_moe", "tiny-hybrid"}) {
    const auto expected = plain(model, requests);
    for (const bool lazy : {true, false}) {
      EngineOptions o = drafting("ngram", 4);
      o.max_sequences = 4;
      o.lazy_slots = lazy;
      EngineFixture e(model, o, scripted(texts(expected), [](const Sequence& s) {
                        return static_cast<int>(s.id + static_cast<std::uint64_t>(s.output_tokens())) % 5;
                      }));
      for (const Request& r : requests) e.submit(r);
      e.run();
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(e.answers[i], expected[i]) << model << " lazy " << lazy << ' ' << i;
      const auto& at = e.core().metrics().accepted_at;
      for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(at[i], 0U);
    }
  }
}

// Case 25: eight equal requests advance in every step, and tight slots take drafts away, not steps.
TEST(Speculation, Case25EqualRequestsAllAdvanceEveryStep) {
  const Request r = endless(test_prompt(33, 9), 60);
  const Answer expected = plain("qwen3_next", {r})[0];
  for (const int slots : {0, 20}) {  // 8 running, 8 boundaries, the dummy and three for drafts
    EngineOptions o = drafting("ngram", 3);
    o.max_sequences = 8;
    o.state_slots = slots;
    o.lazy_slots = slots == 0;
    o.prefix_cache = false;
    EngineFixture e("qwen3_next", o, scripted(Texts{expected.tokens}, [](const Sequence& s) {
                      return s.output_tokens() % 3;
                    }));
    for (int i = 0; i < 8; ++i) e.submit(r);
    std::vector<std::size_t> before(8, 0);
    int steps = 0, short_of_slots = 0;
    std::uint64_t verified = 0;
    for (; e.step(); ++steps) {
      for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(e.answers[i].tokens.size() > before[i] || e.answers[i].finish != FinishReason::kNone)
            << "request " << i << " in step " << steps;
        before[i] = e.answers[i].tokens.size();
      }
      const auto rows = e.core().metrics().verify_rows;
      short_of_slots += rows - verified < 32 ? 1 : 0;
      verified = rows;
    }
    for (const Answer& a : e.answers) EXPECT_EQ(a, expected);
    EXPECT_LT(steps, 60);
    if (slots > 0) {
      EXPECT_GT(short_of_slots, 5);
      EXPECT_GT(verified, 0U);
    }
    expect_idle(e);
  }
}

// A verify step reads one state of each sequence and writes one, however many rows it checks; eagerly it
// writes one a row.
TEST(Speculation, AVerifyStepMovesOneStateEachWay) {
  const Request r = endless(test_prompt(30, 1), 62);
  const Answer expected = plain("qwen3_next", {r})[0];
  for (const bool lazy : {true, false}) {
    for (const int k : {1, 3, 7, 15}) {
      EngineOptions o = drafting("ngram", k);
      o.lazy_slots = lazy;
      o.prefix_cache = false;
      EngineFixture e("qwen3_next", o, scripted(Texts{expected.tokens}));
      e.submit(r);
      EngineMetrics before = e.core().metrics();
      int verifying = 0;
      while (e.step()) {
        const EngineMetrics now = e.core().metrics();
        const auto rows = now.verify_rows - before.verify_rows;
        if (rows > 1 &&
            before.verify_rows > 0) {  // the first block has nothing to replay, hence nothing to write
          EXPECT_EQ(now.state_reads - before.state_reads, 1U);
          EXPECT_EQ(now.state_writes - before.state_writes, lazy ? 1U : rows);
          ++verifying;
        }
        before = now;
      }
      EXPECT_EQ(e.answers[0], expected);
      EXPECT_GE(verifying, 2);
    }
  }
}

// More than 32 drafting sequences: the step splits, a counter says so, and all advance.
TEST(Speculation, BeyondOneVerifyPassTheStepSplitsAndIsCounted) {
  std::vector<Request> requests;
  for (int i = 0; i < 34; ++i) requests.push_back(endless(test_prompt(10 + i % 5, i), 12));
  const auto expected = plain("qwen3_next", requests);
  for (const int sequences : {32, 34}) {
    EngineOptions o = drafting("ngram", 15);
    o.max_sequences = sequences;
    o.max_batch_tokens = 1024;
    EngineFixture e("qwen3_next", o,
                    scripted(texts(expected), [](const Sequence& s) { return s.output_tokens() % 2; }));
    for (const Request& r : requests) ASSERT_GE(e.submit(r), 0) << e.error;
    std::uint64_t most = 0, verified = 0;
    while (e.step()) {
      most = std::max(most, e.core().metrics().verify_rows - verified);
      verified = e.core().metrics().verify_rows;
    }
    EXPECT_EQ(e.core().metrics().split_steps > 0, sequences > 32);
    EXPECT_LE(most, 32U * kTapeRows);
    EXPECT_GT(most, 32U * 8);
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(e.answers[i], expected[i]) << i;
  }
}

}  // namespace
}  // namespace strata
