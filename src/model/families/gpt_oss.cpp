// gpt-oss: attention with sinks, every other layer local; experts with biases and a clamped SwiGLU, stored
// plain or as MXFP4.
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/families/blocks.h"
#include "model/families/families.h"
#include "model/rope.h"
#include "tensor/mxfp4.h"

namespace strata {
namespace {

constexpr float kDefaultLimit = 7;  // the clamp of gate and up when the configuration names none

// gate and up rows alternate in the checkpoint: those of gate first, then those of up.
std::vector<std::int64_t> gate_then_up(std::int64_t rows) {
  std::vector<std::int64_t> order;
  for (std::int64_t start = 0; start < 2; ++start) {
    for (std::int64_t r = start; r < rows; r += 2) order.push_back(r);
  }
  return order;
}

std::vector<std::int64_t> in_order(std::int64_t rows) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  return order;
}

// Published MXFP4 as the common form, rows of each expert in `order`.
Tensor repack(const Weights& w, const std::string& name, int experts, const std::vector<std::int64_t>& order,
              std::int64_t inputs, Buffer& into) {
  const auto rows = static_cast<std::int64_t>(order.size()), groups = inputs / 32;
  const Tensor blocks = w.take(name + "_blocks", {experts, rows, groups, 16}),
               scales = w.take(name + "_scales", {experts, rows, groups});
  if (blocks.dtype() != DType::kU8 || scales.dtype() != DType::kU8)
    throw Error("{}: expected bytes", w.full(name));
  into = Buffer::host(bytes_of(DType::kMXFP4, experts * rows * inputs));
  std::byte* to = into.data();
  for (std::int64_t e = 0; e < experts; ++e) {
    for (const std::int64_t row : order) {
      const std::int64_t at = (e * rows + row) * groups;
      for (std::int64_t g = 0; g < groups; ++g, to += kMxfp4Bytes) {
        repack_mxfp4(blocks.data<std::uint8_t>() + (at + g) * 16, scales.data<std::uint8_t>()[at + g], to);
      }
    }
  }
  return into.view(DType::kMXFP4, {experts * rows, inputs});
}

// [E, N] biases with each expert's in `order`.
Tensor bias(const Weights& w, const std::string& name, int experts, const std::vector<std::int64_t>& order) {
  const auto rows = static_cast<std::int64_t>(order.size());
  const Tensor all = w.take(name, {experts, rows});
  if (all.dtype() != DType::kBF16)
    throw Error("{}: expected bf16, found {}", w.full(name), strata::name(all.dtype()));
  std::vector<BFloat16> sorted;
  for (std::int64_t e = 0; e < experts; ++e) {
    for (const std::int64_t row : order) sorted.push_back(all.row<BFloat16>(e)[row]);
  }
  return w.ops().load_vector(Tensor(sorted.data(), DType::kBF16, {experts, rows}));
}

// `name` [E, K, N] (transposed) or its MXFP4 form, as [E, N, K] with rows in `order`; and its bias.
ExpertLinear experts(const Weights& w, const std::string& name, int count,
                     const std::vector<std::int64_t>& order, std::int64_t inputs) {
  const auto rows = static_cast<std::int64_t>(order.size());
  HostMatrix matrix;
  matrix.experts = count;
  Buffer kept;
  if (w.has(name + "_blocks")) {
    matrix.pieces.push_back({repack(w, name, count, order, inputs, kept), {}, false});
  } else {
    const Tensor whole = w.take(name, {count, inputs, rows});
    for (std::int64_t e = 0; e < count; ++e) {
      const Tensor one = whole.rows_from(e, 1).reshape({inputs, rows});
      for (const std::int64_t row : order) matrix.pieces.push_back({one.columns(row, 1), {}, true});
    }
  }
  Weight weight = w.pack(matrix);
  LinearPart part{.name = w.full("*." + name), .outputs = rows};
  for (const std::int64_t row : order) part.rows.push_back({row, 1});
  return {std::move(weight), bias(w, name + "_bias", count, order), {std::move(part)}, w.full(name)};
}

// The same experts as GGUF files have them: stacked by part, rows in order, biases [E, N] of each part.
ExpertLinear experts_by_part(const Weights& w, std::vector<LinearPart> parts, int count,
                             std::int64_t inputs) {
  std::vector<std::vector<float>> biases;
  std::int64_t rows = 0;
  for (const LinearPart& part : parts) {
    biases.push_back(w.numbers(part.name + ".bias", {count, part.outputs}));
    rows += part.outputs;
  }
  std::vector<float> fused;
  for (std::int64_t e = 0; e < count; ++e) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto begin = biases[p].begin() + e * parts[p].outputs;
      fused.insert(fused.end(), begin, begin + parts[p].outputs);
    }
  }
  const Tensor bias = w.ops().load_vector(Tensor(fused.data(), DType::kF32, {count, rows}));
  return w.experts(count, std::move(parts), "", inputs, bias);
}

// Without `layer_types` every other layer is local, the first one too.
int window(const Json& config, int layer) {
  if (config.has("layer_types")) return window_of(config, layer);
  return layer % 2 == 0 ? config.get_int("sliding_window", 0) : 0;
}

std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c, int window,
                                            std::shared_ptr<const Rope> rope) {
  const Weights a = w.at("self_attn");
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  const bool has_bias = w.config().get_bool("attention_bias", true);
  AttentionWeights weights{.sublayer = {.norm = w.norm("input_layernorm", c.dim, c.eps)},
                           .qkv = a.linear({{.name = "q_proj", .outputs = q, .bias = has_bias},
                                            {.name = "k_proj", .outputs = kv, .bias = has_bias},
                                            {.name = "v_proj", .outputs = kv, .bias = has_bias}},
                                           c.dim),
                           .out = a.linear({{.name = "o_proj", .outputs = c.dim, .bias = has_bias}}, q),
                           .norm_eps = c.eps,
                           .sinks = a.vector("sinks", {c.heads}),
                           .rope = std::move(rope)};
  const AttentionConfig config{.heads = c.heads,
                               .kv_heads = c.kv_heads,
                               .head_dim = c.head_dim,
                               .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                               .window = window};
  return std::make_unique<Attention>(config, std::move(weights));
}

std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c) {
  const Json& j = w.config();
  const Weights m = w.at("mlp"), e = m.at("experts");
  const int count = j.get_int("num_local_experts");
  MoeWeights weights{.sublayer = {.norm = w.norm("post_attention_layernorm", c.dim, c.eps)},
                     .router = m.exact({{.name = "router", .outputs = count, .bias = true}}, c.dim)};
  if (e.has("gate_proj.weight")) {
    weights.in = experts_by_part(
        e, {{.name = "gate_proj", .outputs = c.ffn}, {.name = "up_proj", .outputs = c.ffn}}, count, c.dim);
    weights.down = experts_by_part(e, {{.name = "down_proj", .outputs = c.dim}}, count, c.ffn);
  } else {
    weights.in = experts(e, "gate_up_proj", count, gate_then_up(2 * std::int64_t{c.ffn}), c.dim);
    weights.down = experts(e, "down_proj", count, in_order(c.dim), c.ffn);
  }
  const MoeConfig config{.experts = count,
                         .top_k = j.get_int("num_experts_per_tok"),
                         .scoring = Scoring::kTopKSoftmax,
                         .activation = Activation::kClampedSwiGlu,
                         .limit = static_cast<float>(j.get_float("swiglu_limit", kDefaultLimit))};
  return std::make_unique<Moe>(config, std::move(weights));
}

Model build(const Weights& w) {
  const TextConfig c(w.config());
  const auto rope = load_rope(w.config(), c.head_dim, w.ops());
  Model model;
  load_ends(model, w, c);
  for (int i = 0; i < c.layers; ++i) {
    add_layer(model, i, "attention", attention(w.layer(i), c, window(w.config(), i), rope));
    add_layer(model, i, "moe", moe(w.layer(i), c));
  }
  return model;
}

}  // namespace

std::vector<Family> gpt_oss_families() {
  return {{"gpt_oss",
           {"GptOssForCausalLM"},
           {"gpt_oss"},
           "gpt-oss, mixture of experts",
           {"MoE", "attention sinks", "sliding window", "MXFP4"},
           build,
           R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-05, "rope_theta": 150000.0,
               "sliding_window": 128})",
           {{"layer_types", "full_attention|sliding_attention"}, {"hidden_act", "silu|swish"}}}};
}

}  // namespace strata
