// Tool calls and thinking, whole and cut at every byte: the parts must be the same.
#include "text/tool_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/reasoning_parser.h"

namespace strata {
namespace {

struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  int open = 0;                                            // calls begun but not ended
  int argument_deltas = 0;
  bool operator==(const Parsed& o) const {
    return content == o.content && calls == o.calls && open == o.open;
  }
};

void collect(const std::vector<ToolDelta>& deltas, Parsed& to) {
  for (const ToolDelta& d : deltas) switch (d.kind) {
      case ToolDelta::Kind::kContent:
        to.content += d.text;
        break;
      case ToolDelta::Kind::kCallStart:
        EXPECT_EQ(d.call, static_cast<int>(to.calls.size()));
        to.calls.emplace_back(d.text, "");
        ++to.open;
        break;
      case ToolDelta::Kind::kArguments:
        to.calls.at(static_cast<std::size_t>(d.call)).second += d.text;
        ++to.argument_deltas;
        break;
      case ToolDelta::Kind::kCallEnd:
        --to.open;
        break;
    }
}

int is_string(std::string_view function, std::string_view parameter) {
  return function == "write" ? parameter != "count" : -1;
}

Parsed parse(std::string_view text, bool truncated, const std::vector<std::size_t>& cuts) {
  ToolParser parser({true, is_string});
  Parsed out;
  std::size_t at = 0;
  auto step = [&](std::string_view piece) {
    std::vector<ToolDelta> deltas;
    parser.add(piece, deltas);
    collect(deltas, out);
  };
  for (const std::size_t cut : cuts) {
    step(text.substr(at, cut - at));
    at = cut;
  }
  step(text.substr(at));
  std::vector<ToolDelta> deltas;
  parser.finish(truncated, deltas);
  collect(deltas, out);
  EXPECT_EQ(parser.calls(), static_cast<int>(out.calls.size()));
  return out;
}

// The whole parse, after checking that every single cut and every regular cutting gives the same.
Parsed parse_every_way(std::string_view text, bool truncated = false) {
  const Parsed whole = parse(text, truncated, {});
  for (std::size_t cut = 1; cut < text.size(); ++cut)
    EXPECT_TRUE(parse(text, truncated, {cut}) == whole) << cut;
  for (std::size_t size = 1; size <= 32; ++size) {
    std::vector<std::size_t> cuts;
    for (std::size_t at = size; at < text.size(); at += size) cuts.push_back(at);
    EXPECT_TRUE(parse(text, truncated, cuts) == whole) << "pieces of " << size;
  }
  return whole;
}

TEST(ToolParser, FindsACallAndTheTextAroundIt) {
  const Parsed p = parse_every_way(
      "Let me look. \n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Plze\xC5\x88\", "
      "\"n\": [1, {\"a\": \"}\\\"\"}]}}\n"
      "</tool_call>\nDone");
  EXPECT_EQ(p.content, "Let me look.Done");
  ASSERT_EQ(p.calls.size(), 1u);
  EXPECT_EQ(p.calls[0].first, "weather");
  EXPECT_EQ(p.calls[0].second, "{\"city\": \"Plze\xC5\x88\", \"n\": [1, {\"a\": \"}\\\"\"}]}");
  EXPECT_EQ(p.open, 0);
}

TEST(ToolParser, FindsSeveralCallsWithKeysInAnyOrder) {
  const Parsed p = parse_every_way(
      "<tool_call>{\"arguments\": {\"x\": 1}, \"id\": [\"q\", {}], \"name\": \"a\\u0062\"}</tool_call>\n\n"
      "<tool_call>\n{\"name\":\"empty\",\"arguments\":{}}\n</tool_call>"
      "<tool_call>{\"name\":\"none\"}</tool_call><tool_call>{\"name\":\"text\",\"parameters\":\"{\\\"k\\\": "
      "2}\"}</tool_call>");
  EXPECT_EQ(p.content, "");
  ASSERT_EQ(p.calls.size(), 4u);
  EXPECT_EQ(p.calls[0], std::make_pair(std::string("ab"), std::string("{\"x\": 1}")));
  EXPECT_EQ(p.calls[1].second, "{}");
  EXPECT_EQ(p.calls[2].second, "{}");
  EXPECT_EQ(p.calls[3].second, "{\"k\": 2}");
}

TEST(ToolParser, LeavesOtherTextAlone) {
  for (const char* text : {"", " a < b \n", "<tool", "<<tool_calls>", "<tool_call>no json</tool_call>",
                           "x <tool_call>[1]</tool_call>", "<tool_call>{\"name\": 5}</tool_call>",
                           "<tool_call>{\"name\": \"unfinished"})
    EXPECT_EQ(parse_every_way(text).content, text);
}

TEST(ToolParser, CutByLengthShowsNoTagAndKeepsWhatIsSure) {
  const std::string text =
      "Hm. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Brno\"}}\n</tool_call>";
  for (std::size_t n = 3; n <= text.size(); ++n) {
    const Parsed p = parse_every_way(std::string_view(text).substr(0, n), true);
    EXPECT_EQ(p.content.find('<'), std::string::npos) << n;
    EXPECT_TRUE(p.content.starts_with("Hm.")) << n;
    const bool named = n >= text.find("weather\"") + 8;
    ASSERT_EQ(p.calls.size(), named ? 1u : 0u) << n;
    if (!named) continue;
    EXPECT_TRUE(std::string_view("{\"city\": \"Brno\"}").starts_with(p.calls[0].second)) << p.calls[0].second;
    EXPECT_EQ(p.open, 0);
  }
}

TEST(ToolParser, EndsACallWhoseJsonIsBroken) {
  const Parsed p =
      parse_every_way("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, 2</tool_call>after");
  ASSERT_EQ(p.calls.size(), 1u);
  EXPECT_EQ(p.calls[0].second, "{\"a\": [1, 2");
  EXPECT_EQ(p.content, "after");
}

TEST(ToolParser, StreamsALongArgumentAsItComes) {
  ToolParser parser({});
  Parsed out;
  std::string text = "<tool_call>{\"name\": \"write\", \"arguments\": {\"content\": \"";
  for (int i = 0; i < 2000; ++i) text += "word ";
  text += "\"}}</tool_call>";
  for (std::size_t at = 0; at < text.size(); at += 5) {
    std::vector<ToolDelta> deltas;
    parser.add(std::string_view(text).substr(at, 5), deltas);
    collect(deltas, out);
  }
  EXPECT_GE(out.argument_deltas, 1900);
}

TEST(ToolParser, ReadsTheXmlDialect) {
  const Parsed p = parse_every_way(
      "I "
      "write.\n<tool_call>\n<function=write>\n<parameter=path>\na\"b\\c.txt\n</"
      "parameter>\n<parameter=text>\nline <one>\n\nline two </param\n"
      "</parameter>\n<parameter=count>\n3\n</parameter>\n</function>\n</tool_call>\n"
      "<tool_call><function=other><parameter=list>[1, 2]</parameter><parameter=word>x "
      "y</parameter></function></tool_call>");
  EXPECT_EQ(p.content, "I write.");
  ASSERT_EQ(p.calls.size(), 2u);
  const auto written = nlohmann::json::parse(p.calls[0].second);
  EXPECT_EQ(written["path"], "a\"b\\c.txt");
  EXPECT_EQ(written["text"], "line <one>\n\nline two </param");
  EXPECT_EQ(written["count"], 3);
  EXPECT_EQ(nlohmann::json::parse(p.calls[1].second),
            nlohmann::json::parse(R"({"list": [1, 2], "word": "x y"})"));
}

TEST(ToolParser, EndsAnXmlCallThatIsBroken) {
  const Parsed p =
      parse_every_way("<tool_call><function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>after");
  ASSERT_EQ(p.calls.size(), 1u);
  EXPECT_EQ(p.calls[0].second, "{\"a\": 1}");
  EXPECT_EQ(p.content, "after");
}

struct Thought {
  std::string reasoning, content;
  bool operator==(const Thought&) const = default;
};

Thought split(std::string_view text, bool open, bool truncated) {
  auto run = [&](const std::vector<std::size_t>& cuts) {
    ReasoningParser parser(open);
    Thought out;
    std::size_t at = 0;
    for (const std::size_t cut : cuts) {
      parser.add(text.substr(at, cut - at), out.reasoning, out.content);
      at = cut;
    }
    parser.add(text.substr(at), out.reasoning, out.content);
    parser.finish(truncated, out.reasoning, out.content);
    return out;
  };
  const Thought whole = run({});
  std::vector<std::size_t> each;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(run({cut}), whole) << cut;
    each.push_back(cut);
  }
  EXPECT_EQ(run(each), whole);
  return whole;
}

TEST(ReasoningParser, SplitsForEachEndOfThePrompt) {
  const Thought neither = split("<think>\n1 + 1 = 2.\n</think>\n\nIt is 2.", false, false);
  EXPECT_EQ(neither, (Thought{"1 + 1 = 2.", "It is 2."}));
  EXPECT_EQ(split("\n1 + 1 = 2.\n</think>\n\nIt is 2.", true, false), neither);
  EXPECT_EQ(split("It is 2.", false, false), (Thought{"", "It is 2."}));
  EXPECT_EQ(split("a < b <think> c </think>", false, false), (Thought{"", "a < b <think> c </think>"}));
  EXPECT_EQ(split("<think>a < b </thin </think>c", false, false), (Thought{"a < b </thin", "c"}));
}

TEST(ReasoningParser, CutByLengthShowsNoTag) {
  const std::string text = "<think>\nhm hm\n</think>\n\nyes";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const Thought t = split(std::string_view(text).substr(0, n), false, true);
    EXPECT_EQ(t.reasoning.find('<'), std::string::npos) << n;
    EXPECT_EQ(t.content.find('<'), std::string::npos) << n;
  }
  EXPECT_EQ(split("  <thi", false, false), (Thought{"", "  <thi"}));
}

TEST(ReasoningParser, KnowsAPromptThatThinksAlready) {
  EXPECT_TRUE(ReasoningParser::prompt_is_open("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ReasoningParser::prompt_is_open("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ReasoningParser::prompt_is_open("<|im_start|>assistant\n"));
  EXPECT_FALSE(ReasoningParser::prompt_is_open(""));
}

}  // namespace
}  // namespace strata
