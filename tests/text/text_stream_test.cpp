#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "text/slice_tokenizer.h"
#include "text/utf8.h"

namespace strata {
namespace {

// What the whole text says: where the stop string that ends first (of those the longest) begins and ends.
struct Expected {
  size_t begin, end;
  bool stopped = false;
};

Expected find_stop(std::string_view text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {end - longest, end, true};
  }
  return {text.size(), text.size()};
}

// The longest end of `text` that begins a stop string.
size_t may_become_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

size_t tokens_within(const std::vector<std::string>& pieces, size_t bytes) {
  size_t count = 0, end = 0;
  while (count < pieces.size() && end + pieces[count].size() <= bytes) end += pieces[count++].size();
  return count;
}

// Streams ASCII pieces and checks every step against the whole text.
void check_stream(const Tokenizer& tokenizer, const std::vector<std::string>& pieces,
                  const std::vector<std::string>& stops, bool include) {
  TextStream stream(tokenizer, {.stops = stops, .include_stop = include});
  std::string whole, sent;
  for (const std::string& piece : pieces) whole += piece;
  const Expected expected = find_stop(whole, stops);
  const size_t cut = include ? expected.end : expected.begin;
  std::string fed;
  for (size_t i = 0; i < pieces.size() && !stream.stopped(); ++i) {
    fed += pieces[i];
    const bool over = expected.stopped && fed.size() >= expected.end;
    ASSERT_EQ(stream.add(slice_id(tokenizer, pieces[i]), sent), over);
    ASSERT_EQ(sent.size(), over ? cut : fed.size() - may_become_stop(fed, stops));  // as early as it is safe
    ASSERT_EQ(stream.complete_tokens(), tokens_within(pieces, sent.size()));
  }
  ASSERT_EQ(stream.finish(sent), expected.stopped);
  ASSERT_EQ(sent, whole.substr(0, cut));
  ASSERT_EQ(stream.stopped(), expected.stopped);
  ASSERT_EQ(stream.complete_tokens(), tokens_within(pieces, cut));
  if (expected.stopped) {
    ASSERT_EQ(stream.stop(), whole.substr(expected.begin, expected.end - expected.begin));
  }
}

TEST(TextStream, StopOfSeveralTokens) {
  const std::vector<std::string> pieces = {" L", " M", " N", " O", " P", " Q", " R"};
  const Tokenizer tokenizer = slice_tokenizer(pieces);
  TextStream stream(tokenizer, {.stops = {"O P Q"}});
  std::string text;
  for (int id = 0; id < 5; ++id) EXPECT_FALSE(stream.add(id, text));
  EXPECT_EQ(text, " L M N ");
  EXPECT_EQ(stream.complete_tokens(), 3u);
  EXPECT_TRUE(stream.add(5, text));
  EXPECT_EQ(text, " L M N ");
  EXPECT_EQ(stream.complete_tokens(), 3u);
  EXPECT_EQ(stream.stop(), "O P Q");
  EXPECT_TRUE(stream.add(6, text));
  EXPECT_EQ(text, " L M N ");
}

TEST(TextStream, EveryCuttingAroundStops) {
  const std::vector<std::vector<std::string>> stop_sets = {
      {}, {"ab"}, {"aab", "ab"}, {"aaa"}, {"abab", "ba"}, {"b", "ab", "aab"}, {"abc", "b"}, {"ccc", "cca"}};
  for (const std::string_view text : {"aabaabab", "abacabca", "ccaccbca", "caaaabcc", "cabccccb"}) {
    const Tokenizer tokenizer = slice_tokenizer(all_slices(text));
    for (const auto& stops : stop_sets) {
      for (unsigned way = 0; way < 1u << (text.size() - 1); ++way) {
        check_stream(tokenizer, cut(text, way), stops, false);
        check_stream(tokenizer, cut(text, way), stops, true);
        ASSERT_FALSE(HasFatalFailure()) << text << " cut in way " << way;
      }
    }
  }
}

TEST(TextStream, RandomTextsAndStops) {
  std::mt19937 random(11);
  const auto letters = [&random](size_t most) {
    std::string text;
    for (size_t n = 1 + random() % most; n > 0; --n) text.push_back(static_cast<char>('a' + random() % 3));
    return text;
  };
  for (int round = 0; round < 600; ++round) {
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(letters(5));
    const auto pieces = cut(letters(30), random());
    check_stream(slice_tokenizer(pieces), pieces, stops, random() % 2 == 0);
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
}

TEST(TextStream, StopInsideCharactersOfManyBytes) {
  // The stop string shares its first byte, then its first two, with other characters.
  const std::string text = "\xC3\xA8\xE2\x82\xAC\xE2\x82\xAD\xC3\xA9z";
  for (unsigned way = 0; way < 1u << (text.size() - 1); ++way) {
    const auto pieces = cut(text, way);
    const Tokenizer tokenizer = slice_tokenizer(pieces);
    TextStream stream(tokenizer, {.stops = {"\xC3\xA9", "\xE2\x82\xAE"}});
    std::string sent;
    for (int id = 0; id < static_cast<int>(pieces.size()); ++id) {
      std::string delta;
      stream.add(id, delta);
      EXPECT_TRUE(is_valid_utf8(delta));
      sent += delta;
    }
    stream.finish(sent);
    EXPECT_EQ(sent, "\xC3\xA8\xE2\x82\xAC\xE2\x82\xAD");
    EXPECT_TRUE(stream.stopped());
    EXPECT_EQ(stream.complete_tokens(), tokens_within(pieces, sent.size()));
  }
}

TEST(TextStream, SkippedTokensAndEnds) {
  const Tokenizer tokenizer = slice_tokenizer({"ab", "c\xE4", "\xBD"});
  const int end = 3;
  TextStream stream(tokenizer, {.stops = {"bcd"}});
  std::string text;
  EXPECT_FALSE(stream.add(0, text));
  EXPECT_EQ(text, "a");
  EXPECT_EQ(stream.complete_tokens(), 0u);
  EXPECT_FALSE(stream.add(end, text));
  EXPECT_FALSE(stream.add(1, text));
  EXPECT_EQ(text, "a");
  EXPECT_FALSE(stream.add(2, text));
  EXPECT_FALSE(stream.finish(text));
  EXPECT_EQ(text, "abc\xEF\xBF\xBD");
  EXPECT_EQ(stream.complete_tokens(), 4u);
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.stop(), std::nullopt);
  EXPECT_FALSE(stream.add(0, text));
  EXPECT_EQ(text, "abc\xEF\xBF\xBD");
}

TEST(TextStream, EmptyStopsNeverMatch) {
  const Tokenizer tokenizer = slice_tokenizer({"ab"});
  TextStream stream(tokenizer, {.stops = {""}});
  std::string text;
  EXPECT_FALSE(stream.add(0, text));
  EXPECT_EQ(text, "ab");
}

}  // namespace
}  // namespace strata
