// Configurations of published models, from their config.json on huggingface.co (the name in the comment).
#include <map>

#include "base/error.h"
#include "loader/dummy.h"

namespace strata {
namespace {

const std::map<std::string, const char*, std::less<>>& shapes() {
  static const std::map<std::string, const char*, std::less<>> all = {
      // Qwen/Qwen3-8B
      {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096,
        "num_hidden_layers": 36, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 131072, "rope_theta": 1000000,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
      // Qwen/Qwen3-30B-A3B
      {"qwen3-30b-a3b",
       R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
        "num_hidden_layers": 48, "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": true, "vocab_size": 151936, "max_position_embeddings": 131072, "rope_theta": 1000000,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
      // Qwen/Qwen3-Next-80B-A3B-Instruct
      {"qwen3-next-80b-a3b", R"({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "hidden_size": 2048, "num_hidden_layers": 48, "full_attention_interval": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "mtp_num_hidden_layers": 1,
        "vocab_size": 151936, "max_position_embeddings": 262144, "rope_theta": 10000000, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false})"},
      // Qwen/Qwen3.5-35B-A3B
      {"qwen3.5-35b-a3b", R"({"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048, "num_hidden_layers": 40, "full_attention_interval": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4, "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "mtp_num_hidden_layers": 1, "vocab_size": 248320,
        "max_position_embeddings": 262144, "rope_theta": 10000000, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false})"},
      // Qwen/Qwen3.5-27B
      {"qwen3.5-27b", R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
        "hidden_size": 5120, "num_hidden_layers": 64, "intermediate_size": 17408, "full_attention_interval": 4,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1, "vocab_size": 248320,
        "max_position_embeddings": 262144, "rope_theta": 10000000, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": false})"},
  };
  return all;
}

}  // namespace

std::vector<std::string> published_shapes() {
  std::vector<std::string> names;
  for (const auto& [name, config] : shapes()) names.push_back(name);
  return names;
}

ModelConfig published_shape(std::string_view name) {
  const auto found = shapes().find(name);
  if (found != shapes().end()) return {Json::parse(found->second, found->first), Json()};
  std::string known;
  for (const auto& [other, config] : shapes()) known += (known.empty() ? "" : ", ") + other;
  throw Error("shape '{}' is not known; known are {}", name, known);
}

}  // namespace strata
