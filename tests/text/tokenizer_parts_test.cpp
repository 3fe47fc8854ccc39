#include "text/tokenizer_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/parts_reader.h"
#include "text/split_patterns.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
const std::string kGolden = STRATA_TOKENIZER_GOLDENS "/";

nlohmann::json read_json(const std::string& file) {
  nlohmann::json data;
  std::ifstream(kGolden + file) >> data;
  return data;
}

class SentencePieceGolden : public testing::TestWithParam<const char*> {};

TEST_P(SentencePieceGolden, EncodesAndDecodesLikeSentencePiece) {
  const nlohmann::json data = read_json(fmt::format("{}.parts.json", GetParam()));
  const Tokenizer tokenizer = Tokenizer::from_parts(read_parts(data), GetParam());
  ASSERT_GT(data["cases"].size(), 100u);
  for (const auto& item : data["cases"]) {
    SCOPED_TRACE(item.dump(-1, ' ', true));
    const std::string text = item["text"];
    const auto ids = item["ids"].get<std::vector<int>>();
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = false}), ids);
    Normalizer spaces;  // SentencePiece decodes a mark in the text as a space too
    spaces.add_replace_text(std::string(kMark), std::string(1, ' '));
    std::string storage;
    EXPECT_EQ(tokenizer.decode(ids, true), spaces.apply(text, storage));
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceGolden, testing::Values("sp_bpe", "sp_bpe_bare", "sp_unigram"),
                         [](const auto& test) { return test.param; });

// What a GGUF file holds of the tokenizer that `file` describes.
TokenizerParts gpt2_parts(const nlohmann::json& file) {
  TokenizerParts parts;
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    parts.tokens.resize(std::max(parts.tokens.size(), id.get<size_t>() + 1));
    parts.tokens[id] = token;
  }
  parts.types.assign(parts.tokens.size(), TokenizerParts::Type::kNormal);
  for (const auto& added : file["added_tokens"]) {
    const auto id = added["id"].get<size_t>();
    parts.tokens.resize(std::max(parts.tokens.size(), id + 1));
    parts.types.resize(parts.tokens.size(), TokenizerParts::Type::kNormal);
    parts.tokens[id] = added["content"];
    parts.types[id] = added["special"] ? TokenizerParts::Type::kControl : TokenizerParts::Type::kUserDefined;
  }
  for (const auto& merge : file["model"]["merges"]) {
    if (merge.is_string()) {
      parts.merges.push_back(merge.get<std::string>());
    } else {
      parts.merges.push_back(fmt::format("{} {}", merge[0].get<std::string>(), merge[1].get<std::string>()));
    }
  }
  return parts;
}

struct NamedGolden {
  const char* name;
  const char* split;
  bool nfc;
};

class Gpt2Golden : public testing::TestWithParam<NamedGolden> {};

TEST_P(Gpt2Golden, PartsGiveTheSameAsTheFile) {
  const auto [name, split, nfc] = GetParam();
  TokenizerParts parts = gpt2_parts(read_json(fmt::format("{}.tokenizer.json", name)));
  parts.split_name = split;
  parts.nfc = nfc;
  const Tokenizer tokenizer = Tokenizer::from_parts(parts, name);
  const nlohmann::json data = read_json(fmt::format("{}.cases.json", name));
  ASSERT_GT(data["cases"].size(), 100u);
  for (const auto& item : data["cases"]) {
    SCOPED_TRACE(item.dump(-1, ' ', true));
    const auto ids = item.value("plain", item["ids"].get<std::vector<int>>());
    EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>(), {.add_special = false}), ids);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Gpt2Golden,
    testing::Values(NamedGolden{"gpt2", "gpt-2", false}, NamedGolden{"llama3", "llama-bpe", false},
                    NamedGolden{"qwen2", "qwen2", true}, NamedGolden{"qwen35", "qwen35", true},
                    NamedGolden{"gpt4o", "gpt-4o", false}, NamedGolden{"deepseek", "deepseek-v3", false},
                    NamedGolden{"starcoder", "starcoder", false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(TokenizerParts, MergesOverSpaceMarksGiveTheSameAsTheFile) {
  for (const std::string name : {"llama2", "gemma"}) {
    const nlohmann::json file = read_json(name + ".tokenizer.json");
    TokenizerParts parts = gpt2_parts(file);
    parts.kind = TokenizerParts::Kind::kSentencePieceMerges;
    parts.add_space_prefix = name == "llama2";
    const Tokenizer tokenizer = Tokenizer::from_parts(parts, name);
    const nlohmann::json data = read_json(name + ".cases.json");
    ASSERT_GT(data["cases"].size(), 100u);
    for (const auto& item : data["cases"]) {
      SCOPED_TRACE(item.dump(-1, ' ', true));
      const auto ids = item.value("plain", item["ids"].get<std::vector<int>>());
      EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>(), {.add_special = false}), ids);
    }
  }
}

TEST(TokenizerParts, PutsPrefixAndSuffixAround) {
  TokenizerParts parts;
  parts.tokens = {"a", "b", "ab", "<s>", "</s>"};
  parts.types = {TokenizerParts::Type::kNormal, TokenizerParts::Type::kNormal, TokenizerParts::Type::kNormal,
                 TokenizerParts::Type::kControl, TokenizerParts::Type::kControl};
  parts.merges = {"a b"};
  parts.split_name = "gpt-2";
  parts.prefix = {3};
  parts.suffix = {4};
  const Tokenizer tokenizer = Tokenizer::from_parts(parts, "parts");
  EXPECT_EQ(tokenizer.encode("ab<s>a"), (std::vector<int>{3, 2, 3, 0, 4}));
  EXPECT_EQ(tokenizer.encode("ab", {.add_special = false}), std::vector<int>{2});
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.decode(std::vector<int>{3, 2, 4}, true), "ab");
  EXPECT_EQ(tokenizer.decode(std::vector<int>{3, 2, 4}, false), "<s>ab</s>");
}

TEST(TokenizerParts, RefusesWhatDoesNotFit) {
  const auto load = [](const TokenizerParts& parts) {
    return [parts] { Tokenizer::from_parts(parts, "m.gguf"); };
  };
  TokenizerParts parts;
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("m.gguf: a tokenizer without tokens")));
  parts.tokens = {"a", "b"};
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("pre-tokenizer  is not supported")));
  parts.split_name = "gpt-2";
  parts.merges = {"a b"};
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("merge 0 \"a b\" is not of tokens")));
  parts.merges = {"ab"};
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("merge 0 \"ab\" has no second part")));
  parts.merges.clear();
  parts.prefix = {2};
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("token id 2 of 2")));
  parts.prefix.clear();
  parts.types = {TokenizerParts::Type::kNormal};
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("2 tokens but 1 token types")));
  parts.types.clear();
  parts.kind = TokenizerParts::Kind::kUnigram;
  EXPECT_THAT(load(parts), ThrowsMessage<Error>(HasSubstr("2 tokens but 0 scores")));
}

}  // namespace
}  // namespace strata
