// Chat templates: what they see, where they come from, and that no template hangs or crashes the process.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path(std::filesystem::path(testing::TempDir()) / ("strata_chat_" + name)) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path / file) << text; }
  std::filesystem::path path;
};

ChatTemplate::Request hello() {
  ChatTemplate::Request request;
  request.messages = Json::parse(R"([{"role": "user", "content": "Hi", "name": null}])");
  return request;
}

std::string rendered(const std::string& source, const ChatTemplate::Request& request = hello(),
                     const jinja::RenderOptions& options = {}) {
  const auto text = ChatTemplate(source).render(request, options);
  return text ? *text : "error: " + text.error().message;
}

std::string parse_error(const std::string& source) {
  try {
    const ChatTemplate parsed(source);
    return "parsed";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplate, SeesMessagesToolsAndSpecialTokens) {
  const ChatTemplate chat(
      "{{ bos_token }}{{ messages }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ think }}",
      {{"bos_token", "<s>"}});
  auto request = hello();
  request.extra["think"] = 5;
  EXPECT_EQ(chat.render(request).value(), "<s>[{'role': 'user', 'content': 'Hi'}]NoneNoneTrue5");
  request.extra["bos_token"] = "";
  EXPECT_EQ(chat.render(request).value(), "[{'role': 'user', 'content': 'Hi'}]NoneNoneTrue5");
}

TEST(ChatTemplate, GivesReasoningUnderItsNames) {
  ChatTemplate::Request request;
  request.messages = Json::parse(R"([{"role": "assistant", "content": "A", "reasoning": "why"}])");
  EXPECT_EQ(
      rendered("{{ messages[0].reasoning_content }} {{ messages[0].thinking }} {{ messages[0].reasoning }}",
               request),
      "why why why");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(rendered("a\n{{ raise_exception('No system role') }}"),
            "error: chat template: line 2: No system role");
  EXPECT_EQ(rendered("a\n\n{{ nope.x }}"), "error: chat template: line 3: 'nope' is undefined");
  EXPECT_EQ(rendered("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n{{ m() }}"),
            "error: chat template: line 2: division by zero");
  EXPECT_EQ(parse_error("a\n{% if x %}"),
            "chat template: line 2: Unexpected end of template. Jinja was looking for the following tags: "
            "'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'.");
  EXPECT_EQ(parse_error("\n\n{{ x|nope }}"), "chat template: line 3: No filter named 'nope'.");
  EXPECT_THAT(parse_error("\xFF"), HasSubstr("not valid UTF-8"));
  ChatTemplate::Request request;
  request.messages = "text";
  EXPECT_EQ(rendered("x", request), "error: messages must be an array");
}

TEST(ChatTemplate, LoadsFromAFolder) {
  const Folder folder("load");
  EXPECT_FALSE(ChatTemplate::load(folder.path));
  folder.write("tokenizer_config.json",
               R"({"chat_template": "config {{ bos_token }}{{ eos_token }}{{ pad_token }}",
    "bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "</e>", "pad_token": null})");
  EXPECT_EQ(ChatTemplate::load(folder.path)->render(hello()).value(), "config <b></e>");
  folder.write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(ChatTemplate::load(folder.path)->render(hello()).value(), "processor");
  folder.write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(ChatTemplate::load(folder.path)->render(hello()).value(), "file <b>");
  folder.write("chat_template.jinja", "{% if %}");
  EXPECT_THROW(
      {
        try {
          ChatTemplate::load(folder.path);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("chat_template.jinja: chat template: line 1: "));
          throw;
        }
      },
      Error);
  folder.write("tokenizer_config.json", "[");
  EXPECT_THROW(ChatTemplate::load(folder.path), Error);
}

TEST(ChatTemplate, PicksTheToolTemplateWhenThereAreTools) {
  const Folder folder("named");
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools|length }} tools"},
    {"name": "rag", "template": "{% not parsed"}]})");
  const auto chat = ChatTemplate::load(folder.path);
  auto request = hello();
  EXPECT_EQ(chat->render(request).value(), "plain");
  request.tools = Json::parse(R"([{"name": "a"}])");
  EXPECT_EQ(chat->render(request).value(), "1 tools");
  EXPECT_EQ(chat->source(true), "{{ tools|length }} tools");
  EXPECT_TRUE(chat->mentions("tools"));
  EXPECT_FALSE(chat->mentions("enable_thinking"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"}]})");
  EXPECT_THROW(ChatTemplate::load(folder.path), Error);
}

TEST(ChatTemplate, RendersTheEmbeddedModelsTemplate) {
  const auto chat = ChatTemplate::load(std::filesystem::path(STRATA_SOURCE_DIR) / "models" / "tiny-hybrid");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->render(hello()).value(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ManyThreadsRenderTheSameTemplate) {
  const ChatTemplate chat(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}<{{ x }}>{% endmacro %}{% for m2 in messages %}{% set "
      "ns.n = ns.n + 1 %}{{ m(m2.content) }}{% endfor %}{{ ns.n }}");
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (auto& result : results) {
    threads.emplace_back([&chat, &result] {
      for (int i = 0; i < 50; ++i) result = chat.render(hello()).value();
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, "<Hi>1");
}

// Each of these would run forever, fill the memory or overflow the stack if nothing stopped it.
TEST(ChatTemplate, HostileTemplatesEndInErrors) {
  jinja::RenderOptions small;
  small.max_steps = 100'000;
  small.max_bytes = 1'000'000;
  const auto rendered = [&small](const std::string& source, const ChatTemplate::Request& request = hello()) {
    return strata::rendered(source, request, small);
  };
  const std::string long_loop =
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(rendered(long_loop), HasSubstr("steps"));
  EXPECT_THAT(rendered("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("deeper than"));
  EXPECT_THAT(rendered("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), HasSubstr("deeper than"));
  EXPECT_THAT(rendered("{{ 'x' * 10 ** 12 }}"), HasSubstr("error"));
  EXPECT_THAT(rendered("{{ 'x' * 10 ** 30 }}"), HasSubstr("too large"));
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"),
      HasSubstr("bytes of text"));
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
      HasSubstr("bytes of text"));
  EXPECT_THAT(
      rendered(
          "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}"),
      HasSubstr("nested deeper"));
  EXPECT_THAT(rendered("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = "
                       "ns.l|map('string') %}{% endfor %}{{ ns.l|list }}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(rendered("{% set ns = namespace(l=[1, 2]) %}{% for i in range(100) %}{% set ns.l = [ns.l, "
                       "ns.l] %}{% endfor %}{{ ns.l }}"),
              HasSubstr("larger than"));
  EXPECT_THAT(rendered("{{ ('a' * 90000).replace('a', 'b' * 90000) }}"), HasSubstr("too long"));
  EXPECT_THAT(rendered("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"), HasSubstr("Namespace"));
  EXPECT_THAT(rendered("{{ '%1000000000d' % 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(rendered("{{ '{:1000000000}'.format(1) }}"), HasSubstr("too large"));
  EXPECT_THAT(rendered("{{ 'a'.center(10 ** 15) }}"), HasSubstr("too large"));
  EXPECT_THAT(rendered("{{ 10 ** 40 }}"), HasSubstr("too large"));
  EXPECT_THAT(rendered("{{ 2 ** 126 * 4 }}"), HasSubstr("too large"));
  EXPECT_THAT(parse_error("{{ " + std::string(100000, '(') + std::string(100000, ')') + " }}"),
              HasSubstr("nested deeper"));
  EXPECT_THAT(parse_error("{{ " + std::string(100000, '-') + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(parse_error("{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}"),
              HasSubstr("nested deeper"));
  std::string sum = "{{ 1", ifs, nots = "{{ ", conditions = "{{ 1";
  for (int i = 0; i < 20000; ++i) {
    sum += "+1";
    ifs += "{% if 1 %}";
    nots += "not ";
    conditions += " if 1 else 1";
  }
  EXPECT_THAT(parse_error(sum + " }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(parse_error(ifs), HasSubstr("nested deeper"));
  EXPECT_THAT(parse_error(nots + "1 }}"), HasSubstr("nested deeper"));
  EXPECT_THAT(parse_error(conditions + " }}"), HasSubstr("nested deeper"));
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  auto request = hello();
  request.extra["deep"] = deep;
  EXPECT_THAT(rendered("{{ deep }}", request), HasSubstr("nested deeper"));
}

// A stack's worth of everything that nests, at the limits, must still fit.
TEST(ChatTemplate, DeepButAllowedTemplatesWork) {
  std::string parentheses = "{{ " + std::string(120, '(') + "1" + std::string(120, ')') + " }}";
  EXPECT_EQ(rendered(parentheses), "1");
  EXPECT_EQ(
      rendered(
          "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(100) }}"),
      "end");
}

}  // namespace
}  // namespace strata
