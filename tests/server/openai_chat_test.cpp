// /v1/chat/completions over a scripted engine: forms, streams equal to whole answers, errors, disconnects.
#include "server/api_fixture.h"

namespace strata::test {
namespace {

class ChatTest : public ApiTest {
 protected:
  // The message that a stream's chunks add up to.
  static Json joined(const Answer& answer, std::size_t choice = 0) {
    Json out{{"content", ""},
             {"reasoning", ""},
             {"calls", Json::array()},
             {"finish", nullptr},
             {"logprobs", Json::array()}};
    for (const Json& event : events_of(answer.text)) {
      if (event["choices"].empty() || event["choices"][0]["index"] != choice) continue;
      const Json& item = event["choices"][0];
      const Json& delta = item["delta"];
      const auto append = [&](const char* to, const Json& text) {
        out[to].get_ref<std::string&>() += text.get<std::string>();
      };
      if (delta.contains("content")) append("content", delta["content"]);
      if (delta.contains("reasoning_content")) append("reasoning", delta["reasoning_content"]);
      if (delta.contains("tool_calls"))
        for (const Json& call : delta["tool_calls"]) {
          const auto index = call["index"].get<std::size_t>();
          if (index == out["calls"].size())
            out["calls"].push_back({{"name", call["function"]["name"]}, {"arguments", ""}});
          out["calls"][index]["arguments"].get_ref<std::string&>() +=
              call["function"]["arguments"].get<std::string>();
        }
      if (item["logprobs"].is_object())
        for (const Json& entry : item["logprobs"]["content"]) out["logprobs"].push_back(entry);
      if (!item["finish_reason"].is_null()) out["finish"] = item["finish_reason"];
    }
    return out;
  }
  static Json joined_whole(const Answer& answer, std::size_t choice = 0) {
    const Json& item = answer.json["choices"][choice];
    const Json& message = item["message"];
    Json out{{"content", message["content"].is_null() ? Json("") : message["content"]},
             {"reasoning", message.value("reasoning_content", "")},
             {"calls", Json::array()},
             {"finish", item["finish_reason"]},
             {"logprobs", item["logprobs"].is_null() ? Json::array() : item["logprobs"]["content"]}};
    if (message.contains("tool_calls"))
      for (const Json& call : message["tool_calls"])
        out["calls"].push_back(
            {{"name", call["function"]["name"]}, {"arguments", call["function"]["arguments"]}});
    return out;
  }
  // Asks whole and streamed, in events of 1, 3 and 50 tokens; all must agree.
  Json ask_every_way(Json body) {
    const Json whole = joined_whole(ask("/v1/chat/completions", body));
    body["stream"] = true;
    for (const int size : {1, 3, 50}) {
      engine_->tokens_per_event = size;
      EXPECT_EQ(joined(ask("/v1/chat/completions", body)), whole) << "events of " << size;
    }
    engine_->tokens_per_event = 1;
    return whole;
  }
};

TEST_F(ChatTest, AnswersWholeWithUsage) {
  say("Hello there");
  engine_->cached_tokens = 3;
  const Answer answer = ask("/v1/chat/completions", chat("Hi"));
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.json["object"], "chat.completion");
  EXPECT_EQ(answer.json["model"], "tiny");
  EXPECT_EQ(answer.json["choices"][0]["message"]["content"], "Hello there");
  EXPECT_EQ(answer.json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer.json["usage"]["completion_tokens"], encode("Hello there").size() + 1);
  EXPECT_EQ(answer.json["usage"]["prompt_tokens"], engine_->requests()[0].prompt.size());
  EXPECT_EQ(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(prompt_text(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTest, StreamsWithUsageAtTheEnd) {
  say("Hello there");
  Json body = chat("Hi");
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Answer answer = ask("/v1/chat/completions", body);
  ASSERT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("text/event-stream"), std::string::npos);
  EXPECT_TRUE(answer.text.ends_with("data: [DONE]\n\n"));
  const auto events = events_of(answer.text);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], encode("Hello there").size() + 1);
  EXPECT_TRUE(events.front()["usage"].is_null());
}

TEST_F(ChatTest, TakesThinkingAndCallsApartStreamedAndWhole) {
  say("<think>\nWhich city?\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": {\"city\": \"Brno\"}}\n</tool_call>");
  Json body = chat("Weather?");
  body["tools"] = weather_tool();
  const Json got = ask_every_way(body);
  EXPECT_EQ(got["reasoning"], "Which city?");
  EXPECT_EQ(got["content"], "Let me look.");
  EXPECT_EQ(got["calls"], Json::parse(R"([{"name": "get_weather", "arguments": "{\"city\": \"Brno\"}"}])"));
  EXPECT_EQ(got["finish"], "tool_calls");
  EXPECT_NE(prompt_text().find("get_weather"), std::string::npos);
}

TEST_F(ChatTest, CutByLengthAnywhereShowsNoTag) {
  const std::string text =
      "<think>\nHm\n</think>\n\nOk <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
      "\"Brno\"}}\n</tool_call>";
  say(text);
  Json body = chat("Weather?");
  body["tools"] = weather_tool();
  for (std::size_t n = 1; n <= encode(text).size(); ++n) {
    body["max_tokens"] = n;
    const Json got = ask_every_way(body);
    EXPECT_EQ(got["finish"], "length");
    EXPECT_EQ(got["content"].get<std::string>().find('<'), std::string::npos) << n;
    EXPECT_EQ(got["reasoning"].get<std::string>().find('<'), std::string::npos) << n;
  }
}

TEST_F(ChatTest, WithoutToolsTagsAreContent) {
  say("<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_EQ(ask_every_way(chat("Hi"))["content"], "<tool_call>{\"name\": \"f\"}</tool_call>");
}

TEST_F(ChatTest, FinishReasonFollowsTheToolChoice) {
  Json body = chat("Weather?");
  body["tools"] = weather_tool();
  body["tool_choice"] = "required";
  say(" \"get_weather\", \"arguments\": {\"city\": \"Brno\"}}\n</tool_call>");
  Json got = ask_every_way(body);
  EXPECT_EQ(got["finish"], "tool_calls");
  EXPECT_EQ(got["calls"][0]["arguments"], "{\"city\": \"Brno\"}");
  EXPECT_TRUE(prompt_text().ends_with("<tool_call>\n{\"name\":"));
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  say(" {\"city\": \"Brno\"}}\n</tool_call> and more");
  got = ask_every_way(body);
  EXPECT_EQ(got["finish"], "stop");
  EXPECT_EQ(got["calls"], Json::parse(R"([{"name": "get_weather", "arguments": "{\"city\": \"Brno\"}"}])"));
  EXPECT_EQ(got["content"], "");
  body["tool_choice"] = "auto";
  say("No call.");
  EXPECT_EQ(ask_every_way(body)["finish"], "stop");
  body["tool_choice"] = "none";
  ask("/v1/chat/completions", body);
  EXPECT_EQ(prompt_text(engine_->requests().size() - 1).find("get_weather"), std::string::npos);
}

TEST_F(ChatTest, StopStringsOfSeveralTokensEndTextAndLogprobs) {  // cases 37 and 38: ask_every_way() brings several tokens a step too, as drafts do
  say("A B C D E F G H I J K L M N O P Q R S T U V W X Y Z");
  Json body = chat("Continue");
  body["stop"] = "O P Q";
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const Json got = ask_every_way(body);
  EXPECT_EQ(got["content"], "A B C D E F G H I J K L M N ");
  EXPECT_EQ(got["finish"], "stop");
  std::string text;
  for (const Json& entry : got["logprobs"]) text += entry["token"].get<std::string>();
  EXPECT_TRUE(std::string_view("A B C D E F G H I J K L M N ").starts_with(text)) << text;
  EXPECT_GE(text.size(), 27u);
  EXPECT_EQ(got["logprobs"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(ask("/v1/chat/completions", body).json["usage"]["completion_tokens"], got["logprobs"].size());
  EXPECT_TRUE(eventually([&] { return engine_->running() == 0; }));
}

TEST_F(ChatTest, CharactersArriveWhole) {  // case 36
  const std::string text =
      "\xF0\x9F\x91\x8B \xC4\x8F \xED\x95\x9C\xEA\xB8\x80 "
      "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
  say(text);
  EXPECT_EQ(ask_every_way(chat("Hi"))["content"], text);
}

TEST_F(ChatTest, SeveralChoicesHaveTheirOwnSeeds) {
  script_ = [this](const Request& request) {
    return encode("seed " + std::to_string(request.sampling.seed.value_or(0)));
  };
  Json body = chat("Hi");
  body["n"] = 4;
  body["seed"] = 7;
  const Answer whole = ask("/v1/chat/completions", body);
  body["stream"] = true;
  const Answer streamed = ask("/v1/chat/completions", body);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(whole.json["choices"][i]["message"]["content"], "seed " + std::to_string(7 + i));
    EXPECT_EQ(joined(streamed, i), joined_whole(whole, i));
  }
  EXPECT_EQ(whole.json["usage"]["prompt_tokens"], engine_->requests()[0].prompt.size());
}

TEST_F(ChatTest, PassesOptionsToTheEngine) {
  Json body = chat("Hi");
  body.update(Json::parse(
      R"({"temperature": 0.5, "top_p": 0.25, "top_k": 5, "min_p": 0.125, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.5, "logit_bias": {"17": -100}, "seed": -1, "min_tokens": 2, "max_completion_tokens": 9, "max_tokens": 5,
    "ignore_eos": true, "priority": 3, "cache_salt": "tenant", "stop_token_ids": [4], "timeout": 5, "model": "polite",
    "unknown_field": {"a": [1]}})"));
  ASSERT_EQ(ask("/v1/chat/completions", body).status, 200);
  const Request r = engine_->requests()[0];
  EXPECT_FLOAT_EQ(r.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(r.sampling.top_p, 0.25F);
  EXPECT_EQ(r.sampling.top_k, 5);
  EXPECT_FLOAT_EQ(r.sampling.min_p, 0.125F);
  EXPECT_FLOAT_EQ(r.sampling.presence_penalty, 1);
  EXPECT_FLOAT_EQ(r.sampling.frequency_penalty, -1);
  EXPECT_FLOAT_EQ(r.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(r.sampling.logit_bias, (std::vector<std::pair<int, float>>{{17, -100.F}}));
  EXPECT_EQ(r.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(r.sampling.min_tokens, 2);
  EXPECT_TRUE(r.sampling.ignore_eos);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.priority, 3);
  EXPECT_EQ(r.cache_salt, "tenant");
  EXPECT_EQ(r.stop_tokens, std::vector<int>{4});
  EXPECT_EQ(r.adapter, "polite");
  EXPECT_TRUE(r.deadline.has_value());
}

TEST_F(ChatTest, ImpossibleValuesAreNamedAndHarmNobody) {  // case 40
  say("fine fine fine fine fine fine");
  engine_->delay_ms = 20;
  RawClient good(port_);
  good.send(post("/v1/chat/completions", chat("Hi").dump()));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature": -1})", "temperature"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_p": 1.5})", "top_p"},
      {R"({"top_k": -2})", "top_k"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_tokens": 1.5})", "max_tokens"},
      {R"({"max_tokens": 1e30})", "max_tokens"},
      {R"({"n": 0})", "n"},
      {R"({"n": 100000})", "n"},
      {R"({"logit_bias": {"1280": 1}})", "logit_bias"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1": 1000}})", "logit_bias"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"top_logprobs": 2})", "top_logprobs"},
      {R"({"stop": [""]})", "stop"},
      {R"({"stop": 5})", "stop"},
      {R"({"stream": "yes"})", "stream"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})",
       "messages[0].content"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {R"({"tool_choice": "required"})", "tool_choice"},
      {R"({"tool_choice": {"type": "function", "function": {"name": "nope"}}})", "tool_choice"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}})",
       "response_format"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"stream_options": {"include_usage": 3}})", "stream_options"},
  };
  for (const auto& [text, param] : cases) {
    Json body = chat("Hi");
    body.update(Json::parse(text));
    const Answer answer = ask("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << text;
    EXPECT_EQ(answer.json["error"]["type"], "invalid_request_error") << text;
    EXPECT_EQ(answer.json["error"]["param"], param) << text << answer.text;
  }
  Json unknown = chat("Hi");
  unknown["model"] = "gpt-9";
  const Answer answer = ask("/v1/chat/completions", unknown);
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.json["error"]["code"], "model_not_found");
  Json too_long = chat(std::string(20'000, 'x') + "y z");
  EXPECT_EQ(ask("/v1/chat/completions", too_long).status, 400);
  EXPECT_NE(good.read_response().find("\"content\":\"fine fine fine fine fine fine\""), std::string::npos);
}

TEST_F(ChatTest, BodiesThatAreNoJson) {
  for (const std::string& body :
       {std::string("{"), std::string(""), std::string("[1]"), std::string("{\"temperature\": NaN}"),
        std::string("{\"a\": \"\xFF\"}"), std::string(10'000, '['), std::string("{\"n\": 1e999}"),
        "{\"messages\": " + std::string(10'000, '[') + std::string(10'000, ']') + "}"}) {
    const Answer answer = send(post("/v1/chat/completions", body));
    EXPECT_EQ(answer.status, 400) << body.substr(0, 40);
    EXPECT_EQ(answer.json["error"]["type"], "invalid_request_error");
  }
}

TEST_F(ChatTest, AClientThatLeavesFreesTheEngine) {  // case 39
  script_ = [this](const Request&) { return std::vector<int>(3000, encode("a")[0]); };
  engine_->delay_ms = 5;
  Json body = chat("Hi");
  body["stream"] = true;
  RawClient streaming(port_), whole(port_), four(port_);
  streaming.send(post("/v1/chat/completions", body.dump()));
  body["stream"] = false;
  whole.send(post("/v1/chat/completions", body.dump()));
  body["n"] = 4;
  four.send(post("/v1/chat/completions", body.dump()));
  ASSERT_TRUE(streaming.read_until("\"content\":\"a\""));
  ASSERT_TRUE(eventually([&] { return engine_->running() == 6; }));
  streaming.close(), whole.close(), four.close();
  EXPECT_TRUE(eventually([&] { return engine_->running() == 0; }));
  EXPECT_TRUE(eventually([&] {
    return send(get("/metrics")).text.find("strata_generations_in_flight 0\n") != std::string::npos;
  }));
}

TEST_F(ChatTest, EngineFailuresAreServerErrors) {
  say("one two three");
  engine_->fail_after_first = true;
  Json body = chat("Hi");
  Answer answer = ask("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.json["error"]["message"], "planted failure");
  body["stream"] = true;
  answer = ask("/v1/chat/completions", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(events_of(answer.text).back()["error"]["message"], "planted failure");
  engine_->healthy_flag = false;
  EXPECT_EQ(ask("/v1/chat/completions", body).status, 503);
  EXPECT_EQ(send(get("/health")).status, 503);
  EXPECT_EQ(send(get("/health/live")).status, 200);
}

class LimitedChatTest : public ChatTest {
 protected:
  LimitedChatTest() {
    configure = [this] {
      service_.max_in_flight = 2;
      keys_ = ApiKeys({"first-key", "second-key"});
    };
  }
};

TEST_F(LimitedChatTest, RefusesWhatIsOverTheLimit) {
  Json body = chat("Hi");
  body["n"] = 3;
  const Answer answer = ask("/v1/chat/completions", body, "Authorization: Bearer second-key\r\n");
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("Retry-After"), std::string::npos);
}

TEST_F(LimitedChatTest, AsksForAKeyButNotForHealth) {
  for (const char* header :
       {"", "Authorization: Bearer wrong-key\r\n", "Authorization: Bearer first-key2\r\n",
        "Authorization: Bearer \r\n", "X-Api-Key: first-ke\r\n", "Authorization: Basic first-key\r\n"}) {
    const Answer answer = ask("/v1/chat/completions", chat("Hi"), header);
    EXPECT_EQ(answer.status, 401) << header;
    EXPECT_EQ(answer.json["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(ask("/v1/messages", chat("Hi")).json["error"]["type"], "authentication_error");
  EXPECT_EQ(ask("/v1/chat/completions", chat("Hi"), "Authorization: bearer first-key\r\n").status, 200);
  EXPECT_EQ(ask("/v1/chat/completions", chat("Hi"), "X-Api-Key: second-key\r\n").status, 200);
  EXPECT_EQ(send(get("/health")).status, 200);
}

}  // namespace
}  // namespace strata::test
