// response_format from the request to the constraint that the engine gets.
#include "server/structured.h"

#include "server/api_fixture.h"

namespace strata::test {
namespace {

const Json kSchema = Json::parse(
    R"({"type": "object", "properties": {"city": {"type": "string"}, "warm": {"type": "boolean"}}, "required": ["city", "warm"]})");

Json schema_format(const Json& schema) {
  return {{"type", "json_schema"},
          {"json_schema", {{"name", "answer"}, {"strict", true}, {"schema", schema}}}};
}

class StructuredTest : public ApiTest {
 protected:
  StructuredTest() {
    configure = [this] { service_.make_constraint = json_constraints(service_.tokenizer); };
  }
  // The constraint of the last request the engine got.
  std::shared_ptr<Constraint> constraint() const { return engine_->requests().back().constraint; }
  bool takes(const std::vector<int>& tokens) const {
    const auto copy = constraint()->clone();
    for (const int token : tokens) {
      std::vector<std::uint32_t> mask(static_cast<std::size_t>(engine_->info().vocab_size + 31) / 32);
      copy->allowed(mask);
      const bool allowed = (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
      const bool accepted = copy->accept(token);
      EXPECT_EQ(allowed, accepted) << "token " << token;
      if (!accepted) return false;
    }
    return copy->complete();
  }
  bool takes(std::string_view text) const { return takes(encode(text)); }
  Answer ask_chat(Json format, Json more = Json::object()) const {
    Json body = chat("hello");
    body["response_format"] = std::move(format);
    body.update(more);
    return ask("/v1/chat/completions", body);
  }
};

TEST_F(StructuredTest, ConstrainsTheAnswer) {
  say(R"({"city": "Rome", "warm": true})");
  const Answer answer = ask_chat(schema_format(kSchema));
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_TRUE(takes(R"({"city": "Rome", "warm": true})"));
  EXPECT_TRUE(takes(R"(<think>{{ what? </think>{"city": "", "warm": false})"));
  EXPECT_FALSE(takes(R"({"city": "Rome"})"));
  EXPECT_FALSE(takes(R"({{"city")"));
  EXPECT_FALSE(takes("<tool_call>"));
  EXPECT_FALSE(takes({1191})) << "an end token is the engine's";

  ASSERT_EQ(ask_chat({{"type", "json_object"}}).status, 200);
  EXPECT_TRUE(takes(R"({"any": [{}]})"));
  EXPECT_FALSE(takes("[]"));
  ASSERT_EQ(ask_chat({{"type", "text"}}).status, 200);
  EXPECT_EQ(constraint(), nullptr);

  const Answer two = ask_chat(schema_format(kSchema), {{"n", 2}});
  ASSERT_EQ(two.status, 200);
  const auto requests = engine_->requests();
  EXPECT_NE(requests.end()[-1].constraint, requests.end()[-2].constraint)
      << "each choice has its own place in the text";
}

TEST_F(StructuredTest, OtherEndpoints) {
  const Json completion{{"prompt", "x"}, {"response_format", schema_format(kSchema)}};
  ASSERT_EQ(ask("/v1/completions", completion).status, 200);
  EXPECT_TRUE(takes(R"({"city":"","warm":false})"));
  EXPECT_FALSE(takes("<think></think>{"));
  Json format{{"type", "json_schema"}, {"name", "answer"}, {"schema", kSchema}};
  const Json response{{"input", "x"}, {"text", {{"format", format}}}};
  ASSERT_EQ(ask("/v1/responses", response).status, 200);
  EXPECT_TRUE(takes(R"({"city":"","warm":false})"));
  format["schema"]["uniqueItems"] = true;
  const Answer bad = ask("/v1/responses", {{"input", "x"}, {"text", {{"format", format}}}});
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.json["error"]["param"], "text.format");
}

// Cases 27 and 28: the marker is one token or several, and the text begins in the same token or the next.
TEST_F(StructuredTest, TheConstraintStartsRightAfterThinking) {
  service_.chat_template = std::make_shared<ChatTemplate>(
      std::map<std::string, std::string>{
          {"default", "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n"}},
      Json::object());
  ASSERT_EQ(ask_chat(schema_format(kSchema)).status, 200);
  const std::string json = R"({"city": "{{", "warm": true})";
  const auto whole = encode("so {{ it is</think>\n\n" + json);
  EXPECT_TRUE(takes(whole));
  const auto bytes_of = [&](std::string_view text) {  // one token a byte
    std::vector<int> out;
    for (const char c : text)
      for (const int t : service_.tokenizer->encode(std::string(1, c), {.add_special = false}))
        out.push_back(t);
    return out;
  };
  EXPECT_TRUE(takes(bytes_of("so </thin </think>" + json)));
  EXPECT_FALSE(takes(bytes_of("so </think>{{")));
  EXPECT_FALSE(takes(bytes_of(json)));
}

TEST_F(StructuredTest, AlongsideTools) {
  const Json tools = weather_tool();
  ASSERT_EQ(ask_chat(schema_format(kSchema), {{"tools", tools}}).status, 200);
  EXPECT_TRUE(takes(R"(<tool_call>
{"name": "get_weather", "arguments": {}}
</tool_call>)"));
  EXPECT_TRUE(takes(R"({"city":"","warm":false})"));
  EXPECT_FALSE(takes("Hello"));
  ASSERT_EQ(ask_chat(schema_format(kSchema), {{"tools", tools}, {"tool_choice", "none"}}).status, 200);
  EXPECT_FALSE(takes("<tool_call>"));
  ASSERT_EQ(ask_chat(schema_format(kSchema), {{"tools", tools}, {"tool_choice", "required"}}).status, 200);
  EXPECT_EQ(constraint(), nullptr) << "the answer is a call";
}

TEST_F(StructuredTest, WhatCannotBeEnforcedIsRefused) {
  const std::vector<std::pair<Json, const char*>> cases{
      {schema_format({{"type", "array"}, {"uniqueItems", true}}), "uniqueItems"},
      {schema_format({{"type", "string"}, {"pattern", "(a)\\1"}}), "back reference"},
      {schema_format(false), "schema"},
      {{{"type", "json_schema"}}, "schema"},
      {{{"type", "xml"}}, "type"},
  };
  for (const auto& [format, part] : cases) {
    const Answer answer = ask_chat(format);
    EXPECT_EQ(answer.status, 400) << format.dump();
    EXPECT_NE(answer.text.find(part), std::string::npos) << answer.text;
    EXPECT_NE(answer.text.find("response_format"), std::string::npos) << answer.text;
  }
  Json body = chat("hello");
  body["messages"].push_back({{"role", "assistant"}, {"content", "{"}});
  body["continue_final_message"] = true;
  body["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(ask("/v1/chat/completions", body).status, 400);
}

// Case 30
TEST_F(StructuredTest, LargeSchemasAreAccepted) {
  EXPECT_EQ(ask_chat(schema_format({{"type", "object"}, {"properties", Json::object()}})).status, 200);
  EXPECT_EQ(ask_chat(schema_format({{"type", "string"}, {"maxLength", 100000}})).status, 200);
  EXPECT_EQ(ask_chat(schema_format({{"type", "string"}, {"pattern", "^((a|b(c|d))-)*$"}})).status, 200);
  Json tools = Json::array();
  for (int i = 0; i < 32; ++i) {
    Json tool = weather_tool()[0];
    tool["function"]["name"] = "tool_" + std::to_string(i);
    tool["function"]["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
    tools.push_back(tool);
  }
  EXPECT_EQ(ask_chat(schema_format(kSchema), {{"tools", tools}}).status, 200);
}

}  // namespace
}  // namespace strata::test
