// load: packs a matrix into panels (panel.h), in its own type or in the one asked for.
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/f8_blocks.h"
#include "ops/cpu/matrix_rows.h"
#include "ops/cpu/quant_layout.h"
#include "ops/cpu/quant_pack.h"

namespace strata {
namespace {

using cpu::kPanelOutputs;
using cpu::MatrixRows;

// Row `row` as elements of `type`.
void read_as(const MatrixRows& rows, std::int64_t row, DType type, std::byte* to, float* scratch) {
  if (rows.stored_as(type)) return rows.read_raw(row, to);
  rows.read_f32(row, scratch);
  if (is_block_type(type)) return quantize_row(type, scratch, rows.inputs(), to);
  for (std::int64_t k = 0; k < rows.inputs(); ++k) {
    if (type == DType::kF32) {
      std::memcpy(to + k * 4, scratch + k, 4);
    } else {
      const std::uint16_t bits =
          type == DType::kBF16 ? to_bfloat16(scratch[k]).bits : float_to_half(scratch[k]);
      std::memcpy(to + k * 2, &bits, 2);
    }
  }
}

template <typename T>
void interleave(const std::byte* from, DType type, std::int64_t inputs, int lane, std::byte* panel) {
  for (std::int64_t k = 0; k < inputs; ++k) {
    std::memcpy(panel + static_cast<std::size_t>(cpu::panel_index(type, k, lane)) * sizeof(T),
                from + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
  }
}

// Rows [row, row + count) become one panel; what lies beyond stays zero.
void pack_panel(const MatrixRows& rows, std::int64_t row, int count, DType type, std::byte* panel,
                float* scales) {
  const std::size_t stride = bytes_of(type, rows.inputs());
  std::vector<float> scratch(static_cast<std::size_t>(rows.inputs()));
  std::vector<std::byte> elements(stride * static_cast<std::size_t>(count));
  for (int lane = 0; lane < count; ++lane) {
    std::byte* to = elements.data() + static_cast<std::size_t>(lane) * stride;
    read_as(rows, row + lane, type, to, scratch.data());
    if (is_block_type(type)) continue;
    switch (info(type).block_bytes) {
      case 1:
        interleave<std::uint8_t>(to, type, rows.inputs(), lane, panel);
        break;
      case 2:
        interleave<std::uint16_t>(to, type, rows.inputs(), lane, panel);
        break;
      default:
        interleave<float>(to, type, rows.inputs(), lane, panel);
        break;
    }
    for (std::int64_t b = 0; scales != nullptr && b < cpu::scale_blocks(rows.inputs()); ++b) {
      scales[b * kPanelOutputs + lane] = rows.scale(row + lane, b * cpu::kScaleBlock);
    }
  }
  if (is_block_type(type)) {
    cpu::pack_quant_panel(type, elements.data(), static_cast<std::int64_t>(stride), count, rows.inputs(),
                          panel);
  }
}

// The type to keep a matrix in: NVFP4, which products do not know here, as bf16.
DType packed_type(const MatrixRows& rows, std::optional<DType> wanted) {
  const DType stored = rows.dtype(), type = wanted.value_or(stored == DType::kF64     ? DType::kF32
                                                            : stored == DType::kNVFP4 ? DType::kBF16
                                                                                      : stored);
  const bool fp8 = type == DType::kF8E4M3 && rows.stored_as(type);
  const bool plain = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
  if (type == DType::kNVFP4 || (!fp8 && !plain && !is_block_type(type))) {
    throw Error("weights of type {} cannot be kept as {} on the CPU", name(stored), name(type));
  }
  if (rows.inputs() % info(type).block_elements != 0) {
    throw Error("{} inputs are not whole {} blocks", rows.inputs(), name(type));
  }
  return type;
}

// A plain matrix cut where the type of its pieces changes: quantised files give matrices that are fused
// different types.
std::vector<HostMatrix> parts_by_type(const HostMatrix& matrix) {
  std::vector<HostMatrix> parts;
  if (matrix.experts != 0) return parts;
  for (const HostPiece& piece : matrix.pieces) {
    if (parts.empty() || parts.back().pieces.back().data.dtype() != piece.data.dtype()) parts.emplace_back();
    parts.back().pieces.push_back(piece);
  }
  return parts;
}

}  // namespace

Weight CpuOps::load(const HostMatrix& matrix, std::optional<DType> type) {
  const MatrixRows rows(matrix);
  if (type == DType::kF8E4M3 && !rows.stored_as(*type)) {
    std::vector<Buffer> made;
    return load(cpu::f8_blocks(matrix, *threads_, made), type);
  }
  Weight w;
  if (const std::vector<HostMatrix> parts = parts_by_type(matrix); !type && parts.size() > 1) {
    w.dtype = rows.dtype();
    w.shape = {rows.rows(), rows.inputs()};
    for (const HostMatrix& part : parts) w.parts.push_back(load(part, {}));
    return w;
  }
  w.dtype = packed_type(rows, type);
  const std::int64_t experts = matrix.experts == 0 ? 1 : matrix.experts, outputs = rows.rows() / experts;
  w.shape = matrix.experts == 0 ? Shape{outputs, rows.inputs()} : Shape{experts, outputs, rows.inputs()};

  const std::int64_t panels = cpu::panels_of(outputs);
  const std::size_t bytes = cpu::packed_panel_bytes(w.dtype, rows.inputs()),
                    all = bytes * static_cast<std::size_t>(experts * panels);
  const std::int64_t scales =
      w.dtype == DType::kF8E4M3 ? cpu::scale_blocks(rows.inputs()) * kPanelOutputs : 0;
  w.storage = weight_heap_.allocate(all + static_cast<std::size_t>(experts * panels * scales) * sizeof(float));
  w.data = w.storage.view(DType::kU8, {static_cast<std::int64_t>(all)});
  if (scales > 0) w.scales = w.storage.view(DType::kF32, {experts * panels, scales}, all);

  threads_->parallel_for(experts * panels, [&](std::int64_t i) {
    const std::int64_t expert = i / panels, first = i % panels * kPanelOutputs;
    const auto count = static_cast<int>(std::min<std::int64_t>(kPanelOutputs, outputs - first));
    pack_panel(rows, expert * outputs + first, count, w.dtype,
               w.data.raw() + static_cast<std::size_t>(i) * bytes,
               scales > 0 ? w.scales.row<float>(i) : nullptr);
  });
  return w;
}

}  // namespace strata
