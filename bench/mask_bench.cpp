// Time of one token mask of structured output: on the demo model's vocabulary and on a synthetic one of
// 150,000 tokens.
//
// cold: a state never seen, all caches empty; kept: the state was seen before; answer: a whole answer, mask
// and accept for every token, with the caches of an earlier answer to the same schema; first_answer: without
// them. Times an answer are divided by its tokens.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "text/json_schema.h"
#include "text/token_masks.h"

namespace strata {
namespace {

struct Vocabulary {
  std::vector<std::string> tokens;
  std::unique_ptr<TokenTree> tree;
};

// Words of syllables with and without a space before them, numbers, punctuation, parts of words of other
// scripts, runs of spaces: about the lengths of a published byte-level vocabulary (mean 6 to 7 bytes).
std::vector<std::string> synthetic(std::size_t size) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> syllables{"a",   "e",   "in", "er", "on", "at", "re", "th", "st",  "tion",
                                           "ing", "con", "de", "ro", "la", "mi", "pu", "sh", "ver", "al",
                                           "or",  "en",  "ou", "é",  "ü",  "да", "не", "の", "中",  "文"};
  const std::string marks = "\"{}[]:,.;()<>/\\_-=+*&#@!?'|$%^~`\n\t";
  std::vector<std::string> out;
  std::unordered_set<std::string> known;
  const auto add = [&](std::string token) {
    if (known.insert(token).second) out.push_back(std::move(token));
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  for (int n = 2; n <= 128; n *= 2) add(std::string(static_cast<std::size_t>(n), ' '));
  while (out.size() < size) {
    std::string token = below(2) == 0 ? " " : "";
    const auto kind = below(20);
    if (kind == 0) {
      token += std::to_string(below(1000));
    } else if (kind == 1) {
      for (std::size_t i = 0; i <= below(4); ++i) token += marks[below(marks.size())];
    } else {
      for (std::size_t i = 0; i <= 1 + below(3); ++i) token += syllables[below(syllables.size())];
      if (kind == 2) token += marks[below(marks.size())];
    }
    add(token);
  }
  return out;
}

const Vocabulary& vocabulary(bool large) {
  static const Vocabulary tiny = [] {
    Vocabulary v;
    const auto tokenizer = Tokenizer::from_json_file(STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json");
    for (int t = 0; t < tokenizer.vocab_size(); ++t)
      v.tokens.emplace_back(tokenizer.is_special(t) ? "" : tokenizer.id_to_bytes(t));
    return v;
  }();
  static const Vocabulary big{synthetic(150000), nullptr};
  return large ? big : tiny;
}

const TokenTree& tree(bool large) {
  const auto make = [](const Vocabulary& v) {
    std::vector<TokenTree::Token> tokens;
    for (const std::string& t : v.tokens) tokens.push_back({t, false});
    return TokenTree(tokens);
  };
  static const TokenTree tiny = make(vocabulary(false)), big = make(vocabulary(true));
  return large ? big : tiny;
}

const std::vector<std::pair<std::string, std::string>> kPlaces{
    {"key", "{"},
    {"text", R"({"name": "The )"},
    {"short_text", R"({"name": "The end", "code": "ab)"},
    {"pattern", R"({"name": "x", "code": "ab", "slug": "a)"},
    {"number", R"({"name": "x", "code": "ab", "slug": "a-b", "age": 1)"}};

const Grammar& grammar() {
  static const Grammar made = *compile_schema(Json::parse(R"({"type": "object", "properties": {
      "name": {"type": "string"}, "code": {"type": "string", "maxLength": 20}, "slug": {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"},
      "age": {"type": "integer", "minimum": 0, "maximum": 150}, "tags": {"type": "array", "items": {"type": "string"}}},
      "required": ["name", "code", "slug", "age", "tags"]})"));
  return made;
}

GrammarState state_after(const std::string& text) {
  GrammarState state = GrammarState::start(grammar());
  state.take(grammar(), text);
  return state;
}

void cold(benchmark::State& run, bool large, const std::string& text) {
  const GrammarState state = state_after(text);
  std::vector<std::uint32_t> mask(tree(large).words());
  for (auto _ : run) {
    TokenMasks masks(grammar(), tree(large));
    masks.allowed(state, mask);
    benchmark::DoNotOptimize(mask.data());
  }
}

void kept(benchmark::State& run, bool large, const std::string& text) {
  const GrammarState state = state_after(text);
  std::vector<std::uint32_t> mask(tree(large).words());
  TokenMasks masks(grammar(), tree(large));
  for (auto _ : run) {
    std::fill(mask.begin(), mask.end(), 0);
    masks.allowed(state, mask);
    benchmark::DoNotOptimize(mask.data());
  }
}

// A mask before each byte: more states than tokens would give.
void answer(benchmark::State& run, bool large, bool first) {
  const std::string text =
      R"({"name": "The quick brown fox jumps over it", "code": "ab-12/7", "slug": "quick-brown-fox", "age": 42, "tags": ["one", "two", "three"]})";
  std::vector<std::uint32_t> mask(tree(large).words());
  auto masks = std::make_unique<TokenMasks>(grammar(), tree(large));
  for (auto _ : run) {
    if (first) masks = std::make_unique<TokenMasks>(grammar(), tree(large));
    GrammarState state = GrammarState::start(grammar());
    for (const char c : text) {
      std::fill(mask.begin(), mask.end(), 0);
      masks->allowed(state, mask);
      benchmark::DoNotOptimize(mask.data());
      state.take(grammar(), std::string_view(&c, 1));
    }
  }
  run.counters["masks"] = static_cast<double>(text.size());
  run.counters["s/mask"] =
      benchmark::Counter(static_cast<double>(text.size()),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  using namespace strata;
  for (const bool large : {false, true}) {
    const std::string size = large ? "/150000" : "/tiny";
    for (const auto& [name, text] : kPlaces) {
      benchmark::RegisterBenchmark(("cold/" + name + size).c_str(), cold, large, text)
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("kept/" + name + size).c_str(), kept, large, text)
          ->Unit(benchmark::kMicrosecond);
    }
    benchmark::RegisterBenchmark(("first_answer" + size).c_str(), answer, large, true)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(("answer" + size).c_str(), answer, large, false)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("compile_schema", [](benchmark::State& run) {
    const Json schema = Json::parse(
        R"({"type": "object", "properties": {"when": {"type": "string", "format": "date-time"}, "n": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["when"]})");
    for (auto _ : run) benchmark::DoNotOptimize(compile_schema(schema));
  })->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
