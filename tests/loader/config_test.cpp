// Json and ModelConfig: typed reading, paths in errors, nested text models, end tokens, chat templates.
#include "loader/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loader/chat_template.h"
#include "loader/temp_folder.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json json(std::string_view text) { return Json::parse(text, "c.json"); }

TEST(Json, ReadsTypes) {
  const Json j =
      json(R"({"i":-3,"f":1e-6,"whole":2.0,"b":true,"s":"x\u00e9","n":null,"l":[1,2],"w":["a"],"o":{"k":5},
                          "big":5000000000})");
  EXPECT_EQ(j.get_int("i"), -3);
  EXPECT_EQ(j.get_int("whole"), 2);
  EXPECT_EQ(j.get_int64("big"), 5'000'000'000);
  EXPECT_DOUBLE_EQ(j.get_float("f"), 1e-6);
  EXPECT_DOUBLE_EQ(j.get_float("i"), -3.0);
  EXPECT_TRUE(j.get_bool("b"));
  EXPECT_EQ(j.get_string("s"), "x\u00e9");
  EXPECT_THAT(j.get_ints("l"), ElementsAre(1, 2));
  EXPECT_THAT(j.get_floats("l"), ElementsAre(1.0, 2.0));
  EXPECT_THAT(j.get_strings("w"), ElementsAre("a"));
  EXPECT_EQ(j.at("o").get_int("k"), 5);
  EXPECT_FALSE(j.has("n"));
  EXPECT_FALSE(j.has("absent"));
  EXPECT_EQ(j.get_int("n", 7), 7);
  EXPECT_EQ(j.get_string("absent", "d"), "d");
  EXPECT_FALSE(j.get("absent").has("deeper"));
  EXPECT_THAT(json(R"({"z":1,"a":null,"b":2})").keys(), testing::UnorderedElementsAre("z", "b"));
}

TEST(Json, ErrorsNameFileAndPath) {
  const Json j = json(R"({"o":{"l":[1,"x"],"f":1.5,"big":5000000000,"huge":18446744073709551615}})");
  EXPECT_EQ(error_of([&] { j.get_int("heads"); }), "c.json: heads: missing");
  EXPECT_EQ(error_of([&] { j.at("o").get_int("heads"); }), "c.json: o.heads: missing");
  EXPECT_EQ(error_of([&] { j.at("o").get_ints("l"); }),
            "c.json: o.l[1]: expected an integer, found a string");
  EXPECT_EQ(error_of([&] { j.at("o").get_int("f"); }), "c.json: o.f: expected an integer, found 1.5");
  EXPECT_EQ(error_of([&] { j.at("o").get_int("big"); }), "c.json: o.big: 5000000000 is too large");
  EXPECT_EQ(error_of([&] { j.at("o").get_int64("huge"); }),
            "c.json: o.huge: 18446744073709551615 is too large");
  EXPECT_EQ(error_of([&] { j.get_string("o"); }), "c.json: o: expected a string, found an object");
  EXPECT_EQ(error_of([&] { j.get_int("o", 3); }), "c.json: o: expected an integer, found an object");
  EXPECT_EQ(error_of([&] { j.at("o").at("l").get("k"); }), "c.json: o.l: expected an object, found an array");
  EXPECT_EQ(error_of([&] { (void)j.at("o").at("l")[2]; }), "c.json: o.l: no element 2 of 2");
  EXPECT_THAT(error_of([] { json("{\"a\":"); }), HasSubstr("c.json: not valid JSON"));
  EXPECT_THAT(error_of([] { json("{\"a\":\"\xff\"}"); }), HasSubstr("c.json: not valid JSON"));
  EXPECT_THAT(error_of([] { json(""); }), HasSubstr("c.json: not valid JSON"));
  EXPECT_THAT(error_of([] { json(std::string(1'000'000, '[')); }),
              HasSubstr("c.json: JSON nested deeper than 128"));
}

TEST(Json, InfinityInBothSpellings) {
  const Json j = json(
      R"({"a":{"__float__":"Infinity"},"b":[0.0,Infinity],"c":-Infinity,"d":NaN,"s":"a \"NaN\" Infinity"})");
  EXPECT_EQ(j.get_float("a"), INFINITY);
  EXPECT_THAT(j.get_floats("b"), ElementsAre(0.0, INFINITY));
  EXPECT_EQ(j.get_float("c"), -INFINITY);
  EXPECT_TRUE(std::isnan(j.get_float("d")));
  EXPECT_EQ(j.get_string("s"), "a \"NaN\" Infinity");
  EXPECT_TRUE(j.get("a").is_number());
  EXPECT_THAT(error_of([] { json("{\"a\": Infinit}"); }), HasSubstr("not valid JSON"));
}

TEST(Json, OutlivesItsParent) {
  Json child;
  { child = json(R"({"o":{"k":[4]}})").at("o").at("k"); }
  EXPECT_THAT(child.as_ints(), ElementsAre(4));
}

ModelConfig config(std::string_view text, std::string_view generation = "null") {
  return {json(text), Json::parse(generation, "g.json")};
}

TEST(ModelConfig, Flat) {
  const ModelConfig c = config(
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"eos_token_id":2})");
  EXPECT_EQ(c.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(c.model_type(), "llama");
  EXPECT_EQ(c.text().get_int("hidden_size"), 64);
  EXPECT_THAT(c.end_tokens(), ElementsAre(2));
}

TEST(ModelConfig, NestedTextModelIsLaidOverTheOuterKeys) {
  const ModelConfig c = config(R"({
    "architectures":["Qwen3_5ForConditionalGeneration"], "model_type":"qwen3_5", "tie_word_embeddings":true,
    "quantization_config":{"quant_method":"fp8"}, "hidden_size":1, "eos_token_id":5,
    "text_config":{"model_type":"qwen3_5_text","hidden_size":64,"eos_token_id":null,"rope_parameters":{"rope_theta":1e7}},
    "vision_config":{"hidden_size":9}})");
  EXPECT_EQ(c.architecture(), "Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(c.model_type(), "qwen3_5_text");
  EXPECT_EQ(c.text().get_int("hidden_size"), 64);
  EXPECT_TRUE(c.text().get_bool("tie_word_embeddings"));
  EXPECT_EQ(c.text().at("quantization_config").get_string("quant_method"), "fp8");
  EXPECT_DOUBLE_EQ(c.text().at("rope_parameters").get_float("rope_theta"), 1e7);
  EXPECT_THAT(c.end_tokens(), ElementsAre(5));  // a null inside does not hide the outer value
  EXPECT_EQ(c.root().get_int("hidden_size"), 1);
  EXPECT_EQ(error_of([&] { c.text().get_int("heads"); }), "c.json: text_config.heads: missing");
}

TEST(ModelConfig, GenerationConfigWins) {
  const ModelConfig c =
      config(R"({"eos_token_id":2})",
             R"({"eos_token_id":[7,8],"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95})");
  EXPECT_THAT(c.end_tokens(), ElementsAre(7, 8));
  EXPECT_EQ(c.sampling().do_sample, true);
  EXPECT_EQ(c.sampling().temperature, 0.6);
  EXPECT_EQ(c.sampling().top_p, 0.95);
  EXPECT_EQ(c.sampling().top_k, 20);
  EXPECT_EQ(c.sampling().min_p, std::nullopt);
  EXPECT_EQ(c.sampling().repetition_penalty, std::nullopt);
  EXPECT_THAT(config(R"({"eos_token_id":[2,3]})", R"({"top_k":1})").end_tokens(), ElementsAre(2, 3));
  EXPECT_THAT(config("{}").end_tokens(), testing::IsEmpty());
}

TEST(ModelConfig, WrongTypesAreErrors) {
  EXPECT_THAT(error_of([] { config("[]"); }), HasSubstr("c.json: expected an object"));
  EXPECT_THAT(error_of([] { config(R"({"architectures":"X"})"); }),
              HasSubstr("architectures: expected an array"));
  EXPECT_THAT(error_of([] { config(R"({"eos_token_id":"end"})"); }),
              HasSubstr("eos_token_id: expected an integer"));
  EXPECT_THAT(error_of([] { config("{}", R"({"top_k":"many"})"); }),
              HasSubstr("g.json: top_k: expected an integer"));
}

TEST(ModelConfig, LoadsAFolder) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { ModelConfig::load(folder.path()); }), HasSubstr("config.json: cannot be read"));
  folder.write("config.json", R"({"eos_token_id":2})");
  EXPECT_THAT(ModelConfig::load(folder.path()).end_tokens(), ElementsAre(2));
  folder.write("generation_config.json", R"({"eos_token_id":3})");
  EXPECT_THAT(ModelConfig::load(folder.path()).end_tokens(), ElementsAre(3));
}

TEST(ChatTemplate, IsFoundWhereModelsKeepIt) {
  const TempFolder folder;
  EXPECT_EQ(load_chat_template(folder.path()), std::nullopt);
  folder.write("tokenizer_config.json", R"({"eos_token":"x"})");
  EXPECT_EQ(load_chat_template(folder.path()), std::nullopt);
  folder.write("tokenizer_config.json", R"({"chat_template":"T {{ x }}"})");
  EXPECT_EQ(load_chat_template(folder.path()), "T {{ x }}");
  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"tool_use","template":"U"},{"name":"default","template":"D"}]})");
  EXPECT_EQ(load_chat_template(folder.path()), "D");
  folder.write("tokenizer_config.json", R"({"chat_template":[{"name":"tool_use","template":"U"}]})");
  EXPECT_THAT(error_of([&] { load_chat_template(folder.path()); }),
              HasSubstr("no template is named \"default\""));
  folder.write("chat_template.jinja", "J\n");
  EXPECT_EQ(load_chat_template(folder.path()), "J\n");
}

}  // namespace
}  // namespace strata
