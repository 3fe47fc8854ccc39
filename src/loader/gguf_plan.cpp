#include "loader/gguf_plan.h"

#include <cstring>

#include "base/error.h"
#include "loader/gguf_layout.h"
#include "tensor/convert.h"

namespace strata {
namespace {

constexpr std::int64_t kScaleBlock = 128;  // FP8 checkpoints scale blocks of 128 x 128

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = shape.rank() == 1 ? shape[0] : 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

bool ends(std::string_view name, std::string_view end) { return name.ends_with(end); }

// Fills a planned tensor from other tensors than the one it is named after. False when they are not there either.
class Composer {
 public:
  Composer(const Checkpoint& checkpoint, const GgufModel& model, const Json& config) : c_(checkpoint), m_(model), config_(config) {}

  bool compose(const std::string& name, GgufPlanned& to) const {
    if (const auto at = name.find("mlp.experts."); at != std::string::npos && is_moe(m_.arch)) {
      const std::string prefix = name.substr(0, at + std::strlen("mlp.experts."));
      std::string part = name.substr(prefix.size());
      part.resize(part.size() - std::strlen(".weight"));
      return stacked(prefix + part, to) || single_experts(prefix, part, to) || fused(prefix, part, to);
    }
    for (const auto& [end, z] : {std::pair{"linear_attn.in_proj_qkv.weight", false}, {"linear_attn.in_proj_z.weight", true}}) {
      if (!ends(name, end)) continue;
      return packed_inputs(name.substr(0, name.size() - std::strlen(end)) + "linear_attn.in_proj_qkvz.weight", z, to);
    }
    return false;
  }

 private:
  // The same tensor under a name without ".weight".
  bool stacked(const std::string& name, GgufPlanned& to) const {
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    to.shape = *shape;
    to.pieces = {{name, 0, rows_of(*shape)}};
    return true;
  }

  bool single_experts(const std::string& prefix, const std::string& part, GgufPlanned& to) const {
    const auto shape = c_.shape_of(prefix + "0." + part + ".weight");
    if (!shape) return false;
    const int experts = config_.get_int(config_.has("num_experts") ? "num_experts" : "num_local_experts");
    for (int e = 0; e < experts; ++e) to.pieces.push_back({fmt::format("{}{}.{}.weight", prefix, e, part), 0, rows_of(*shape)});
    to.shape = {experts, (*shape)[0], (*shape)[1]};
    return true;
  }

  bool fused(const std::string& prefix, const std::string& part, GgufPlanned& to) const {
    if (part != "gate_proj" && part != "up_proj") return false;
    for (const char* name : {"gate_up_proj", "gate_up_proj.weight"}) {
      const auto shape = c_.shape_of(prefix + name);
      if (!shape) continue;
      const std::int64_t experts = (*shape)[0], both = (*shape)[1], each = both / 2;
      for (std::int64_t e = 0; e < experts; ++e) to.pieces.push_back({prefix + name, e * both + (part == "up_proj" ? each : 0), each});
      to.shape = {experts, each, (*shape)[2]};
      return true;
    }
    return false;
  }

  // Qwen3-Next: the rows of each key head are q | k | v and z of its value heads.
  bool packed_inputs(const std::string& name, bool z, GgufPlanned& to) const {
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    const std::int64_t K = m_.key_dim, V = m_.value_heads / m_.key_heads * m_.value_dim, group = 2 * K + 2 * V;
    const auto add = [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t h = 0; h < m_.key_heads; ++h) to.pieces.push_back({name, h * group + begin, count});
    };
    if (z) {
      add(2 * K + V, V);
      to.shape = {m_.key_heads * V, (*shape)[1]};
    } else {
      add(0, K);
      add(K, K);
      add(2 * K, V);
      to.shape = {m_.key_heads * (2 * K + V), (*shape)[1]};
    }
    return true;
  }

  const Checkpoint& c_;
  const GgufModel& m_;
  const Json& config_;
};

// The file's shape of a tensor that has its published shape.
Shape file_shape(GgufLayout layout, const Shape& s) {
  if (layout == GgufLayout::kConv) return {s[0], s[2]};
  if (layout == GgufLayout::kRow && s.rank() == 2) return {s[1]};
  return s;
}

}  // namespace

std::vector<GgufPlanned> plan_gguf(const Checkpoint& checkpoint, const GgufModel& model, const Json& config) {
  const Composer composer(checkpoint, model, config);
  const bool tied = config.get_bool("tie_word_embeddings", false);
  std::vector<GgufPlanned> plan;
  for (const GgufTensorName& n : gguf_names(model)) {
    GgufPlanned p{n, {}, {}};
    const std::string name = normal_name(n.published);
    if (name == "lm_head.weight" && tied) continue;
    if (ends(name, "experts.gate_up_proj.weight") || ends(name, "in_proj_qkvz.weight")) continue;  // cut apart instead
    if (const auto shape = checkpoint.shape_of(name)) {
      p.shape = file_shape(n.layout, *shape);
      p.pieces = {{name, 0, rows_of(*shape)}};
    } else if (!composer.compose(name, p)) {
      continue;
    }
    plan.push_back(std::move(p));
  }
  return plan;
}

void PublishedRows::take(const std::string& name) {
  if (taken_.contains(name)) return;
  const Shape shape = checkpoint_.shape_of(name).value();
  Taken t;
  t.data = checkpoint_.take(name, shape);
  t.columns = shape.rank() == 1 ? 1 : shape[-1];
  t.group = shape.rank() == 3 ? shape[1] : rows_of(shape);
  if (t.data.dtype() == DType::kF8E4M3) {
    const std::int64_t rows = (t.group + kScaleBlock - 1) / kScaleBlock, columns = (t.columns + kScaleBlock - 1) / kScaleBlock;
    t.scales = checkpoint_.take(name + "_scale_inv", shape.rank() == 3 ? Shape{shape[0], rows, columns} : Shape{rows, columns});
  }
  taken_.emplace(name, t);
}

const std::byte* PublishedRows::raw(const std::string& name, std::int64_t row) const {
  const Taken& t = taken_.at(name);
  return t.data.raw() + bytes_of(t.data.dtype(), row * t.columns);
}

void PublishedRows::read(const std::string& name, std::int64_t row, float* to) const {
  const Taken& t = taken_.at(name);
  row_to_f32(t.data.dtype(), raw(name, row), t.columns, to);
  if (t.scales.empty()) return;
  const std::int64_t blocks = (t.columns + kScaleBlock - 1) / kScaleBlock, per_expert = (t.group + kScaleBlock - 1) / kScaleBlock;
  const std::int64_t scale_row = row / t.group * per_expert + row % t.group / kScaleBlock;
  std::vector<float> scales(static_cast<std::size_t>(blocks));
  const DType type = t.scales.dtype();
  row_to_f32(type, t.scales.raw() + bytes_of(type, scale_row * blocks), blocks, scales.data());
  for (std::int64_t k = 0; k < t.columns; ++k) to[k] *= scales[static_cast<std::size_t>(k / kScaleBlock)];
}

}  // namespace strata
