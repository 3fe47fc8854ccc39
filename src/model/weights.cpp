#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "tensor/convert.h"

namespace strata {
namespace {

constexpr std::int64_t kScaleBlock = 128;  // FP8 checkpoints scale blocks of 128 x 128

std::int64_t blocks(std::int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }

float element(const Tensor& t, std::int64_t i) {
  switch (t.dtype()) {
    case DType::kF32:
      return t.data<float>()[i];
    case DType::kBF16:
      return to_float(t.data<BFloat16>()[i]);
    case DType::kF16:
      return half_to_float(t.data<std::uint16_t>()[i]);
    default:
      throw Error("{} is not a type of scales and biases", name(t.dtype()));
  }
}

// The type asked for where rows of `inputs` are whole blocks of it, else the nearest finer one.
std::optional<DType> fitting(std::optional<DType> type, std::int64_t inputs) {
  return type ? std::optional(fitting_type(*type, inputs)) : std::nullopt;
}

std::int64_t count_rows(const LinearPart& part) {
  if (part.rows.empty()) return part.outputs;
  std::int64_t n = 0;
  for (const RowRange& r : part.rows) n += r.count;
  return n;
}

std::vector<RowRange> rows_of(const LinearPart& part) {
  return part.rows.empty() ? std::vector<RowRange>{{0, part.outputs}} : part.rows;
}

// Rows of an FP8 matrix that its scale blocks do not line up with, as bf16.
Tensor decode(const Tensor& matrix, const Tensor& scales, RowRange rows, Buffer& into) {
  into = Buffer::host(static_cast<std::size_t>(rows.count * matrix[1]) * sizeof(BFloat16));
  const Tensor out = into.view(DType::kBF16, {rows.count, matrix[1]});
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const auto* from = matrix.row<std::uint8_t>(rows.begin + r);
    const float* scale = scales.row<float>((rows.begin + r) / kScaleBlock);
    for (std::int64_t k = 0; k < matrix[1]; ++k) {
      out.row<BFloat16>(r)[k] = to_bfloat16(f8e4m3_to_float(from[k]) * scale[k / kScaleBlock]);
    }
  }
  return out;
}

}  // namespace

std::vector<RowRange> head_rows(std::int64_t heads, std::int64_t stride, std::int64_t begin,
                                std::int64_t count) {
  std::vector<RowRange> rows;
  for (std::int64_t h = 0; h < heads; ++h) rows.push_back({h * stride + begin, count});
  return rows;
}

std::vector<RowRange> operator+(std::vector<RowRange> a, const std::vector<RowRange>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Weights::full(std::string_view name) const {
  return prefix_.empty() ? std::string(name) : prefix_ + "." + std::string(name);
}

Weights Weights::at(std::string_view name) const {
  return {checkpoint_, ops_, options_, full(name), config_};
}

Norm Weights::norm(std::string_view name, std::int64_t dim, float eps, float add) const {
  return {vector(std::string(name) + ".weight", {dim}, add), eps};
}

Tensor Weights::vector(std::string_view name, const Shape& shape, float add, float factor) const {
  if (factor == 1) return ops_.load_vector(checkpoint_.take(full(name), shape), add);
  std::vector<float> scaled = numbers(name, shape);
  for (float& x : scaled) x *= factor;
  return ops_.load_vector(Tensor(scaled.data(), DType::kF32, shape), add);
}

std::vector<float> Weights::numbers(std::string_view name, const Shape& shape) const {
  const Tensor host = checkpoint_.take(full(name), shape);
  std::vector<float> values(static_cast<std::size_t>(host.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(host, static_cast<std::int64_t>(i));
  return values;
}

float Weights::number(std::string_view name) const { return numbers(name, {1})[0]; }

std::shared_ptr<const Weight> Weights::table(std::string_view name, std::int64_t vocab,
                                             std::int64_t dim) const {
  const Linear whole = linear({{.name = std::string(name), .outputs = vocab}}, dim);
  return whole.share();
}

Weight Weights::pack(const HostMatrix& matrix) const {
  const HostPiece& first = matrix.pieces.front();
  return ops_.load(matrix, fitting(options_.weights, first.transposed ? first.data[0] : first.data[1]));
}

Weight Weights::matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs) const {
  const std::string file_name = full(name) + ".weight";
  HostMatrix matrix;
  Kept kept;
  const Tensor whole = checkpoint_.take(file_name, {outputs, inputs});
  add_pieces(matrix, whole, scales_of(whole, file_name, kept), {{0, outputs}}, kept);
  return pack(matrix);
}

Linear Weights::linear(std::vector<LinearPart> parts, std::int64_t inputs) const {
  return fuse(std::move(parts), inputs, options_.weights);
}

Linear Weights::linear(std::vector<LinearPart> parts, std::int64_t inputs, DType type) const {
  return fuse(std::move(parts), inputs, type);
}

Weight Weights::copy(std::string_view name, std::int64_t outputs, std::int64_t inputs, DType type) const {
  const HostMatrix whole(checkpoint_.again(full(name) + ".weight", {outputs, inputs}));
  return ops_.load(whole, fitting(type, inputs));
}

Linear Weights::exact(std::vector<LinearPart> parts, std::int64_t inputs) const {
  return fuse(std::move(parts), inputs, {});
}

Linear Weights::fuse(std::vector<LinearPart> parts, std::int64_t inputs, std::optional<DType> type) const {
  HostMatrix matrix;
  Kept kept;
  std::vector<float> bias;
  bool any_bias = false;
  for (LinearPart& part : parts) {
    part.name = full(part.name);
    const Tensor whole = checkpoint_.take(part.name + ".weight", {part.outputs, inputs});
    add_pieces(matrix, whole, scales_of(whole, part.name + ".weight", kept), rows_of(part), kept);
    const std::size_t at = bias.size();
    bias.resize(at + static_cast<std::size_t>(count_rows(part)));
    if (!part.bias) continue;
    any_bias = true;
    const Tensor b = checkpoint_.take(part.name + ".bias", {part.outputs});
    float* to = bias.data() + at;
    for (const RowRange& r : rows_of(part)) {
      for (std::int64_t i = 0; i < r.count; ++i) *to++ = element(b, r.begin + i);
    }
  }
  const Tensor host(bias.data(), DType::kF32, {static_cast<std::int64_t>(bias.size())});
  return {ops_.load(matrix, fitting(type, inputs)), any_bias ? ops_.load_vector(host) : Tensor{},
          std::move(parts)};
}

std::pair<ExpertLinear, ExpertLinear> Weights::split_heads(std::string_view name, int heads, std::int64_t a,
                                                           std::int64_t b, std::int64_t inputs) const {
  const std::string file_name = full(name) + ".weight";
  Kept kept;
  HostMatrix first, second;
  first.experts = second.experts = heads;
  const Tensor whole = checkpoint_.take(file_name, {heads * (a + b), inputs});
  const Tensor scales = scales_of(whole, file_name, kept);
  for (std::int64_t h = 0; h < heads; ++h) {
    add_pieces(first, whole, scales, {{h * (a + b), a}}, kept);
    first.pieces.back().transposed = true;
    add_pieces(second, whole, scales, {{h * (a + b) + a, b}}, kept);
  }
  const LinearPart part{.name = full(name), .outputs = heads * (a + b), .head_stride = a + b};
  LinearPart keys = part, values = part;
  keys.rows = {{0, a}};
  keys.transposed = true;
  values.rows = {{a, b}};
  return {ExpertLinear(pack(first), {}, {keys}), ExpertLinear(pack(second), {}, {values})};
}

void Weights::add_pieces(HostMatrix& to, const Tensor& matrix, const Tensor& scales,
                         const std::vector<RowRange>& rows, Kept& kept) const {
  for (const RowRange& r : rows) {
    STRATA_CHECK(r.begin >= 0 && r.begin + r.count <= matrix[0], "rows [{}, {}) of {}", r.begin,
                 r.begin + r.count, matrix[0]);
    const bool aligned = r.begin % kScaleBlock == 0;
    if (scales.empty()) {
      to.pieces.push_back({matrix.rows_from(r.begin, r.count), {}, false});
    } else if (matrix.dtype() == DType::kNVFP4) {
      to.pieces.push_back({matrix.rows_from(r.begin, r.count), scales, false});
    } else if (aligned) {
      to.pieces.push_back({matrix.rows_from(r.begin, r.count),
                           scales.rows_from(r.begin / kScaleBlock, blocks(r.count)), false});
    } else {
      to.pieces.push_back({decode(matrix, scales, r, kept.emplace_back()), {}, false});
    }
  }
}

Tensor Weights::scales_of(const Tensor& matrix, const std::string& name, Kept& kept) const {
  if (matrix.dtype() == DType::kNVFP4) {  // dummy weights have no factor
    const auto factor = checkpoint_.take_if(name + "_scale_2", {1});
    return factor ? factor->reshape({1, 1}) : Tensor();
  }
  if (matrix.dtype() != DType::kF8E4M3) return {};
  const std::string scale_name = name + "_scale_inv";
  Shape shape{blocks(matrix[-2]), blocks(matrix[-1])};
  if (matrix.shape().rank() == 3) shape = {matrix[0], shape[0], shape[1]};
  const Tensor stored = checkpoint_.take(scale_name, shape);
  if (stored.dtype() == DType::kF32) return stored;
  Buffer& buffer =
      kept.emplace_back(Buffer::host(static_cast<std::size_t>(stored.elements()) * sizeof(float)));
  const Tensor out = buffer.view(DType::kF32, shape);
  for (std::int64_t i = 0; i < stored.elements(); ++i) out.data<float>()[i] = element(stored, i);
  return out;
}

ExpertLinear Weights::experts(int experts, std::vector<LinearPart> parts, std::string_view fused,
                              std::int64_t inputs, Tensor bias) const {
  HostMatrix matrix;
  matrix.experts = experts;
  Kept kept;
  // The e-th [outputs, inputs] of a stack.
  const auto slice = [](const Tensor& stack, std::int64_t e) {
    return stack.empty() ? stack : stack.rows_from(e, 1).reshape({stack[1], stack[2]});
  };
  const auto take_stack = [&](const std::string& name, std::int64_t outputs) {
    const std::string file_name = checkpoint_.has(name) ? name : name + ".weight";
    const Tensor whole = checkpoint_.take(file_name, {experts, outputs, inputs});
    return std::pair(whole, scales_of(whole, file_name, kept));
  };

  if (has(fused) || has(std::string(fused) + ".weight")) {
    std::int64_t outputs = 0;
    for (const LinearPart& part : parts) outputs += part.outputs;
    const auto [whole, scales] = take_stack(full(fused), outputs);
    for (int e = 0; e < experts; ++e)
      add_pieces(matrix, slice(whole, e), slice(scales, e), {{0, outputs}}, kept);
  } else if (has(parts[0].name) || has(parts[0].name + ".weight")) {
    std::vector<std::pair<Tensor, Tensor>> stacks;
    for (const LinearPart& part : parts) stacks.push_back(take_stack(full(part.name), part.outputs));
    for (int e = 0; e < experts; ++e) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        add_pieces(matrix, slice(stacks[i].first, e), slice(stacks[i].second, e), rows_of(parts[i]), kept);
      }
    }
  } else {
    for (int e = 0; e < experts; ++e) {
      for (const LinearPart& part : parts) {
        const std::string file_name = full(std::to_string(e) + "." + part.name + ".weight");
        const Tensor whole = checkpoint_.take(file_name, {part.outputs, inputs});
        add_pieces(matrix, whole, scales_of(whole, file_name, kept), rows_of(part), kept);
      }
    }
  }
  // One name for the same rows, whatever the layout.
  for (LinearPart& part : parts) part.name = full("*." + part.name);
  return {pack(matrix), bias, std::move(parts), fused.empty() ? "" : full(fused)};
}

}  // namespace strata
