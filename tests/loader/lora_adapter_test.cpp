// PEFT adapters: what is read, and that everything that is not understood is refused by name.
#include "loader/lora_adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "loader/safetensors_writer.h"
#include "temp_folder.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kPrefix = "base_model.model.model.layers.";

// An adapter on disk, tensor by tensor; tensor i has the values 100 * i, 100 * i + 1, ...
class Adapter {
 public:
  Adapter& add(const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
    Buffer& buffer = buffers_.emplace_back(Buffer::host(bytes_of(dtype, shape.elements())));
    const Tensor t = buffer.view(dtype, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const float value = 100 * static_cast<float>(tensors_.size()) + static_cast<float>(i);
      if (dtype == DType::kF32) t.data<float>()[i] = value;
      if (dtype == DType::kBF16) t.data<BFloat16>()[i] = to_bfloat16(value);
    }
    tensors_.push_back({name, t});
    return *this;
  }
  Adapter& pair(const std::string& module, std::int64_t rank, std::int64_t inputs, std::int64_t outputs) {
    return add(kPrefix + module + ".lora_A.weight", {rank, inputs})
        .add(kPrefix + module + ".lora_B.weight", {outputs, rank});
  }
  Tensor last() const { return tensors_.back().tensor; }

  LoraAdapter load(const std::string& config) const {
    folder_.write("adapter_config.json", config);
    write_safetensors(folder_ / "adapter_model.safetensors", tensors_);
    return load_lora_adapter(folder_.path());
  }
  std::string error(const std::string& config) const {
    return error_of([&] { load(config); });
  }

 private:
  TempFolder folder_;
  std::deque<Buffer> buffers_;
  std::vector<NamedTensor> tensors_;
};

std::string config(const std::string& targets, const std::string& more = "") {
  return R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "peft_version": "0.21.0", )" + targets +
         (more.empty() ? "" : ", " + more) + "}";
}
const std::string kQ = R"("target_modules": ["q_proj"])";

TEST(LoraAdapter, FoldsTheScaleIntoB) {
  Adapter files;
  files.pair("3.self_attn.q_proj", 2, 3, 4);
  const LoraAdapter a = files.load(config(kQ));
  ASSERT_EQ(a.targets.size(), 1U);
  const LoraTarget& t = a.targets[0];
  EXPECT_EQ(t.name, "layers.3.self_attn.q_proj");
  EXPECT_EQ(t.rank, 2);
  EXPECT_EQ(a.rank, 2);
  EXPECT_EQ(t.inputs, 3);
  EXPECT_EQ(t.outputs, 4);
  EXPECT_EQ(t.a, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(t.b[3], 103 * 3.0F);  // alpha / r = 3
  EXPECT_EQ(a.bytes(), 14 * sizeof(float));
  const LoraAdapter stable = files.load(config(kQ, R"("use_rslora": true)"));
  EXPECT_FLOAT_EQ(stable.targets[0].b[3], 103 * 6 / std::sqrt(2.0F));
}

TEST(LoraAdapter, ReadsBf16) {
  Adapter files;
  files.add(std::string(kPrefix) + "0.q_proj.lora_A.weight", {2, 3}, DType::kBF16)
      .add(std::string(kPrefix) + "0.q_proj.lora_B.weight", {4, 2}, DType::kBF16);
  EXPECT_EQ(files.load(config(kQ)).targets[0].a[4], 4);
}

// re.match(rf"(.*\.)?({key})$", name) in PEFT: a whole name, or its end after a dot, or a pattern for that.
TEST(LoraAdapter, PatternsOfRankAndAlpha) {
  Adapter files;
  files.pair("0.self_attn.q_proj", 5, 3, 4)
      .pair("1.self_attn.q_proj", 2, 3, 4)
      .pair("1.self_attn.eq_proj", 2, 3, 4)
      .pair("12.self_attn.q_proj", 7, 3, 4);
  const LoraAdapter a =
      files.load(config(R"("target_modules": ["q_proj", "eq_proj"])",
                        R"("rank_pattern": {"layers.0.self_attn.q_proj": 5, "layers\\.\\d\\d\\..*q_proj": 7},
                                             "alpha_pattern": {"q_proj": 10})"));
  std::map<std::string, const LoraTarget*> by_name;
  for (const LoraTarget& t : a.targets) by_name[t.name] = &t;
  EXPECT_EQ(a.rank, 7);
  EXPECT_EQ(by_name.at("layers.0.self_attn.q_proj")->b[3], 103 * 2.0F);
  EXPECT_EQ(by_name.at("layers.1.self_attn.q_proj")->b[3], 303 * 5.0F);
  EXPECT_EQ(by_name.at("layers.1.self_attn.eq_proj")->b[3], 503 * 3.0F);  // not q_proj after a dot
  EXPECT_EQ(by_name.at("layers.12.self_attn.q_proj")->rank, 7);
  EXPECT_THAT(files.error(config(R"("target_modules": ["q_proj", "eq_proj"])")),
              AllOf(HasSubstr("[5, 3]"), HasSubstr("rank by adapter_config.json is 2")));
  EXPECT_THAT(files.error(config(kQ, R"("rank_pattern": {"(": 3})")), HasSubstr("\"(?:.*\\.)?(?:()\""));
}

// Two parameters of one module nest; PEFT packs A as (experts, rank, in) and B as (out, rank, experts).
TEST(LoraAdapter, StackedParametersAndTheirAxes) {
  Adapter files;
  files.pair("0.mlp.experts.base_layer", 3 * 4, 5, 6).pair("0.mlp.experts", 3 * 2, 7, 8);
  const std::string targets = R"("target_parameters": ["mlp.experts.down_proj", "gate_up_proj"])";
  const LoraAdapter a = files.load(config(targets, R"("rank_pattern": {".*\\.gate_up_proj": 4})"));
  ASSERT_EQ(a.targets.size(), 2U);
  const LoraTarget &in = a.targets[0], &down = a.targets[1];
  EXPECT_EQ(in.name, "layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(in.rank, 4);
  EXPECT_EQ(in.experts, 3);
  EXPECT_EQ(in.inputs, 5);
  EXPECT_EQ(in.outputs, 6);
  EXPECT_FALSE(in.either_way);
  EXPECT_EQ(in.a[(2 * 4 + 1) * 5 + 3], (2 * 4 + 1) * 5 + 3);  // expert 2, line 1, input 3
  EXPECT_EQ(in.b[(2 * 6 + 5) * 4 + 1],
            (100 + 5 * 12 + 1 * 3 + 2) * 1.5F);  // expert 2, output 5, line 1; alpha / r = 6 / 4
  EXPECT_EQ(down.name, "layers.0.mlp.experts.down_proj");
  EXPECT_EQ(down.rank, 2);
  EXPECT_EQ(down.outputs, 8);
  std::string old = config(targets, R"("rank_pattern": {".*\\.gate_up_proj": 4})");
  old.replace(old.find("0.21.0"), 6, "0.18.1");
  EXPECT_TRUE(files.load(old).targets[0].either_way);
}

TEST(LoraAdapter, ParameterOfALinearModule) {
  Adapter files;
  files.pair("0.block_sparse_moe.input_linear", 3 * 2, 5, 6);
  const LoraAdapter a =
      files.load(config(R"("target_parameters": ["block_sparse_moe.input_linear.weight"])"));
  EXPECT_EQ(a.targets[0].name, "layers.0.block_sparse_moe.input_linear");
  EXPECT_EQ(a.targets[0].experts, 3);
}

TEST(LoraAdapter, EmbeddingAndHead) {
  Adapter files;
  files.add("base_model.model.model.embed_tokens.lora_embedding_A", {2, 9})
      .add("base_model.model.model.embed_tokens.lora_embedding_B", {4, 2});
  files.add("base_model.model.lm_head.lora_A.weight", {2, 4})
      .add("base_model.model.lm_head.lora_B.weight", {9, 2});
  files.add("base_model.model.model.embed_tokens.base_layer.weight", {9, 4});  // PEFT saves the table beside
  const std::string both = config(R"("target_modules": ["embed_tokens", "lm_head"])");
  const LoraAdapter a = files.load(both);
  ASSERT_EQ(a.targets.size(), 2U);
  EXPECT_EQ(a.targets[0].name, "lm_head");
  EXPECT_EQ(a.targets[1].name, "embed_tokens");
  EXPECT_TRUE(a.targets[1].embedding);
  files.add("base_model.model.lm_head.base_layer.weight", {10, 4});
  EXPECT_THAT(files.error(both),
              AllOf(HasSubstr("lm_head.base_layer.weight is [10, 4]"), HasSubstr("[9, 4]")));
}

TEST(LoraAdapter, LayersToTransform) {
  Adapter files;
  files.pair("3.mlp.experts.7.q_proj", 2, 3, 4);  // the first number counts
  EXPECT_EQ(files.load(config(kQ, R"("layers_to_transform": [1, 3])")).targets.size(), 1U);
  EXPECT_EQ(files.load(config(kQ, R"("layers_to_transform": 3, "layers_pattern": "layers")")).targets.size(),
            1U);
  EXPECT_THAT(files.error(config(kQ, R"("layers_to_transform": [7])")),
              HasSubstr("layer 3 is not in layers_to_transform"));
}

TEST(LoraAdapter, TargetModulesAsAPattern) {
  Adapter files;
  files.pair("3.self_attn.q_proj", 2, 3, 4);
  EXPECT_EQ(files.load(config(R"("target_modules": ".*\\.q_proj")")).targets.size(), 1U);
  EXPECT_THAT(files.error(config(R"("target_modules": "q_proj")")),
              HasSubstr("layers.3.self_attn.q_proj has weights"));
}

TEST(LoraAdapter, WhatIsNotPlainLoraIsRefusedByName) {
  Adapter files;
  files.pair("3.self_attn.q_proj", 2, 3, 4);
  const std::pair<const char*, const char*> refused[] = {
      {R"("use_dora": true)", "use_dora = true"},
      {R"("bias": "all")", "bias = \"all\""},
      {R"("lora_bias": true)", "lora_bias"},
      {R"("modules_to_save": ["lm_head"])", "modules_to_save = [\"lm_head\"]"},
      {R"("fan_in_fan_out": true)", "fan_in_fan_out"},
      {R"("use_qalora": true)", "use_qalora"},
      {R"("layer_replication": [[0, 3]])", "layer_replication"},
      {R"("trainable_token_indices": [5])", "trainable_token_indices"},
      {R"("alora_invocation_tokens": [5])", "alora_invocation_tokens"},
      {R"("ensure_weight_tying": true)", "ensure_weight_tying"},
      {R"("init_lora_weights": "pissa")", "init_lora_weights = \"pissa\""},
      {R"("some_new_option": 1)", "some_new_option = 1"},
  };
  for (const auto& [option, message] : refused)
    EXPECT_THAT(files.error(config(kQ, option)), HasSubstr(message)) << option;
  EXPECT_EQ(
      files.error(config(
          kQ,
          R"("use_dora": false, "modules_to_save": null, "some_new_option": [], "init_lora_weights": "gaussian")")),
      "");
  EXPECT_THAT(files.error(R"({"peft_type": "IA3", "r": 2, "lora_alpha": 6, )" + kQ + "}"),
              HasSubstr("peft_type"));
}

TEST(LoraAdapter, TargetsAndWeightsMustMeet) {
  Adapter files;
  files.pair("3.self_attn.q_proj", 2, 3, 4).pair("3.self_attn.k_proj", 2, 3, 4);
  EXPECT_THAT(files.error(config(kQ)), HasSubstr("k_proj has weights, but"));
  EXPECT_THAT(files.error(config(R"("target_modules": ["q_proj", "k_proj", "z_proj"])")),
              HasSubstr("nothing in the weights is called \"z_proj\""));
  EXPECT_THAT(
      files.error(config(R"("target_modules": ["q_proj", "k_proj"], "target_parameters": ["experts.up"])")),
      HasSubstr("\"experts.up\""));
}

TEST(LoraAdapter, BrokenTensorsAreRefusedByName) {
  const auto q = [](const std::string& what) { return std::string(kPrefix) + "0.q_proj." + what; };
  const std::string a = q("lora_A.weight"), b = q("lora_B.weight");
  EXPECT_THAT(Adapter().add(a, {2, 3}).error(config(kQ)), HasSubstr(a + " has no partner lora_B"));
  EXPECT_THAT(Adapter().add(b, {4, 2}).error(config(kQ)), HasSubstr(b + " has no partner lora_A"));
  EXPECT_THAT(Adapter().add(a, {2, 3}).add(b, {4, 3}).error(config(kQ)), HasSubstr("[4, 3]"));
  EXPECT_THAT(Adapter().add(a, {2, 3, 1}).add(b, {4, 2}).error(config(kQ)), HasSubstr("not a matrix"));
  EXPECT_THAT(Adapter().add(q("lora_magnitude_vector"), {4}).error(config(kQ)),
              HasSubstr("lora_magnitude_vector: not understood"));
  EXPECT_THAT(Adapter().add("model.layers.0.q_proj.lora_A.weight", {2, 3}).error(config(kQ)),
              HasSubstr("not a name that PEFT gives"));
  EXPECT_THAT(Adapter().add(a, {2, 3}, DType::kI32).add(b, {4, 2}).error(config(kQ)), HasSubstr("i32"));
  EXPECT_THAT(Adapter()
                  .add(q("base_layer.lora_A.weight"), {2, 3})
                  .add(q("base_layer.lora_B.weight"), {4, 2})
                  .error(config(kQ)),
              HasSubstr("a wrapper in a wrapper"));
  EXPECT_THAT(Adapter().add(q("base_layer.weight"), {4, 3}).error(config(kQ)), HasSubstr("q_proj"));
  Adapter nan;
  nan.add(a, {2, 3}).add(b, {4, 2});
  nan.last().data<float>()[1] = NAN;
  EXPECT_THAT(nan.error(config(kQ)), HasSubstr(b + " is not finite"));
  EXPECT_THAT(Adapter().error(config("\"task_type\": null")), HasSubstr("no weights"));
  TempFolder empty;
  EXPECT_THAT(error_of([&] { load_lora_adapter(empty.path()); }), HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace strata
