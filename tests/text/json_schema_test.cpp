// Schemas as grammars: which texts they take, which they refuse, which schemas are refused.
#include "text/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace strata {
namespace {

Grammar grammar(const std::string& schema, const AnswerFrame& frame = {}) {
  auto compiled = compile_schema(Json::parse(schema), frame);
  EXPECT_TRUE(compiled.has_value()) << schema << ": " << (compiled ? "" : compiled.error().message);
  return compiled ? std::move(*compiled) : Grammar{};
}

bool takes(const Grammar& grammar, const std::string& text) {
  GrammarState state = GrammarState::start(grammar);
  return state.take(grammar, text) && state.complete();
}

std::string refusal(const std::string& schema) {
  const auto compiled = compile_schema(Json::parse(schema));
  return compiled ? "" : compiled.error().message;
}

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

TEST(JsonSchema, TakesAndRefuses) {
  const std::vector<Case> cases{
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 2})",
       {R"("a")", R"("aa")"},
       {R"("aaa")", R"("")", R"("b")", "a"}},
      {R"({"type": "string", "pattern": "^(ab)+$", "maxLength": 3})", {R"("ab")"}, {R"("aba")", R"("abab")"}},
      {R"({"type": "string", "pattern": "b", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("xxb")"},
       {R"("b")", R"("abxx")", R"("aaa")"}},
      {R"({"type": "string", "pattern": "^((a|b)c)*(d|e(f|g))$"})",
       {R"("d")", R"("acbceg")"},
       {R"("ac")", R"("e")"}},
      {R"({"type": "string", "pattern": "^a|b$"})", {R"("axx")", R"("xxb")"}, {R"("xax")", R"("bx")"}},
      {R"({"type": "string", "pattern": "^[^\"]\\d{2,3}?\\u00e9$"})",
       {"\"x12é\"", "\"\\n123é\"", "\"é12é\""},
       {"\"x1é\"", "\"x12\"", "\"\\\"12é\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("\n\\\"")", R"("\ud83d\ude00x")", "\"😀é\""},
       {R"("a")", R"("abcd")", R"("\ud83dab")", R"("\ude00ab")", "\"\xC4\"", "\"a\nb\"", R"("\x")"}},
      {R"({"type": "string", "maxLength": 0})", {R"("")"}, {R"("a")"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("2024-13-01")", R"("0000-01-01")", R"("1900-02-29")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-02-29T23:59:59.5Z")", R"("2024-01-01T00:00:00+01:00")"},
       {R"("2024-01-01T24:00:00Z")"}},
      {R"({"format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123e4567")", "1"}},
      {R"({"format": "email"})", {R"("a.b@example.org")"}, {R"("a@b")", R"("@b.c")"}},
      {R"({"format": "ipv4"})", {R"("255.0.10.1")"}, {R"("256.0.0.1")", R"("1.2.3")"}},
      {R"({"format": "uri", "maxLength": 20})",
       {R"("https://a.b/c?d#e")"},
       {R"("nothing")", R"("https://a.b/cccccccccccc")"}},
      {R"({"enum": ["a", "ab", "b\"", 1, 1.5, null, {"k": [1, 2]}]})",
       {R"("a")", R"("ab")", R"("b\"")", "1", "1.5", "null", R"({"k":[1,2]})"},
       {R"("abc")", "2", "1.", ""}},
      {R"({"$defs": {"c": {"enum": ["red", "green"]}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/c"}}, "required": ["x"]})",
       {R"({"x": "red"})", R"({"x":"green"})", "{\n  \"x\": \"red\"\n}"},
       {R"({"x": "blue"})", "{}", R"({"x": "red",})", R"({"x": "red"} )"}},
      {R"({"type": "string", "enum": ["a", "bbb", 3], "maxLength": 2})", {R"("a")"}, {R"("bbb")", "3"}},
      {R"({"const": {"a": "é"}})", {R"({"a":"é"})"}, {R"({"a":"e"})"}},
      {R"({"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"], "oneOf": [
           {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
           {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
       {R"({"kind": "a", "x": 1})", R"({"kind": "b"})"},
       {R"({"kind": "a"})", R"({"kind": "c"})", R"({"kind": "b", "x": 1})"}},
      {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"1", R"("x")"}, {"1.5", "null"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["b"], "additionalProperties": {"type": "boolean"}})",
       {R"({"a": 1, "b": null, "c": true})", R"({"b": null, "aa": false, "": true})", R"({"b":null})"},
       {R"({"b": null, "a": true})", R"({"b": null, "\u0061": true})", R"({"b": null, "c": 1})",
        R"({"a": 1})", R"({"b": null, "a": 1})"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false})",
       {"{}", R"({"a": 1})", R"({"a": [1, {"x": null}], "c": {}})", R"({"b": "x"})"},
       {R"({"c": 1, "a": 1})", R"({"d": 1})", R"({"a": 1,})"}},
      {R"({"type": "object", "properties": {}})", {"{}", "{ }", "{\n}"}, {R"({"a": 1})", "[]"}},
      {R"({"type": "object"})",
       {"{}", R"({"a": {"b": [1.5e3, "x", true, null]}})"},
       {"[]", R"({"a": 01})", R"({a: 1})",
        R"({"a": 1 })"
        "x"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}, "required": ["n"]})",
       {R"({"n": 1, "m": 2})"},
       {R"({"m": 2})", R"({"n": "x"})"}},
      {R"({"type": ["string", "null"]})", {R"("x")", "null"}, {"1"}},
      {R"({"type": "integer"})",
       {"0", "-7", "123456789012345678"},
       {"01", "1.0", "1e3", "-", "1234567890123456789"}},
      {R"({"type": "number"})", {"0", "-1.25", "1e5", "1.5E-10"}, {".5", "1.", "1e", "+1", "1e100"}},
      {R"({"type": "integer", "minimum": -5, "exclusiveMaximum": 120})",
       {"-5", "0", "99", "100", "119"},
       {"-6", "120", "1000"}},
      {R"({"type": "integer", "minimum": 1.5, "maximum": 1e3})", {"2", "1000"}, {"1", "1001", "-2"}},
      {R"({"type": "integer", "exclusiveMinimum": 99})", {"100", "1234"}, {"99", "98", "-100"}},
      {R"({"type": "integer", "maximum": -10})", {"-10", "-123"}, {"-9", "10", "0"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "1.0", "0.999"},
       {"1.01", "-0.1", "2", "1e-1"}},
      {R"({"type": "number", "exclusiveMinimum": -0.25, "exclusiveMaximum": 12.5})",
       {"-0.2", "-0.249", "0", "12", "12.4999", "9.99"},
       {"-0.25", "-0.3", "12.5", "12.50", "12.51", "13", "-1"}},
      {R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "3"}, {"0", "0.0", "-1", "-0"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1, 2]", "[1,2,3]", "[\n  1,\n  2\n]"},
       {"[1]", "[1,2,3,4]", "[1,]", "[]"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 4})",
       {R"(["a"])", R"(["a", 1])", R"(["a", 1, null, null])"},
       {"[]", "[1]", R"(["a", null])", R"(["a", 1, null, null, null])"}},
      {R"({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2})",
       {R"(["a", 1])"},
       {R"(["a"])", R"(["a", 1, 2])"}},
      {R"({"type": "array", "items": false})", {"[]"}, {"[1]"}},
      {R"({"type": "array"})", {"[]", "[[], {}]"}, {"{}"}},
      {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}, {"properties": {"a": {"maximum": 5}}, "required": ["a"]}]})",
       {R"({"a": 4})"},
       {R"({"a": 6})", R"({"a": 2})", "{}"}},
      {R"({"anyOf": [{"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}, {"type": "null"}]})",
       {"null", R"({"next": {"next": null}})"},
       {"{}", R"({"next": 1})"}},
      {R"({"properties": {"a": {"type": "boolean"}}})", {R"({"a": true})"}, {"1"}},
      {"{}", {"1", "{}", R"("x")", "[null]"}, {"", "nul"}},
      {"true", {"1"}, {""}},
      {R"({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "null", "description": "d"}}, "title": "t"})",
       {"null"},
       {"1"}},
      {R"({"type": "object", "properties": {"a\"b": {"type": "null"}}, "required": ["a\"b"]})",
       {R"({"a\"b": null})"},
       {R"({"a"b": null})"}},
  };
  for (const Case& c : cases) {
    const Grammar g = grammar(c.schema);
    if (g.nodes.empty()) continue;
    for (const char* text : c.yes) EXPECT_TRUE(takes(g, text)) << c.schema << " should take " << text;
    for (const char* text : c.no) EXPECT_FALSE(takes(g, text)) << c.schema << " should not take " << text;
  }
}

TEST(JsonSchema, WhatCannotBeEnforcedIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"not": {"type": "null"}})", "not"},
      {R"({"if": {}, "then": {}})", "if"},
      {R"({"type": "object", "patternProperties": {"a": {}}})", "patternProperties"},
      {R"({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 3}}})",
       "#/properties/a: the keyword \"multipleOf\""},
      {R"({"type": "string", "maxlength": 3})", "maxlength"},
      {R"({"type": "string", "format": "iri"})", "iri"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "back reference \\1"},
      {R"({"type": "string", "pattern": "(?=a)b"})", "look-around"},
      {R"({"type": "string", "pattern": "\\bword"})", "\\b"},
      {R"({"type": "string", "pattern": "\\p{L}"})", "\\p"},
      {R"({"type": "string", "pattern": "(a"})", "("},
      {R"({"type": "string", "pattern": "a{3,2}"})", "wrong way round"},
      {R"({"type": "string", "pattern": "*a"})", "nothing to repeat"},
      {R"j({"type": "string", "pattern": "((((a{100}){100}){100}){100})"})j", "too"},
      {R"({"type": "string", "pattern": "(((){10000}){10000}){10000}"})", "too complex"},
      {R"({"type": "string", "pattern": "(a|b)*a(a|b){30}"})", "too complex"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "branches 0 and 1"},
      {R"({"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]})",
       "oneOf"},
      {R"({"$ref": "#/nowhere"})", "leads to no schema"},
      {R"({"$ref": "https://example.org/x"})", "$ref"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", "refers to itself"},
      {R"({"allOf": [{"$ref": "#"}, {"type": "null"}]})", "refers to itself"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "allows no value"},
      {R"({"type": "string", "pattern": "^aaa$", "maxLength": 2})", "allows no value"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", "allows no value"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "allows no value"},
      {"false", "allows no value"},
      {R"({"type": "strin"})", "strin"},
      {R"({"type": "object", "required": "a"})", "required"},
      {R"({"type": "object", "minProperties": 1})", "minProperties"},
      {R"({"type": "string", "minLength": -1})", "minLength"},
      {R"({"anyOf": []})", "anyOf"},
      {R"({"type": "array", "items": [{"type": "null"}]})", "items"},
  };
  for (const auto& [schema, part] : cases) {
    const std::string message = refusal(schema);
    EXPECT_NE(message.find(part), std::string::npos) << schema << " -> " << message;
  }
}

TEST(JsonSchema, LongLimitsAreCounters) {
  const Grammar g = grammar(R"({"type": "string", "minLength": 3, "maxLength": 100000})");
  EXPECT_LT(g.nodes.size(), 1000U);
  EXPECT_TRUE(takes(g, '"' + std::string(100000, 'x') + '"'));
  EXPECT_FALSE(takes(g, '"' + std::string(100001, 'x') + '"'));
  const Grammar pattern = grammar(R"({"type": "string", "pattern": "^[a-z ]+$", "maxLength": 100000})");
  EXPECT_LT(pattern.nodes.size(), 1000U);
  EXPECT_FALSE(takes(pattern, '"' + std::string(100001, 'x') + '"'));
  const Grammar items =
      grammar(R"({"type": "array", "items": {"type": "null"}, "minItems": 50000, "maxItems": 100000})");
  EXPECT_LT(items.nodes.size(), 1000U);
}

TEST(JsonSchema, ThinkingAndToolCallsMayComeBefore) {
  using Thinking = AnswerFrame::Thinking;
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "null"}}})";
  const Grammar open = grammar(schema, {.thinking = Thinking::kOpen});
  EXPECT_TRUE(takes(open, "{{ any < thing </thin </</think>\n\n{}"));
  EXPECT_TRUE(takes(open, "</think>{\"a\": null}"));
  EXPECT_FALSE(takes(open, "{}"));
  EXPECT_FALSE(takes(open, "x</think>{{"));
  EXPECT_FALSE(takes(open, "x</think>\n\n\n{}"));
  const Grammar may = grammar(schema, {.thinking = Thinking::kAllowed});
  EXPECT_TRUE(takes(may, "<think>no</think>{}"));
  EXPECT_TRUE(takes(may, "{}"));
  EXPECT_FALSE(takes(may, "\n{}"));
  const Grammar tools = grammar(schema, {.thinking = Thinking::kAllowed, .tool_calls = true});
  EXPECT_TRUE(takes(tools, "<think>a</think>\n<tool_call>\n{{{"));
  EXPECT_TRUE(takes(tools, "<tool_call>x"));
  EXPECT_TRUE(takes(tools, "{}"));
  EXPECT_FALSE(takes(grammar(schema), "<tool_call>x"));
}

TEST(JsonSchema, NestingIsBoundedAndAlwaysEnds) {
  const Grammar g = grammar(R"({"type": "array", "items": {"$ref": "#"}})");
  GrammarState state = GrammarState::start(g);
  int depth = 0;
  while (depth < 1000) {
    GrammarState next = state;
    if (!next.take(g, "[")) break;
    state = next;
    ++depth;
  }
  EXPECT_GT(depth, 100);
  EXPECT_LT(depth, 300);
  EXPECT_TRUE(state.take(g, std::string(static_cast<std::size_t>(depth), ']')));
  EXPECT_TRUE(state.closed());
}

}  // namespace
}  // namespace strata
