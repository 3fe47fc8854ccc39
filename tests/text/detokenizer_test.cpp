#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/slice_tokenizer.h"
#include "text/tokenizer_components.h"
#include "text/utf8.h"

namespace strata {
namespace {

using namespace std::literals;

// Feeds tokens of these pieces one by one. Every delta must be whole characters, and as many as there can be.
std::string stream(const Tokenizer& tokenizer, const std::vector<std::string>& pieces) {
  Detokenizer detokenizer(tokenizer);
  std::string text, bytes;
  std::vector<int> ids;
  for (const std::string& piece : pieces) {
    ids.push_back(slice_id(tokenizer, piece));
    std::string delta;
    detokenizer.add(ids.back(), delta);
    EXPECT_TRUE(is_valid_utf8(delta));
    text += delta;
    bytes += piece;
    // Nothing is held back but an incomplete character: the text is the repaired bytes, less one U+FFFD for
    // it.
    const std::string repaired = repair_utf8(bytes);
    EXPECT_EQ(text + (detokenizer.pending() ? std::string(kReplacementCharacter) : ""s), repaired);
  }
  detokenizer.finish(text);
  EXPECT_EQ(tokenizer.decode(ids, true), text);
  return text;
}

TEST(Detokenizer, EveryCuttingOfCharactersGivesTheSameText) {
  for (const std::string_view text : {"\xF0\x9F\x91\x8B!"sv, "x\xC4\x8F\xEA\xB0\x80"sv,
                                      "\xED\x95\x9C\xEA\xB8\x80 "sv, "\xE2\x80\x8D\xF0\x9F\x91\xA9"sv}) {
    const Tokenizer tokenizer = slice_tokenizer(all_slices(text));
    for (unsigned way = 0; way < 1u << (text.size() - 1); ++way)
      EXPECT_EQ(stream(tokenizer, cut(text, way)), text);
  }
}

TEST(Detokenizer, FamilyEmojiByteByByte) {
  const std::string family =
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\xE2\x80\x8D\xF0\x9F\x91\xA6";
  EXPECT_EQ(stream(slice_tokenizer(all_slices(family)), cut(family, ~0u)), family);
}

TEST(Detokenizer, EveryCuttingOfIllFormedBytesGivesTheSameText) {
  for (const std::string_view bytes :
       {"a\xE4\xBD\x20\xFF\xF0\x9F\x91"sv, "\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80"sv,
        "\x80\xF0\x80\x9F\xE0\x9F\x80z"sv, "\xF0\x9F\xF0\x9F\x91\x8B\xC4"sv}) {
    const std::string expected = repair_utf8(bytes);
    const Tokenizer tokenizer = slice_tokenizer(all_slices(bytes));
    for (unsigned way = 0; way < 1u << (bytes.size() - 1); ++way)
      EXPECT_EQ(stream(tokenizer, cut(bytes, way)), expected);
  }
}

TEST(Detokenizer, RandomBytesCutAtRandom) {
  std::mt19937 random(5);
  constexpr std::string_view kBytes = "ab \x80\xBF\xC4\x8F\xE4\xBD\xA0\xED\xF0\x9F\x91\x8B\xFF";
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) bytes.push_back(kBytes[random() % kBytes.size()]);
    const auto pieces = cut(bytes, random());
    EXPECT_EQ(stream(slice_tokenizer(pieces), pieces), repair_utf8(bytes));
  }
}

// One U+FFFD for each maximal ill-formed part, the examples of the Unicode standard, table 3-8 to 3-11.
TEST(Detokenizer, ReplacesMaximalSubparts) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(repair_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Detokenizer, SkipsSpecialTokensOnlyIfAsked) {
  const Tokenizer tokenizer = slice_tokenizer({"\xE4\xBD", "\xA0", " b"});
  const int special = 3, added = 4;
  const std::vector<int> ids = {0, special, 1, added, 2, special, 99, -1};
  EXPECT_EQ(tokenizer.decode(ids, true), "\xE4\xBD\xA0<tool> b");
  EXPECT_EQ(tokenizer.decode(ids, false), "\xEF\xBF\xBD<|end|>\xEF\xBF\xBD<tool> b<|end|>");
}

TokenizerParts sentence_piece_parts() {
  TokenizerParts parts;
  parts.kind = TokenizerParts::Kind::kSentencePieceBpe;
  const std::string mark(kSpaceMark);
  parts.tokens = {"<s>", mark, mark + "hi", "hi", "<0xC4>", "<0x8F>", mark + mark};
  parts.types.assign(7, TokenizerParts::Type::kNormal);
  parts.types[0] = TokenizerParts::Type::kControl;
  parts.types[4] = parts.types[5] = TokenizerParts::Type::kByte;
  parts.scores.assign(7, 0);
  return parts;
}

std::string stream_ids(const Tokenizer& tokenizer, const std::vector<int>& ids, DetokenizeOptions options) {
  Detokenizer detokenizer(tokenizer, options);
  std::string text;
  for (const int id : ids) detokenizer.add(id, text);
  detokenizer.finish(text);
  return text;
}

TEST(Detokenizer, DropsTheLeadingSpaceOnlyAtTheStart) {
  const Tokenizer tokenizer = Tokenizer::from_parts(sentence_piece_parts(), "parts");
  EXPECT_EQ(stream_ids(tokenizer, {0, 2, 2}, {}), "hi hi");
  EXPECT_EQ(stream_ids(tokenizer, {2, 2}, {.at_start = false}), " hi hi");
  EXPECT_EQ(stream_ids(tokenizer, {1, 2}, {}), " hi");
  EXPECT_EQ(stream_ids(tokenizer, {6, 3}, {}), " hi");
  EXPECT_EQ(stream_ids(tokenizer, {0, 2}, {.skip_special = false}), "<s> hi");
  EXPECT_EQ(stream_ids(tokenizer, {3, 1, 4, 5}, {}), "hi \xC4\x8F");
  EXPECT_EQ(stream_ids(tokenizer, {4, 3}, {}), "\xEF\xBF\xBDhi");
}

TEST(Detokenizer, BytesOfTokens) {
  const Tokenizer tokenizer = Tokenizer::from_parts(sentence_piece_parts(), "parts");
  EXPECT_EQ(tokenizer.id_to_bytes(2), " hi");
  EXPECT_EQ(tokenizer.id_to_bytes(4), "\xC4");
  EXPECT_EQ(tokenizer.id_to_bytes(0), "<s>");
  EXPECT_EQ(tokenizer.id_to_bytes(7), "");
  EXPECT_EQ(tokenizer.id_to_bytes(-1), "");
  EXPECT_EQ(tokenizer.id_to_token(4), "<0xC4>");
  EXPECT_EQ(tokenizer.token_to_id("hi"), 3);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 0);
  EXPECT_EQ(tokenizer.token_to_id("no such"), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 7);
}

}  // namespace
}  // namespace strata
