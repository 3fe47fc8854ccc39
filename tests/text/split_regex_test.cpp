#include "text/split_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/split_patterns.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const SplitRegex regex(pattern);
  SplitRegex::Matcher matcher(regex);
  matcher.reset(text);
  std::vector<std::string> found;
  for (size_t begin = 0, end = 0; matcher.next(begin, end);)
    found.emplace_back(text.substr(begin, end - begin));
  return found;
}

TEST(SplitRegex, ClassesAreUnicodes) {
  const SplitRegex space(R"(\s)"), other(R"([^\S])"), word(R"(\w)");
  SplitRegex::Matcher is_space(space), is_other(other), is_word_char(word);
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    size_t begin = 0, end = 0;
    is_space.reset(text);
    ASSERT_EQ(is_space.next(begin, end), is_white_space(c)) << static_cast<uint32_t>(c);
    is_other.reset(text);
    ASSERT_EQ(is_other.next(begin, end), is_white_space(c)) << static_cast<uint32_t>(c);
    if (c >= 0xC80) continue;  // beyond, the two libraries differ in what the latest Unicode versions assigned
    is_word_char.reset(text);
    ASSERT_EQ(is_word_char.next(begin, end), is_word(c)) << static_cast<uint32_t>(c);
  }
  EXPECT_FALSE(is_white_space(0x180E));
}

TEST(SplitRegex, AnchorsWorkAtLines) {
  EXPECT_THAT(matches("^a|b$", "ab\nab"), ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(matches("a.", "a\na\rab"), ElementsAre("a\r", "ab"));
}

TEST(SplitRegex, RepeatsFromZero) { EXPECT_THAT(matches("ba{,2}", "baaa{,2}"), ElementsAre("baa")); }

TEST(SplitRegex, WordBoundaries) {
  EXPECT_THAT(matches(R"(\bx|x\b)", "x ax xa axa"), ElementsAre("x", "x", "x"));
  EXPECT_THAT(matches(R"(\Bx\B)", "x ax xa axa"), ElementsAre("x"));
}

TEST(SplitRegex, EmptyMatchesAreStepsNotLoops) {
  EXPECT_THAT(matches("a*", "ba\xC3\xA9"), ElementsAre("", "a", "", ""));
}

TEST(SplitRegex, EscapesCodePoints) {
  EXPECT_THAT(matches(R"(\u00e9|\v)", "e\xC3\xA9\x0B"), ElementsAre("\xC3\xA9", "\x0B"));
}

TEST(SplitRegex, QuotesLiterals) {
  const std::string literal = ".*[a]\\ (\xE2\x96\x81)\n#-^$|{1}";
  EXPECT_THAT(matches(quote_pattern(literal), "x" + literal + "y"), ElementsAre(literal));
}

TEST(SplitRegex, LongTextsDoNotExhaustTheStack) {
  const std::string digits(3000, '7');
  EXPECT_EQ(matches(R"(\d{1,3}(?=(?:\d{3})*\b))", digits).size(), 1000u);
  const std::string spaces(1 << 20, ' '), letters(1 << 20, 'A');
  for (const std::string_view name : {"gpt-2", "llama-bpe", "qwen2", "qwen35", "gpt-4o"}) {
    const std::string_view pattern = find_named_splits(name)->patterns.front();
    EXPECT_EQ(matches(pattern, spaces).size(), 1u) << name;
    EXPECT_EQ(matches(pattern, letters).size(), 1u) << name;
    EXPECT_EQ(matches(pattern, spaces + "x").size(), 2u) << name;
  }
}

TEST(SplitRegex, RefusesByName) {
  const auto compile = [](const char* pattern) { return [pattern] { SplitRegex regex(pattern); }; };
  EXPECT_THAT(compile("[a[bc]]"), ThrowsMessage<Error>(HasSubstr("a class inside a class")));
  EXPECT_THAT(compile(R"([\p{L}&&[^\p{Han}]])"), ThrowsMessage<Error>(HasSubstr("&&")));
  EXPECT_THAT(compile(R"(\h)"), ThrowsMessage<Error>(HasSubstr("the escape \\h")));
  EXPECT_THAT(compile("(?m:.)"), ThrowsMessage<Error>(HasSubstr("the group (?m:")));
  EXPECT_THAT(compile("a{2}+"), ThrowsMessage<Error>(HasSubstr("a + after a repeat")));
  EXPECT_THAT(compile("a{x}"), ThrowsMessage<Error>(HasSubstr("the repeat {x}")));
  EXPECT_THAT(compile("a{2"), ThrowsMessage<Error>(HasSubstr("an open {")));
  EXPECT_THAT(compile(R"([\W])"), ThrowsMessage<Error>(HasSubstr("\\W in a class")));
  EXPECT_THAT(compile(R"(\p{NoSuchThing})"), ThrowsMessage<Error>(HasSubstr("unknown property")));
  EXPECT_THAT(compile(R"(\pL)"), ThrowsMessage<Error>(HasSubstr("a property without braces")));
  EXPECT_THAT(compile(R"(\u12)"), ThrowsMessage<Error>(HasSubstr("four hexadecimal digits")));
  EXPECT_THAT(compile("(a"), ThrowsMessage<Error>(HasSubstr("regular expression (a: ")));
  EXPECT_THAT(compile("a\\"), ThrowsMessage<Error>(HasSubstr("a backslash at the end")));
  EXPECT_THAT(compile("\xFF"), ThrowsMessage<Error>(HasSubstr("not UTF-8")));
}

TEST(SplitPatterns, AllCompile) {
  for (const std::string_view name :
       {"gpt-2", "starcoder", "llama-bpe", "dbrx", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3",
        "deepseek-coder", "seed-coder", "bailingmoe"}) {
    const NamedSplits* splits = find_named_splits(name);
    ASSERT_NE(splits, nullptr) << name;
    for (const std::string_view pattern : splits->patterns)
      EXPECT_FALSE(matches(pattern, "Ab 12,\n \xE4\xB8\x80").empty()) << name;
  }
  EXPECT_EQ(find_named_splits("no such"), nullptr);
}

}  // namespace
}  // namespace strata
