// JSON at the edge: depth, numbers at their limits, errors that name the field; events and metrics as text.
#include "server/json_edge.h"

#include <gtest/gtest.h>

#include "server/api_error.h"
#include "server/conversation.h"
#include "server/metrics_text.h"
#include "server/sse.h"

namespace strata {
namespace {

TEST(JsonEdge, RefusesWhatIsTooDeepWithoutReadingIt) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)).has_value());
  for (const std::size_t n : {std::size_t{kMaxJsonDepth + 1}, std::size_t{10'000}, std::size_t{1'000'000}}) {
    EXPECT_FALSE(parse_json(nested(n)).has_value());
    EXPECT_FALSE(parse_json(std::string(n, '{')).has_value());
  }
  EXPECT_TRUE(
      parse_json("\"" + std::string(100'000, '[') + "\\\"" + std::string(1000, '{') + "\"").has_value());
}

TEST(JsonEdge, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", " ", "{", "[1,]", "NaN", "{\"a\":1e999}", "\"\xC3\"", "{\"a\" 1}", "\"\\ud800\"", "1 2", "'a'"})
    EXPECT_FALSE(parse_json(text).has_value()) << text;
  EXPECT_EQ(parse_json("{\"b\":1,\"a\":2}")->dump(), "{\"b\":1,\"a\":2}");  // the order stays
}

TEST(Fields, ReadsWhatIsThereAndNamesTheFirstThatIsWrong) {
  const Json body = Json::parse(
      R"({"i": 5, "f": 2.0, "g": 2.5, "big": 1e300, "u": 18446744073709551615, "min": -9223372036854775808,
    "s": "x", "n": null, "b": true, "list": ["a", "b"], "mixed": ["a", 1]})");
  Fields fields(body);
  EXPECT_EQ(fields.integer("i", 0, 5), 5);
  EXPECT_EQ(fields.integer("f", 0, 5), 2);
  EXPECT_EQ(fields.integer("min", std::numeric_limits<std::int64_t>::min(), 0),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(fields.number("g", 2.5, 3), 2.5);
  EXPECT_EQ(fields.text("s"), "x");
  EXPECT_EQ(fields.flag("b"), true);
  EXPECT_EQ(fields.texts("list"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.texts("s"), std::vector<std::string>{"x"});
  EXPECT_FALSE(fields.text("n").has_value());
  EXPECT_FALSE(fields.text("absent").has_value());
  EXPECT_FALSE(fields.failed());
  const auto param = [&](auto read) {
    Fields f(body, "top.");
    read(f);
    return f.failed() ? f.error().value().param : std::string();
  };
  EXPECT_EQ(param([](Fields& f) { f.integer("i", 0, 4); }), "top.i");
  EXPECT_EQ(param([](Fields& f) { f.integer("g", 0, 4); }), "top.g");
  EXPECT_EQ(param([](Fields& f) { f.integer("big", 0, 4); }), "top.big");
  EXPECT_EQ(param([](Fields& f) { f.integer("u", 0, 4); }), "top.u");
  EXPECT_EQ(param([](Fields& f) { f.integer("s", 0, 4); }), "top.s");
  EXPECT_EQ(param([](Fields& f) { f.number("big", 0, 4); }), "top.big");
  EXPECT_EQ(param([](Fields& f) { f.number("b", 0, 4); }), "top.b");
  EXPECT_EQ(param([](Fields& f) { f.flag("i"); }), "top.i");
  EXPECT_EQ(param([](Fields& f) { f.text("i"); }), "top.i");
  EXPECT_EQ(param([](Fields& f) { f.texts("mixed"); }), "top.mixed");
  EXPECT_EQ(param([](Fields& f) { f.object("list"); }), "top.list");
  EXPECT_EQ(param([](Fields& f) { f.array("s"), f.flag("i"); }), "top.s");
  const Json list = Json::array();
  EXPECT_TRUE(Fields(list).failed());
}

TEST(NormalMessages, ParsesToolArgumentsSentAsText) {
  const Json messages = Json::parse(
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}},
    {"function": {"name": "g", "arguments": "not json"}}, {"function": {"name": "h", "arguments": "[1]"}}]}])");
  const Json parsed = normal_messages(messages, false).value();
  EXPECT_EQ(parsed[0]["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":1,"a":[2]})");
  EXPECT_EQ(parsed[0]["tool_calls"][1]["function"]["arguments"], "not json");
  EXPECT_EQ(parsed[0]["tool_calls"][2]["function"]["arguments"], "[1]");
  const Json kept = normal_messages(messages, true).value();
  EXPECT_EQ(kept[0]["tool_calls"][0]["function"]["arguments"], R"({"b": 1, "a": [2]})");
}

TEST(Sse, EveryLineOfTheDataIsData) {
  EXPECT_EQ(sse_event("a"), "data: a\n\n");
  EXPECT_EQ(sse_event("", "ping"), "event: ping\ndata: \n\n");
  EXPECT_EQ(sse_event("a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
}

TEST(ApiError, IsWrittenInEachApisForm) {
  const ApiError error{400, "bad", "n", {}};
  EXPECT_EQ(error_body(ApiStyle::kOpenAi, error).dump(),
            R"({"error":{"message":"bad","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(error_body(ApiStyle::kAnthropic, error).dump(),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"bad"}})");
  EXPECT_EQ(style_of("/v1/messages/count_tokens"), ApiStyle::kAnthropic);
  EXPECT_EQ(style_of("/v1/models"), ApiStyle::kOpenAi);
  EXPECT_EQ(dump(Json("\xFF")), "\"\xEF\xBF\xBD\"");
}

TEST(MetricsText, FollowsTheFormat) {
  MetricsText out;
  out.gauge("a", "Some a.", 2);
  out.family("b_total", "By x.", "counter");
  out.sample("b_total", metric_label("x", "q\"\\\n"), 3);
  Histogram h({0.5, 1});
  h.counts = {2, 0, 1};
  h.sum = 3.25;
  out.histogram("c", "Seconds.", h);
  EXPECT_EQ(
      out.text(),
      "# HELP strata_a Some a.\n# TYPE strata_a gauge\nstrata_a 2\n"
      "# HELP strata_b_total By x.\n# TYPE strata_b_total counter\nstrata_b_total{x=\"q\\\"\\\\\\n\"} 3\n"
      "# HELP strata_c Seconds.\n# TYPE strata_c histogram\nstrata_c_bucket{le=\"0.5\"} "
      "2\nstrata_c_bucket{le=\"1\"} 2\n"
      "strata_c_bucket{le=\"+Inf\"} 3\nstrata_c_sum 3.25\nstrata_c_count 3\n");
}

}  // namespace
}  // namespace strata
