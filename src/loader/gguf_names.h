// GGUF's names of tensors and models beside the published ones, and how the same weights are laid out differently.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/json.h"

namespace strata {

// general.architecture of the files this engine reads.
enum class GgufArch {
  kLlama,
  kSmolLm3,
  kQwen2,
  kQwen3,
  kQwen3Moe,
  kGemma3,
  kGemma4,
  kGptOss,
  kMiniMaxM2,
  kDeepSeek2,
  kMistral4,
  kNemotronH,
  kNemotronHMoe,
  kGraniteHybrid,
  kQwen3Next,  // from here on: with gated delta nets
  kQwen35,
  kQwen35Moe
};

struct GgufArchName {
  GgufArch arch;
  std::string_view file;          // "qwen35moe"
  std::string_view architecture;  // "Qwen3_5MoeForCausalLM"
  std::string_view model_type;    // "qwen3_5_moe_text"
};
// Reading takes the first row of a file's name, writing the first of a model_type (gguf_arch_of() looks closer where there
// are two).
inline constexpr std::array kGgufArchs = {
    GgufArchName{GgufArch::kLlama, "llama", "LlamaForCausalLM", "llama"},
    GgufArchName{GgufArch::kLlama, "llama", "MistralForCausalLM", "mistral"},
    GgufArchName{GgufArch::kSmolLm3, "smollm3", "SmolLM3ForCausalLM", "smollm3"},
    GgufArchName{GgufArch::kQwen2, "qwen2", "Qwen2ForCausalLM", "qwen2"},
    GgufArchName{GgufArch::kQwen3, "qwen3", "Qwen3ForCausalLM", "qwen3"},
    GgufArchName{GgufArch::kQwen3Moe, "qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
    GgufArchName{GgufArch::kGemma3, "gemma3", "Gemma3ForCausalLM", "gemma3_text"},
    GgufArchName{GgufArch::kGemma4, "gemma4", "Gemma4ForCausalLM", "gemma4_text"},
    GgufArchName{GgufArch::kGptOss, "gpt-oss", "GptOssForCausalLM", "gpt_oss"},
    GgufArchName{GgufArch::kMiniMaxM2, "minimax-m2", "MiniMaxM2ForCausalLM", "minimax_m2"},
    GgufArchName{GgufArch::kDeepSeek2, "deepseek2", "DeepseekV3ForCausalLM", "deepseek_v3"},
    GgufArchName{GgufArch::kMistral4, "mistral4", "Mistral4ForCausalLM", "mistral4"},
    GgufArchName{GgufArch::kNemotronH, "nemotron_h", "NemotronHForCausalLM", "nemotron_h"},
    GgufArchName{GgufArch::kNemotronHMoe, "nemotron_h_moe", "NemotronHForCausalLM", "nemotron_h"},
    GgufArchName{GgufArch::kGraniteHybrid, "granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid"},
    GgufArchName{GgufArch::kQwen3Next, "qwen3next", "Qwen3NextForCausalLM", "qwen3_next"},
    GgufArchName{GgufArch::kQwen35, "qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text"},
    GgufArchName{GgufArch::kQwen35Moe, "qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
};

inline bool has_delta_nets(GgufArch arch) { return arch >= GgufArch::kQwen3Next; }
inline bool has_mamba(GgufArch arch) {
  return arch == GgufArch::kNemotronH || arch == GgufArch::kNemotronHMoe || arch == GgufArch::kGraniteHybrid;
}
inline bool is_nemotron(GgufArch arch) { return arch == GgufArch::kNemotronH || arch == GgufArch::kNemotronHMoe; }
inline bool has_latent_attention(GgufArch arch) { return arch == GgufArch::kDeepSeek2 || arch == GgufArch::kMistral4; }
// Norms multiply by 1 + w in the published form; the file holds that sum.
inline bool has_shifted_norms(GgufArch arch) { return has_delta_nets(arch) || arch == GgufArch::kGemma3; }
// Channels (2i, 2i + 1) rotate together in the file, (i, i + d / 2) in the published form.
inline bool rotates_pairs(GgufArch arch) {
  return arch == GgufArch::kLlama || arch == GgufArch::kSmolLm3 || arch == GgufArch::kGraniteHybrid;
}
// Experts in Qwen's way, under Qwen's keys.
inline bool has_qwen_experts(GgufArch arch) {
  return arch == GgufArch::kQwen3Moe || arch == GgufArch::kQwen3Next || arch == GgufArch::kQwen35Moe;
}

// What names and layouts depend on.
struct GgufModel {
  GgufArch arch = GgufArch::kLlama;
  std::int64_t layers = 0, mtp_layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // of gated delta nets
  std::int64_t mamba_groups = 0;                                            // of Mamba-2 layers
  std::int64_t experts = 0;                                                 // routed ones of a layer that has them

  // From a model's configuration in its published form.
  GgufModel(GgufArch a, const Json& config);
};

// How the file holds a tensor, beside its published form.
struct TensorLayout {
  enum class Math { kNone, kOnePlus, kMinusExp };  // the file holds w, 1 + w, -exp(w)
  std::vector<std::int64_t> rows;  // file row i is published row rows[i]; empty: the same order
  std::vector<std::int64_t> runs;  // run i of a row is published run runs[i]; empty: the same order
  std::int64_t run = 0;            // elements in a run
  Math math = Math::kNone;
  // Published [C, 1, W] of [C, W]; [1, D] of [D]; [N] of [a, b] with a b = N.
  enum class Form { kSame, kConv, kRow, kFlat } form = Form::kSame;

  bool same_bytes() const { return rows.empty() && runs.empty() && math == Math::kNone; }
};

enum class GgufLayout {
  kPlain,
  kNorm,          // hybrids and gemma3 hold 1 + w
  kQuery, kKey,   // some hold rotated pairs side by side
  kRow,           // [D] of a published [1, D]
  kValueRows,     // value heads in the file's order, from the row after q and k on ...
  kGateRows,      // ... from row 0 on ...
  kHeadRows,      // ... one row each ...
  kDecay,         // ... and -exp(w)
  kConv,          // ... and [C, W] of a published [C, 1, W]
  kValueColumns,  // ... by columns
  kColumn,        // [N, 1] of a published [N] ...
  kDecayColumn,   // ... and -exp(w)
  kGroups,        // [G, N / G] of a published [N]
};
TensorLayout layout_of(GgufLayout kind, const GgufModel& model);

struct GgufTensorName {
  std::string file;       // "blk.0.attn_q.weight"
  std::string published;  // "model.layers.0.self_attn.q_proj.weight"
  GgufLayout layout;
};

// Every name a model of this kind may have (gguf_rules.cpp); not all are there in each (biases, tied heads, either packing of a tensor).
std::vector<GgufTensorName> gguf_names(const GgufModel& model);

}  // namespace strata
