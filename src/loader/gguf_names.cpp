#include "loader/gguf_names.h"

#include "base/error.h"

namespace strata {
namespace {

using Kind = GgufLayout;

// llama.cpp's llama rotates channels (2i, 2i + 1), the published form (i, i + d / 2).
std::vector<std::int64_t> paired_rows(std::int64_t heads, std::int64_t head_dim) {
  std::vector<std::int64_t> rows;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < head_dim; ++i) rows.push_back(h * head_dim + i % 2 * (head_dim / 2) + i / 2);
  }
  return rows;
}

std::int64_t count_layers(const Json& config) {
  if (config.has("num_hidden_layers")) return config.get_int("num_hidden_layers");
  if (config.has("layers_block_type")) return static_cast<std::int64_t>(config.at("layers_block_type").size());
  return static_cast<std::int64_t>(config.get_string("hybrid_override_pattern").size());
}

// Value head j of every key head in turn, where the published form has all value heads of a key head together. Each head is
// `each` rows (or columns), after `before` that stay.
std::vector<std::int64_t> value_heads(const GgufModel& m, std::int64_t each, std::int64_t before = 0) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < before; ++i) order.push_back(i);
  const std::int64_t group = m.value_heads / m.key_heads;
  for (std::int64_t i = 0; i < m.value_heads; ++i) {
    const std::int64_t published = i % m.key_heads * group + i / m.key_heads;
    for (std::int64_t r = 0; r < each; ++r) order.push_back(before + published * each + r);
  }
  return order;
}

}  // namespace

TensorLayout layout_of(GgufLayout kind, const GgufModel& m) {
  TensorLayout l;
  const bool reordered = (m.arch == GgufArch::kQwen35 || m.arch == GgufArch::kQwen35Moe) && m.key_heads != m.value_heads;
  const std::int64_t keys = 2 * m.key_heads * m.key_dim;
  switch (kind) {
    case Kind::kPlain: break;
    case Kind::kNorm: l.math = has_shifted_norms(m.arch) ? TensorLayout::Math::kOnePlus : TensorLayout::Math::kNone; break;
    case Kind::kQuery:
    case Kind::kKey:
      if (rotates_pairs(m.arch)) l.rows = paired_rows(kind == Kind::kQuery ? m.heads : m.kv_heads, m.head_dim);
      break;
    case Kind::kRow: l.form = TensorLayout::Form::kRow; break;
    case Kind::kDecay: l.math = TensorLayout::Math::kMinusExp; [[fallthrough]];
    case Kind::kHeadRows:
      if (reordered) l.rows = value_heads(m, 1);
      break;
    case Kind::kGateRows:
      if (reordered) l.rows = value_heads(m, m.value_dim);
      break;
    case Kind::kConv: l.form = TensorLayout::Form::kConv; [[fallthrough]];
    case Kind::kValueRows:
      if (reordered) l.rows = value_heads(m, m.value_dim, keys);
      break;
    case Kind::kValueColumns:
      if (reordered) {
        l.runs = value_heads(m, 1);
        l.run = m.value_dim;
      }
      break;
    case Kind::kDecayColumn: l.math = TensorLayout::Math::kMinusExp; [[fallthrough]];
    case Kind::kColumn:
    case Kind::kGroups: l.form = TensorLayout::Form::kFlat; break;
  }
  return l;
}

GgufModel::GgufModel(GgufArch a, const Json& config)
    : arch(a),
      layers(count_layers(config)),
      heads(config.get_int("num_attention_heads")),
      kv_heads(config.get_int("num_key_value_heads", static_cast<int>(heads))) {
  const auto require = [&](bool fine, std::string_view what) {
    if (!fine) throw Error("{}: {} of this configuration make no sense", config.origin(), what);
  };
  constexpr std::int64_t kMany = 1 << 20;  // of layers, or of channels in a layer's heads: beyond any model
  const auto sane = [](std::int64_t n, std::int64_t each) { return n > 0 && each > 0 && n <= kMany && each <= kMany / n; };
  require(sane(layers, 1), "the layers");
  require(heads > 0, "the heads");
  head_dim = config.get_int("head_dim", static_cast<int>(config.get_int("hidden_size") / heads));
  require(head_dim % 2 == 0 && sane(heads, head_dim) && sane(kv_heads, head_dim), "the heads");
  for (const char* key : {"num_experts", "n_routed_experts", "num_local_experts"}) {
    if (experts == 0 && config.has(key)) experts = config.get_int(key);
  }
  if (has_mamba(arch)) {
    mamba_groups = config.get_int(is_nemotron(arch) ? "n_groups" : "mamba_n_groups", 1);
    require(sane(mamba_groups, 1), "the groups");
  }
  if (!has_delta_nets(arch)) return;
  mtp_layers = config.get_int("mtp_num_hidden_layers", 0);
  key_heads = config.get_int("linear_num_key_heads");
  value_heads = config.get_int("linear_num_value_heads");
  key_dim = config.get_int("linear_key_head_dim");
  value_dim = config.get_int("linear_value_head_dim");
  require(mtp_layers >= 0 && mtp_layers <= kMany, "the prediction layers");
  require(sane(key_heads, key_dim) && sane(value_heads, value_dim) && value_heads % key_heads == 0, "the delta nets' heads");
}

}  // namespace strata
