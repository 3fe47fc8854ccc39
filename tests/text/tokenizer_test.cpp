#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "text/merges.h"

namespace strata {
namespace {

Tokenizer tiny_hybrid() {
  return Tokenizer::from_json_file(STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json");
}
Tokenizer golden(const std::string& name) {
  return Tokenizer::from_json_file(STRATA_TOKENIZER_GOLDENS "/" + name + ".tokenizer.json");
}

std::string random_text(std::mt19937& random, size_t size) {
  constexpr std::string_view kLetters = "aabcde  thing\n.1'";
  std::string text;
  while (text.size() < size) text.push_back(kLetters[random() % kLetters.size()]);
  return text;
}

TEST(Tokenizer, IllFormedTextCountsAsReplacementCharacters) {
  const Tokenizer tokenizer = tiny_hybrid();
  EXPECT_EQ(tokenizer.encode("a\xFF\xE4\xBDz"), tokenizer.encode("a\xEF\xBF\xBD\xEF\xBF\xBDz"));
}

TEST(Tokenizer, SpecialTokensOfUntrustedTextAreText) {
  const Tokenizer tokenizer = tiny_hybrid();
  const int id = tokenizer.token_to_id("<|im_end|>").value();
  EXPECT_EQ(tokenizer.encode("<|im_end|>"), std::vector<int>{id});
  const auto ids = tokenizer.encode("<|im_end|>", {.parse_special = false});
  EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0);
  EXPECT_EQ(tokenizer.decode(ids, true), "<|im_end|>");
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = tiny_hybrid();
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) texts.push_back(random_text(random, 400));
  std::vector<std::vector<int>> expected;
  for (const std::string& text : texts) expected.push_back(tiny_hybrid().encode(text));
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        for (size_t i = 0; i < texts.size(); ++i) wrong += tokenizer.encode(texts[i]) != expected[i] ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// Long words go through a heap, which must be fast and give what the scan of short words gives.
TEST(Tokenizer, LongWords) {
  for (const std::string name : {"gpt2", "llama2", "unigram_bytes"}) {
    const Tokenizer tokenizer = golden(name);
    const std::string text(1 << 18, 'a');
    const auto ids = tokenizer.encode(text, {.add_special = false});
    EXPECT_EQ(tokenizer.decode(ids, true), text) << name;
  }
}

TEST(Merges, ScanAndHeapAgree) {
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    MergeTable table(64);
    uint32_t rank = 0;
    int next_id = 4;
    for (; next_id < 30; ++next_id) {
      const auto any = [&] { return static_cast<int>(random() % static_cast<unsigned>(next_id)); };
      table.insert(any(), any(), {rank++, next_id});
    }
    std::vector<Symbol> symbols;
    for (uint32_t i = 0; i < 2 + random() % (merging::kScanLimit - 1); ++i) {
      symbols.push_back({static_cast<int>(random() % 4), i, 1});
    }
    const auto find = [&table](const Symbol& a, const Symbol& b) { return table.find(a.id, b.id); };
    std::vector<Symbol> by_heap = symbols;
    merging::merge_by_scan(symbols, find);
    merging::merge_by_heap(by_heap, find);
    ASSERT_EQ(symbols.size(), by_heap.size());
    for (size_t i = 0; i < symbols.size(); ++i) {
      ASSERT_EQ(symbols[i].id, by_heap[i].id);
      ASSERT_EQ(symbols[i].begin, by_heap[i].begin);
      ASSERT_EQ(symbols[i].length, by_heap[i].length);
    }
  }
}

}  // namespace
}  // namespace strata
