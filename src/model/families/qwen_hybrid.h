// The sublayers of the Qwen hybrids, for the families that build on them.
#pragma once

#include "model/families/blocks.h"

namespace strata::qwen {

inline constexpr float kZeroCentred = 1;  // norms multiply by 1 + w, but for the delta net's own

struct AttentionExtras {
  int skip = 0;                         // leading keys nobody sees
  std::optional<Indexer> indexer = {};  // sparse attention
};

// Whether block i mixes by attention (else by a gated delta net).
bool full_attention(const Json& config, int layer);

// The tensors under block `w` (self_attn, linear_attn, mlp).
std::unique_ptr<TransformerLayer> attention(const Weights& w, const TextConfig& c,
                                            std::shared_ptr<const Rope> rope, Sublayer sublayer,
                                            const AttentionExtras& extras = {});
std::unique_ptr<TransformerLayer> delta_net(const Weights& w, const TextConfig& c, Sublayer sublayer,
                                            Activation gate = Activation::kSilu);
std::unique_ptr<TransformerLayer> moe(const Weights& w, const TextConfig& c, Sublayer sublayer);

}  // namespace strata::qwen
