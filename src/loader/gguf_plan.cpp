#include "loader/gguf_plan.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "loader/gguf_layout.h"
#include "tensor/convert.h"
#include "tensor/mxfp4.h"
#include "tensor/quant.h"

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
    constexpr std::string_view kExperts = ".experts.";
    if (const auto at = name.find(kExperts); at != std::string::npos) {
      const std::string prefix = name.substr(0, at + kExperts.size());
      const std::size_t dot = name.rfind('.');
      const std::string part = name.substr(prefix.size(), dot - prefix.size());
      if (m_.arch == GgufArch::kGptOss) return name.ends_with(".bias") ? alternating_bias(prefix, part, to) : alternating(prefix, part, to);
      return stacked(prefix + part, to) || single_experts(prefix, part, to) || half(prefix + "gate_up_proj", part, to) ||
             (part == "w2" && stacked(prefix + "down_proj", to));
    }
    if (const auto end = split_end(name, {"gate_proj.weight", "up_proj.weight"}); !end.empty()) {  // of Granite
      return half(name.substr(0, name.size() - end.size()) + "input_linear", end.substr(0, end.rfind('.')), to);
    }
    if (const auto end = split_end(name, {"k_b_proj.weight", "v_b_proj.weight"}); !end.empty()) {
      return latent_heads(name.substr(0, name.size() - end.size()) + "kv_b_proj.weight", end.front() == 'v', to);
    }
    for (const auto& [end, z] : {std::pair{"linear_attn.in_proj_qkv.weight", false}, {"linear_attn.in_proj_z.weight", true}}) {
      if (!ends(name, end)) continue;
      return packed_inputs(name.substr(0, name.size() - std::strlen(end)) + "linear_attn.in_proj_qkvz.weight", z, to);
    }
    return false;
  }

 private:
  // The one of `ends` that is the last part of the name, or nothing.
  static std::string_view split_end(std::string_view name, std::initializer_list<std::string_view> ends) {
    for (const std::string_view end : ends) {
      if (name.ends_with(end) && name[name.size() - end.size() - 1] == '.') return name.substr(name.size() - end.size());
    }
    return {};
  }

  // The same tensor under a name without ".weight", or with it.
  bool stacked(const std::string& name, GgufPlanned& to) const {
    for (const char* end : {"", ".weight"}) {
      const auto shape = c_.shape_of(name + end);
      if (!shape) continue;
      to.shape = *shape;
      to.pieces = {{.name = name + end, .count = rows_of(*shape)}};
      return true;
    }
    return false;
  }

  bool single_experts(const std::string& prefix, const std::string& part, GgufPlanned& to) const {
    const auto name = [&](std::int64_t e) { return fmt::format("{}{}.{}.weight", prefix, e, part); };
    const auto shape = c_.shape_of(name(0));
    if (!shape) return false;
    std::int64_t experts = 0;
    for (; c_.has(name(experts)); ++experts) to.pieces.push_back({.name = name(experts), .count = rows_of(*shape)});
    to.shape = {experts, (*shape)[0], (*shape)[1]};
    return true;
  }

  // gate or up of a matrix that holds both, one after the other, for each expert or once.
  bool half(const std::string& fused, std::string_view part, GgufPlanned& to) const {
    const bool gate = part == "gate_proj" || part == "w1", up = part == "up_proj" || part == "w3";
    if (!gate && !up) return false;
    for (const char* end : {"", ".weight"}) {
      const auto shape = c_.shape_of(fused + end);
      if (!shape || shape->rank() < 2) continue;
      const std::int64_t experts = shape->rank() == 3 ? (*shape)[0] : 1, both = (*shape)[-2], each = both / 2;
      for (std::int64_t e = 0; e < experts; ++e) {
        to.pieces.push_back({.name = fused + end, .first = e * both + (up ? each : 0), .count = each});
      }
      to.shape = shape->rank() == 3 ? Shape{experts, each, (*shape)[-1]} : Shape{each, (*shape)[-1]};
      return true;
    }
    return false;
  }

  // gpt-oss: rows of gate and up alternate, and matrices lie turned round unless they are in MXFP4.
  bool alternating(const std::string& prefix, const std::string& part, GgufPlanned& to) const {
    const bool down = part == "down_proj";
    const std::string name = prefix + (down ? part : "gate_up_proj");
    const std::int64_t first = part == "up_proj" ? 1 : 0, step = down ? 1 : 2;
    if (const auto packed = c_.shape_of(name + "_blocks")) {
      const std::int64_t experts = (*packed)[0], rows = (*packed)[1];
      for (std::int64_t e = 0; e < experts; ++e) {
        to.pieces.push_back({.name = name, .first = e * rows + first, .count = rows / step, .step = step, .view = GgufPiece::View::kMxfp4});
      }
      to.shape = {experts, rows / step, 32 * (*packed)[2]};
      return true;
    }
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    const std::int64_t experts = (*shape)[0], inputs = (*shape)[1], rows = (*shape)[2];
    for (std::int64_t e = 0; e < experts; ++e) {
      to.pieces.push_back({.name = name,
                           .first = first,
                           .count = rows / step,
                           .step = step,
                           .view = GgufPiece::View::kTurned,
                           .block = e * inputs,
                           .height = inputs});
    }
    to.shape = {experts, rows / step, inputs};
    return true;
  }

  bool alternating_bias(const std::string& prefix, const std::string& part, GgufPlanned& to) const {
    const bool down = part == "down_proj";
    const std::string name = prefix + (down ? part : "gate_up_proj") + "_bias";
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    const std::int64_t experts = (*shape)[0], rows = (*shape)[1], step = down ? 1 : 2;
    for (std::int64_t e = 0; e < experts; ++e) {
      to.pieces.push_back({.name = name,
                           .first = e * rows + (part == "up_proj" ? 1 : 0),
                           .count = rows / step,
                           .step = step,
                           .view = GgufPiece::View::kFlat});
    }
    to.shape = {experts, rows / step};
    return true;
  }

  // The rows of each head of kv_b_proj are key | value.
  bool latent_heads(const std::string& name, bool value, GgufPlanned& to) const {
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    const std::int64_t Dn = config_.get_int("qk_nope_head_dim"), Dv = config_.get_int("v_head_dim"), R = (*shape)[1];
    for (std::int64_t h = 0; h < m_.heads; ++h) {
      const std::int64_t at = h * (Dn + Dv);
      if (value) {
        to.pieces.push_back({.name = name, .first = at + Dn, .count = Dv});
      } else {
        to.pieces.push_back({.name = name, .count = R, .view = GgufPiece::View::kTurned, .block = at, .height = Dn});
      }
    }
    to.shape = value ? Shape{m_.heads, Dv, R} : Shape{m_.heads, R, Dn};
    return true;
  }

  // Qwen3-Next: the rows of each key head are q | k | v and z of its value heads.
  bool packed_inputs(const std::string& name, bool z, GgufPlanned& to) const {
    const auto shape = c_.shape_of(name);
    if (!shape) return false;
    const std::int64_t K = m_.key_dim, V = m_.value_heads / m_.key_heads * m_.value_dim, group = 2 * K + 2 * V;
    const auto add = [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t h = 0; h < m_.key_heads; ++h) to.pieces.push_back({.name = name, .first = h * group + begin, .count = count});
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
Shape file_shape(GgufLayout layout, const Shape& s, const GgufModel& m) {
  if (layout == GgufLayout::kColumn || layout == GgufLayout::kDecayColumn) return {s[0], 1};
  if (layout == GgufLayout::kGroups) return {m.mamba_groups, s[0] / m.mamba_groups};
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
    if (ends(name, "experts.gate_up_proj.weight") || ends(name, "in_proj_qkvz.weight") || ends(name, "kv_b_proj.weight")) {
      continue;  // cut apart instead
    }
    if (const auto shape = checkpoint.shape_of(name)) {
      p.shape = file_shape(n.layout, *shape, model);
      p.pieces = {{.name = name, .count = rows_of(*shape)}};
    } else if (!composer.compose(name, p)) {
      continue;
    }
    plan.push_back(std::move(p));
  }
  return plan;
}

void PublishedRows::take(const GgufPiece& piece) {
  if (taken_.contains(piece.name)) return;
  const auto take = [&](const std::string& name) {
    return checkpoint_.take(name, checkpoint_.shape_of(name).value());
  };
  Taken t;
  if (piece.view == GgufPiece::View::kMxfp4) {
    t.data = take(piece.name + "_blocks");
    t.scales = take(piece.name + "_scales");
    const Shape& shape = t.data.shape();
    if (t.data.dtype() != DType::kU8 || t.scales.dtype() != DType::kU8 || shape.rank() != 4 || shape[3] != 16 ||
        t.scales.elements() * 16 != t.data.elements()) {
      throw Error("{}_blocks {}: expected bytes [experts, rows, groups, 16] and a scale of each group", piece.name, shape.to_string());
    }
    t.columns = shape[2];  // of groups
    taken_.emplace(piece.name, t);
    return;
  }
  t.data = take(piece.name);
  const Shape& shape = t.data.shape();
  t.columns = shape.rank() == 1 ? 1 : shape[-1];
  t.group = shape.rank() == 3 ? shape[1] : rows_of(shape);
  if (t.data.dtype() == DType::kF8E4M3) {
    const std::int64_t rows = (t.group + kScaleBlock - 1) / kScaleBlock, columns = (t.columns + kScaleBlock - 1) / kScaleBlock;
    t.scales = checkpoint_.take(piece.name + "_scale_inv", shape.rank() == 3 ? Shape{shape[0], rows, columns} : Shape{rows, columns});
  }
  if (t.data.dtype() == DType::kNVFP4) t.scales = checkpoint_.take(piece.name + "_scale_2", {1});
  taken_.emplace(piece.name, t);
}

std::int64_t PublishedRows::row_size(const GgufPiece& piece) const {
  switch (piece.view) {
    case GgufPiece::View::kRows: return taken_.at(piece.name).columns;
    case GgufPiece::View::kTurned: return piece.height;
    case GgufPiece::View::kFlat: return 1;
    case GgufPiece::View::kMxfp4: return 32 * taken_.at(piece.name).columns;
  }
  return 0;
}

std::optional<DType> PublishedRows::stored(const GgufPiece& piece) const {
  if (piece.view == GgufPiece::View::kMxfp4) return DType::kMXFP4;
  return piece.view == GgufPiece::View::kRows ? std::optional(taken_.at(piece.name).data.dtype()) : std::nullopt;
}

void PublishedRows::raw(const GgufPiece& piece, std::int64_t row, std::byte* to) const {
  const Taken& t = taken_.at(piece.name);
  const std::int64_t at = piece.first + row * piece.step;
  if (piece.view != GgufPiece::View::kMxfp4) {
    const DType type = t.data.dtype();
    std::memcpy(to, t.data.raw() + bytes_of(type, at * t.columns), bytes_of(type, t.columns));
    return;
  }
  for (std::int64_t g = at * t.columns; g < (at + 1) * t.columns; ++g, to += kMxfp4Bytes) {
    repack_mxfp4(t.data.data<std::uint8_t>() + g * 16, t.scales.data<std::uint8_t>()[g], to);
  }
}

float PublishedRows::Taken::scale(std::int64_t row, std::int64_t column) const {
  if (data.dtype() == DType::kNVFP4) return scales.data<float>()[0];
  const std::int64_t blocks = (columns + kScaleBlock - 1) / kScaleBlock, per_expert = (group + kScaleBlock - 1) / kScaleBlock;
  const std::int64_t at = (row / group * per_expert + row % group / kScaleBlock) * blocks + column / kScaleBlock;
  float value = 0;
  row_to_f32(scales.dtype(), scales.raw() + bytes_of(scales.dtype(), at), 1, &value);
  return value;
}

float PublishedRows::Taken::element(std::int64_t row, std::int64_t column) const {
  const DType type = data.dtype();
  if (is_block_type(type)) throw Error("{} cannot be turned round", name(type));
  float value = 0;
  row_to_f32(type, data.raw() + bytes_of(type, row * columns + column), 1, &value);
  return scales.empty() ? value : value * scale(row, column);
}

void PublishedRows::read(const GgufPiece& piece, std::int64_t row, float* to) const {
  const Taken& t = taken_.at(piece.name);
  const std::int64_t at = piece.first + row * piece.step;
  switch (piece.view) {
    case GgufPiece::View::kTurned:
      for (std::int64_t i = 0; i < piece.height; ++i) to[i] = t.element(piece.block + i, at);
      return;
    case GgufPiece::View::kFlat: *to = t.element(at / t.columns, at % t.columns); return;
    case GgufPiece::View::kMxfp4: {
      std::vector<std::byte> packed(static_cast<std::size_t>(t.columns) * kMxfp4Bytes);
      raw(piece, row, packed.data());
      row_to_f32(DType::kMXFP4, packed.data(), row_size(piece), to);
      return;
    }
    case GgufPiece::View::kRows: break;
  }
  row_to_f32(t.data.dtype(), t.data.raw() + bytes_of(t.data.dtype(), at * t.columns), t.columns, to);
  if (t.scales.empty()) return;
  for (std::int64_t begin = 0; begin < t.columns; begin += kScaleBlock) {
    const float scale = t.scale(at, begin);
    for (std::int64_t k = begin; k < std::min(t.columns, begin + kScaleBlock); ++k) to[k] *= scale;
  }
}

}  // namespace strata
