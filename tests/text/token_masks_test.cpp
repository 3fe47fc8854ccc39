// Masks against trying every token, and random answers to random schemas against a validator that knows
// nothing of grammars.
#include "text/token_masks.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "text/json_schema.h"

namespace strata {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded =
      Tokenizer::from_json_file(STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json");
  return loaded;
}
const TokenTree& tree() {
  static const TokenTree made(tokenizer());
  return made;
}

using Random = std::mt19937;
int below(Random& random, int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

// Patterns that std::regex reads the same way.
const std::vector<std::string> kPatterns{"^[a-c]{1,4}$", "^x", "y+z?$", "^(ab|c)*d$", "[0-9]{2}-[^\"a]"};

Json random_schema(Random& random, int depth) {
  switch (below(random, depth > 0 ? 9 : 6)) {
    case 0:
      return {{"type", below(random, 2) == 0 ? "boolean" : "null"}};
    case 1: {
      const int low = below(random, 300) - 150;
      return {{"type", "integer"}, {"minimum", low}, {"maximum", low + below(random, 200)}};
    }
    case 2: {
      const double low = (below(random, 4000) - 2000) / 100.0;
      return {
          {"type", "number"}, {"minimum", low}, {"exclusiveMaximum", low + 0.01 * (1 + below(random, 3000))}};
    }
    case 3: {
      const int low = below(random, 4);
      return {{"type", "string"}, {"minLength", low}, {"maxLength", low + below(random, 6)}};
    }
    case 4:
      return {{"type", "string"},
              {"pattern", kPatterns[static_cast<std::size_t>(below(random, 5))]},
              {"maxLength", 9}};
    case 5:
      return Json{{"enum", Json::array({"a", "ab\"é", 3, nullptr, -1.5})}};
    case 6: {
      const int low = below(random, 3);
      return {{"type", "array"},
              {"items", random_schema(random, depth - 1)},
              {"minItems", low},
              {"maxItems", low + below(random, 3)}};
    }
    case 7: {
      Json branches = Json::array({random_schema(random, depth - 1), random_schema(random, depth - 1)});
      return {{"anyOf", std::move(branches)}};
    }
    default: {
      Json out{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
      for (const char* name : {"a", "ab", "b\"", "é"}) {
        if (below(random, 3) == 0) continue;
        out["properties"][name] = random_schema(random, depth - 1);
        if (below(random, 2) == 0) out["required"].push_back(name);
      }
      if (below(random, 2) == 0)
        out["additionalProperties"] = below(random, 2) == 0 ? Json(false) : random_schema(random, depth - 1);
      return out;
    }
  }
}

int length(const std::string& utf8) {
  int n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return n;
}

bool valid(const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("enum")) {
    const Json& list = schema["enum"];
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  if (schema.contains("anyOf")) {
    for (const Json& branch : schema["anyOf"])
      if (valid(branch, value)) return true;
    return false;
  }
  const std::string type = schema["type"];
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer")
    return value.is_number_integer() && value >= schema["minimum"] && value <= schema["maximum"];
  if (type == "number")
    return value.is_number() && value >= schema["minimum"] && value < schema["exclusiveMaximum"];
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text = value;
    if (length(text) < schema.value("minLength", 0) || length(text) > schema.value("maxLength", 1000))
      return false;
    return !schema.contains("pattern") ||
           std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
  }
  if (type == "array") {
    if (!value.is_array() || static_cast<int>(value.size()) < schema["minItems"].get<int>() ||
        static_cast<int>(value.size()) > schema["maxItems"].get<int>())
      return false;
    return std::all_of(value.begin(), value.end(), [&](const Json& v) { return valid(schema["items"], v); });
  }
  if (!value.is_object()) return false;
  for (const Json& name : schema["required"])
    if (!value.contains(name.get<std::string>())) return false;
  const Json rest =
      schema.value("additionalProperties", Json(false));  // not said: none, of what the schema allows
  for (const auto& [name, v] : value.items())
    if (!valid(schema["properties"].contains(name) ? schema["properties"][name] : rest, v)) return false;
  return true;
}

// Random tokens until the text may end; after a while those that close something are preferred.
std::string random_answer(const Grammar& grammar, TokenMasks& masks, Random& random) {
  GrammarState state = GrammarState::start(grammar);
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    if (state.complete() && (state.closed() || below(random, 2) == 0)) return text;
    std::vector<std::uint32_t> mask(tree().words());
    masks.allowed(state, mask);
    std::vector<int> allowed, closing;
    for (int t = 0; t < tokenizer().vocab_size(); ++t) {
      if ((mask[static_cast<std::size_t>(t) / 32] >> (t % 32) & 1) == 0) continue;
      allowed.push_back(t);
      if (std::string_view("\"]}").find(tokenizer().id_to_bytes(t).front()) != std::string_view::npos)
        closing.push_back(t);
    }
    EXPECT_FALSE(allowed.empty()) << "stuck after " << text;
    if (allowed.empty()) return text;
    const auto& from = step > 20 && !closing.empty() && below(random, 4) > 0 ? closing : allowed;
    const auto bytes =
        tokenizer().id_to_bytes(from[static_cast<std::size_t>(below(random, static_cast<int>(from.size())))]);
    EXPECT_TRUE(state.take(grammar, bytes)) << text << bytes;
    text += bytes;
  }
  ADD_FAILURE() << "no end: " << text;
  return text;
}

TEST(TokenMasks, RandomAnswersToRandomSchemasAreValid) {
  Random random(7);
  int made = 0;
  for (int i = 0; i < 300; ++i) {
    const Json schema = random_schema(random, 3);
    const auto grammar = compile_schema(schema);
    if (!grammar) {
      EXPECT_NE(grammar.error().message.find("allows no value"), std::string::npos)
          << grammar.error().message;
      continue;
    }
    TokenMasks masks(*grammar, tree());
    for (int k = 0; k < 5; ++k) {
      const std::string text = random_answer(*grammar, masks, random);
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema.dump() << " -> " << text;
      ASSERT_TRUE(valid(schema, value)) << schema.dump() << " -> " << text;
      ++made;
    }
  }
  EXPECT_GT(made, 1000);
}

// Every token tried by itself.
std::vector<std::uint32_t> tried(const Grammar& grammar, const GrammarState& state) {
  std::vector<std::uint32_t> mask(tree().words());
  for (int t = 0; t < tokenizer().vocab_size(); ++t) {
    const auto bytes = tokenizer().id_to_bytes(t);
    GrammarState next = state;
    if (bytes.empty() || (tokenizer().is_special(t) && !state.free(grammar)) || !next.take(grammar, bytes))
      continue;
    mask[static_cast<std::size_t>(t) / 32] |= 1U << (t % 32);
  }
  return mask;
}

TEST(TokenMasks, EqualTryingEveryTokenAtEveryPlace) {
  struct Walk {
    const char* schema;
    const char* text;
  };
  const std::vector<Walk> walks{
      {R"({"type": "object"})", R"({"a b": [1.5, "é\n", {"x": null}], "": true})"},
      {R"({"type": "string", "minLength": 2, "maxLength": 7})", R"("abé de\u00e9")"},
      {R"({"type": "string", "minLength": 40, "maxLength": 100000})",
       R"("The weather is fine today and tomorrow it will rain")"},
      {R"({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^[a-z ]*$"}]})",
       R"("abcdefg")"},
      {R"({"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 3, "maxItems": 200})",
       R"(["a", "b", "c", "d"])"},
      {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 7}}, "required": ["age"]})",
       R"({"name": "x", "age": 70})"},
  };
  for (const Walk& walk : walks)
    for (const bool thinking : {false, true}) {
      AnswerFrame frame;
      if (thinking) frame = {.thinking = AnswerFrame::Thinking::kOpen, .tool_calls = true};
      const auto grammar = compile_schema(Json::parse(walk.schema), frame);
      ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
      TokenMasks masks(*grammar, tree());
      GrammarState state = GrammarState::start(*grammar);
      const std::string text = (thinking ? "so <b></thin</think>\n\n" : "") + std::string(walk.text);
      for (std::size_t i = 0; i <= text.size(); ++i) {
        std::vector<std::uint32_t> mask(tree().words());
        masks.allowed(state, mask);
        ASSERT_EQ(mask, tried(*grammar, state)) << walk.schema << " after " << text.substr(0, i);
        if (i < text.size()) {
          ASSERT_TRUE(state.take(*grammar, text.substr(i, 1))) << text.substr(0, i + 1);
        }
      }
      EXPECT_TRUE(state.complete());
    }
}

TEST(TokenMasks, CountersFarFromTheirLimitsShareMasks) {
  const auto grammar =
      compile_schema(Json::parse(R"({"type": "string", "minLength": 500, "maxLength": 100000})"));
  TokenMasks masks(*grammar, tree());
  GrammarState state = GrammarState::start(*grammar);
  ASSERT_TRUE(state.take(*grammar, "\"" + std::string(600, 'x')));
  std::vector<std::uint32_t> mask(tree().words());
  masks.allowed(state, mask);
  const std::size_t kept = masks.kept_states();
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(state.take(*grammar, "x"));
    masks.allowed(state, mask);
  }
  EXPECT_EQ(masks.kept_states(), kept);
}

TEST(TokenMasks, ForgetsWhatIsOverItsBudget) {
  const auto grammar =
      compile_schema(Json::parse(R"({"type": "string", "pattern": "^([a-z]{3}-)*$", "maxLength": 4000})"));
  TokenMasks masks(*grammar, tree());
  masks.set_budget(20000);
  GrammarState state = GrammarState::start(*grammar);
  ASSERT_TRUE(state.take(*grammar, "\""));
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint32_t> mask(tree().words());
    masks.allowed(state, mask);
    ASSERT_EQ(mask, tried(*grammar, state));
    ASSERT_TRUE(state.take(*grammar, i % 4 == 3 ? "-" : "x"));
  }
  EXPECT_LT(masks.kept_states(), 200U);
}

}  // namespace
}  // namespace strata
