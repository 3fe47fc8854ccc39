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
enum class GgufArch { kLlama, kQwen2, kQwen3, kQwen3Moe, kGemma3, kQwen3Next, kQwen35, kQwen35Moe };

struct GgufArchName {
  GgufArch arch;
  std::string_view file;          // "qwen35moe"
  std::string_view architecture;  // "Qwen3_5MoeForCausalLM"
  std::string_view model_type;    // "qwen3_5_moe_text"
};
inline constexpr std::array<GgufArchName, 8> kGgufArchs = {{
    {GgufArch::kLlama, "llama", "LlamaForCausalLM", "llama"},
    {GgufArch::kQwen2, "qwen2", "Qwen2ForCausalLM", "qwen2"},
    {GgufArch::kQwen3, "qwen3", "Qwen3ForCausalLM", "qwen3"},
    {GgufArch::kQwen3Moe, "qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {GgufArch::kGemma3, "gemma3", "Gemma3ForCausalLM", "gemma3_text"},
    {GgufArch::kQwen3Next, "qwen3next", "Qwen3NextForCausalLM", "qwen3_next"},
    {GgufArch::kQwen35, "qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text"},
    {GgufArch::kQwen35Moe, "qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
}};

inline bool is_hybrid(GgufArch arch) { return arch >= GgufArch::kQwen3Next; }
// Norms multiply by 1 + w in the published form; the file holds that sum.
inline bool has_shifted_norms(GgufArch arch) { return is_hybrid(arch) || arch == GgufArch::kGemma3; }
inline bool is_moe(GgufArch arch) { return arch == GgufArch::kQwen3Moe || arch == GgufArch::kQwen3Next || arch == GgufArch::kQwen35Moe; }

// What names and layouts depend on.
struct GgufModel {
  GgufArch arch = GgufArch::kLlama;
  std::int64_t layers = 0, mtp_layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;  // of gated delta nets

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
  enum class Form { kSame, kConv, kRow } form = Form::kSame;  // published [C, 1, W] of [C, W]; [1, D] of [D]

  bool same_bytes() const { return rows.empty() && runs.empty() && math == Math::kNone; }
};

enum class GgufLayout {
  kPlain,
  kNorm,          // hybrids and gemma3 hold 1 + w
  kQuery, kKey,   // llama holds rotated pairs side by side
  kRow,           // [D] of a published [1, D]
  kValueRows,     // value heads in the file's order, from the row after q and k on ...
  kGateRows,      // ... from row 0 on ...
  kHeadRows,      // ... one row each ...
  kDecay,         // ... and -exp(w)
  kConv,          // ... and [C, W] of a published [C, 1, W]
  kValueColumns,  // ... by columns
};
TensorLayout layout_of(GgufLayout kind, const GgufModel& model);

struct GgufTensorName {
  std::string file;       // "blk.0.attn_q.weight"
  std::string published;  // "model.layers.0.self_attn.q_proj.weight"
  GgufLayout layout;
};

// Every name a model of this kind may have; not all are there in each (biases, tied heads, either packing of a tensor).
std::vector<GgufTensorName> gguf_names(const GgufModel& model);

}  // namespace strata
