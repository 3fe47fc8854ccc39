// /v1/completions, /v1/responses, /v1/messages and the plain routes over a scripted engine.
#include "server/api_fixture.h"

namespace strata::test {
namespace {

class ApisTest : public ApiTest {
 protected:
  static constexpr const char* kCall =
      "<think>\nWhich city?\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": {\"city\": \"Brno\"}}\n</tool_call>";
};

using CompletionsTest = ApisTest;
using ResponsesTest = ApisTest;
using MessagesTest = ApisTest;
using PlainRoutesTest = ApisTest;

TEST_F(CompletionsTest, EchoesThePromptWithItsLogprobs) {
  say(" Brno");
  const std::string prompt = "The room of";
  const Json body{{"prompt", prompt}, {"echo", true}, {"logprobs", 2}, {"max_tokens", 8}};
  const Answer answer = ask("/v1/completions", body);
  ASSERT_EQ(answer.status, 200) << answer.text;
  const Json& choice = answer.json["choices"][0];
  EXPECT_EQ(choice["text"], prompt + " Brno");
  EXPECT_EQ(choice["finish_reason"], "stop");
  const Json& logprobs = choice["logprobs"];
  std::string text;
  for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    EXPECT_EQ(logprobs["text_offset"][i], text.size());
    text += logprobs["tokens"][i].get<std::string>();
  }
  EXPECT_EQ(text, prompt + " Brno");
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -0.5);
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 2u);
  EXPECT_EQ(engine_->requests()[0].prompt_logprobs, 2);
}

TEST_F(CompletionsTest, StreamsTheSameTextForEveryPromptAndChoice) {
  script_ = [this](const Request& request) {
    return encode(" after " + service_.tokenizer->decode(request.prompt, false));
  };
  Json body{{"prompt", {"one", "two"}}, {"n", 2}, {"max_tokens", 100}, {"logprobs", 0}};
  const Answer whole = ask("/v1/completions", body);
  ASSERT_EQ(whole.status, 200) << whole.text;
  ASSERT_EQ(whole.json["choices"].size(), 4u);
  EXPECT_EQ(whole.json["choices"][3]["text"], " after two");
  body["stream"] = true;
  std::map<int, std::string> text;
  std::map<int, std::size_t> tokens;
  for (const Json& event : events_of(ask("/v1/completions", body).text)) {
    const Json& choice = event["choices"][0];
    text[choice["index"].get<int>()] += choice["text"].get<std::string>();
    tokens[choice["index"].get<int>()] += choice["logprobs"]["tokens"].size();
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(text[i], whole.json["choices"][static_cast<std::size_t>(i)]["text"].get<std::string>());
    EXPECT_EQ(tokens[i], whole.json["choices"][static_cast<std::size_t>(i)]["logprobs"]["tokens"].size());
  }
}

TEST_F(CompletionsTest, TakesTokensAndScoresWithoutGenerating) {
  say("x");
  const std::vector<int> tokens = encode("The room of");
  const Answer answer =
      ask("/v1/completions", {{"prompt", tokens}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(engine_->requests()[0].prompt, tokens);
  EXPECT_EQ(answer.json["choices"][0]["text"], "The room of");
  EXPECT_EQ(answer.json["usage"]["completion_tokens"], 0);
  EXPECT_EQ(answer.json["choices"][0]["logprobs"]["tokens"].size(), tokens.size());
}

TEST_F(CompletionsTest, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {{R"({})", "prompt"},
                                                       {R"({"prompt": ""})", "prompt"},
                                                       {R"({"prompt": []})", "prompt"},
                                                       {R"({"prompt": [99999]})", "prompt"},
                                                       {R"({"prompt": [-1]})", "prompt"},
                                                       {R"({"prompt": [["a"]]})", "prompt"},
                                                       {R"({"prompt": 5})", "prompt"},
                                                       {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
                                                       {R"({"prompt": "a", "max_tokens": -1})", "max_tokens"},
                                                       {R"({"prompt": "a", "best_of": 3})", "best_of"},
                                                       {R"({"prompt": "a", "suffix": "b"})", "suffix"},
                                                       {R"({"prompt": "a", "logprobs": 50})", "logprobs"},
                                                       {R"({"prompt": ["a", "b"], "n": 60})", "n"}};
  for (const auto& [body, param] : cases) {
    const Answer answer = ask("/v1/completions", Json::parse(body));
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json["error"]["param"], param) << body;
  }
  say("x");
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "a"}}).status, 200);
  EXPECT_EQ(engine_->requests().back().max_tokens, 16);
}

TEST_F(ResponsesTest, HasItemsForThinkingTextAndCalls) {
  say(kCall);
  const Json tool{{"type", "function"},
                  {"name", "get_weather"},
                  {"parameters", weather_tool()[0]["function"]["parameters"]}};
  Json body{{"input", "Weather?"}, {"tools", Json::array({tool})}, {"instructions", "Be brief."}};
  const Answer whole = ask("/v1/responses", body);
  ASSERT_EQ(whole.status, 200) << whole.text;
  const Json& output = whole.json["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["content"][0]["text"], "Which city?");
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me look.");
  EXPECT_EQ(output[2]["name"], "get_weather");
  EXPECT_EQ(output[2]["arguments"], "{\"city\": \"Brno\"}");
  EXPECT_EQ(whole.json["status"], "completed");
  EXPECT_NE(prompt_text().find("Be brief."), std::string::npos);

  body["stream"] = true;
  std::map<std::string, std::string> joined;
  int number = 0;
  Json last;
  for (const Json& event : events_of(ask("/v1/responses", body).text)) {
    EXPECT_EQ(event["sequence_number"], number++);
    if (event.contains("delta"))
      joined[event["type"].get<std::string>()] += event["delta"].get<std::string>();
    last = event;
  }
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(joined["response.reasoning_text.delta"], "Which city?");
  EXPECT_EQ(joined["response.output_text.delta"], "Let me look.");
  EXPECT_EQ(joined["response.function_call_arguments.delta"], "{\"city\": \"Brno\"}");
  ASSERT_EQ(last["response"]["output"].size(), 3u);
  EXPECT_EQ(last["response"]["output"][1]["content"], output[1]["content"]);
}

TEST_F(ResponsesTest, ReadsItemsOfAConversation) {
  say("ok");
  const Json body{
      {"input", Json::parse(R"([{"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\": \"Brno\"}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"}])")}};
  ASSERT_EQ(ask("/v1/responses", body).status, 200);
  EXPECT_EQ(prompt_text(),
            "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": "
            "\"get_weather\", \"arguments\": {\"city\": \"Brno\"}}\n"
            "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</"
            "tool_response><|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ResponsesTest, CutAndRefused) {
  say("one two three");
  const Answer cut = ask("/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 1}});
  EXPECT_EQ(cut.json["status"], "incomplete");
  EXPECT_EQ(cut.json["incomplete_details"]["reason"], "max_output_tokens");
  for (const char* body :
       {R"({"input": ""})", R"({})", R"({"input": "a", "previous_response_id": "x"})",
        R"({"input": [{"type": "item_reference"}]})", R"({"input": "a", "tools": [{"type": "web_search"}]})",
        R"({"input": "a", "background": true})"})
    EXPECT_EQ(ask("/v1/responses", Json::parse(body)).status, 400) << body;
}

TEST_F(MessagesTest, HasBlocksForThinkingTextAndCalls) {
  say(kCall);
  engine_->cached_tokens = 5;
  const Json tool{{"name", "get_weather"}, {"input_schema", weather_tool()[0]["function"]["parameters"]}};
  Json body{{"model", "tiny"},
            {"max_tokens", 500},
            {"system", "Be brief."},
            {"messages", Json::array({user("Weather?")})},
            {"tools", Json::array({tool})}};
  const Answer whole = ask("/v1/messages", body);
  ASSERT_EQ(whole.status, 200) << whole.text;
  const Json& content = whole.json["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["thinking"], "Which city?");
  EXPECT_EQ(content[1]["text"], "Let me look.");
  EXPECT_EQ(content[2]["input"], Json::parse(R"({"city": "Brno"})"));
  EXPECT_EQ(whole.json["stop_reason"], "tool_use");
  EXPECT_EQ(whole.json["usage"]["cache_read_input_tokens"], 5);
  EXPECT_EQ(whole.json["usage"]["input_tokens"].get<std::size_t>() + 5, engine_->requests()[0].prompt.size());

  body["stream"] = true;
  const Answer streamed = ask("/v1/messages", body);
  EXPECT_NE(streamed.text.find("event: message_start\n"), std::string::npos);
  std::string thinking, text, json, types;
  for (const Json& event : events_of(streamed.text)) {
    types += event["type"].get<std::string>() + " ";
    if (event["type"] != "content_block_delta") continue;
    thinking += event["delta"].value("thinking", "");
    text += event["delta"].value("text", "");
    json += event["delta"].value("partial_json", "");
  }
  EXPECT_EQ(thinking, "Which city?");
  EXPECT_EQ(text, "Let me look.");
  EXPECT_EQ(json, "{\"city\": \"Brno\"}");
  EXPECT_TRUE(types.starts_with("message_start content_block_start content_block_delta ")) << types;
  EXPECT_TRUE(types.ends_with("content_block_stop message_delta message_stop ")) << types;
}

TEST_F(MessagesTest, ReadsBlocksOfAConversation) {
  say("ok");
  Json body = Json::parse(R"({"max_tokens": 5, "system": [{"type": "text", "text": "Sys."}], "messages": [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Look."},
      {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Brno"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]}, {"type": "text", "text": "And?"}]}]})");
  ASSERT_EQ(ask("/v1/messages", body).status, 200);
  EXPECT_EQ(prompt_text(),
            "<|im_start|>system\nSys.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>"
            "assistant\nLook.<tool_call>\n{\"name\": \"get_weather\", "
            "\"arguments\": {\"city\": "
            "\"Brno\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</"
            "tool_response><|im_end|>\n"
            "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  body.erase("max_tokens");
  EXPECT_EQ(ask("/v1/messages", body).status, 400);
  EXPECT_EQ(ask("/v1/messages/count_tokens", body).json["input_tokens"],
            engine_->requests()[0].prompt.size());
}

TEST_F(MessagesTest, ContinuesALastMessageOfTheAssistant) {
  say(" there");
  const Answer answer = ask(
      "/v1/messages",
      Json::parse(
          R"({"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})"));
  EXPECT_EQ(answer.json["content"][0]["text"], " there");
  EXPECT_TRUE(prompt_text().ends_with("<|im_start|>assistant\nHello"));
}

TEST_F(MessagesTest, StopsAndErrorsInItsOwnForm) {
  say("one two three");
  const Answer cut = ask(
      "/v1/messages",
      Json::parse(
          R"({"max_tokens": 50, "stop_sequences": ["two"], "messages": [{"role": "user", "content": "Hi"}]})"));
  EXPECT_EQ(cut.json["stop_reason"], "stop_sequence");
  EXPECT_EQ(cut.json["stop_sequence"], "two");
  EXPECT_EQ(cut.json["content"][0]["text"], "one ");
  for (
      const char* body :
      {R"({"max_tokens": 5})", R"({"max_tokens": 5, "messages": [{"role": "system", "content": "x"}]})", "{",
       R"({"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "any"}})"}) {
    const Answer answer = send(post("/v1/messages", body));
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json["type"], "error") << body;
    EXPECT_EQ(answer.json["error"]["type"], "invalid_request_error") << body;
  }
}

TEST_F(PlainRoutesTest, ListsModelsAndTurnsTextIntoTokens) {
  const Answer models = send(get("/v1/models"));
  EXPECT_EQ(models.json["data"][0]["id"], "tiny");
  EXPECT_EQ(models.json["data"][1]["parent"], "tiny");
  EXPECT_EQ(send(get("/v1/models/polite")).json["id"], "polite");
  EXPECT_EQ(send(get("/v1/models/nothing")).status, 404);
  const Answer tokens = ask("/tokenize", {{"prompt", "The room of"}, {"return_token_strs", true}});
  EXPECT_EQ(tokens.json["tokens"], Json(encode("The room of")));
  EXPECT_EQ(tokens.json["token_strs"].size(), tokens.json["count"]);
  EXPECT_EQ(ask("/detokenize", {{"tokens", tokens.json["tokens"]}}).json["prompt"], "The room of");
  EXPECT_EQ(ask("/detokenize", {{"tokens", {1, 99999}}}).status, 400);
  EXPECT_EQ(ask("/tokenize", {{"x", 1}}).status, 400);
  const Answer rendered = ask("/tokenize", {{"messages", Json::array({user("Hi")})}});
  EXPECT_EQ(service_.tokenizer->decode(rendered.json["tokens"].get<std::vector<int>>(), false),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(PlainRoutesTest, UnknownPathsAndMethodsAndThePage) {
  EXPECT_EQ(send(get("/nothing")).status, 404);
  const Answer wrong = send(get("/v1/chat/completions"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST"), std::string::npos);
  const Answer page = send(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.text.find("</html>"), std::string::npos);
  const Answer metrics = send(get("/metrics"));
  EXPECT_NE(metrics.text.find("strata_time_to_first_token_seconds_bucket{le=\"+Inf\"} 6\n"),
            std::string::npos);
  EXPECT_NE(metrics.text.find("strata_http_responses_total{path=\"other\",status=\"404\"} 1\n"),
            std::string::npos)
      << metrics.text;
}

}  // namespace
}  // namespace strata::test
