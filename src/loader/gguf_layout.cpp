#include "loader/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "tensor/quant.h"

namespace strata {
namespace {

using Math = TensorLayout::Math;

// The value of a published element that the file holds as `x`.
float undo(Math math, float x) {
  switch (math) {
    case Math::kOnePlus: return x - 1;
    case Math::kMinusExp: return std::log(-x);
    default: return x;
  }
}

float apply(Math math, float x) {
  switch (math) {
    case Math::kOnePlus: return x + 1;
    case Math::kMinusExp: return -std::exp(x);
    default: return x;
  }
}

// A type of blocks of 32 that holds runs of 32 of `type` with nothing or next to nothing lost.
DType finer_type(DType type) {
  if (type == DType::kQ4_K) return DType::kQ4_1;
  return type == DType::kQ5_K ? DType::kQ5_1 : DType::kQ8_0;
}

DType type_after(const SourceTensor& t, const TensorLayout& l) {
  if (l.math != Math::kNone || l.runs.empty()) return t.dtype;
  const int block = info(t.dtype).block_elements;
  if (l.run % block == 0) return t.dtype;
  return l.run % 32 == 0 ? finer_type(t.dtype) : DType::kF32;
}

// Elements [32 group, ..) of a super-block as a block of `to`, code by code: only scales are rounded (to f16).
void put_run(const BlockCodes& codes, std::size_t group, DType to, std::byte* block) {
  const auto half = [&](float x, std::byte* at) {
    const std::uint16_t bits = float_to_half(x);
    std::memcpy(at, &bits, sizeof bits);
  };
  half(codes.scale[group], block);
  const auto code = [&](std::size_t i) { return static_cast<int>(codes.code[group * 32 + i]); };
  if (to == DType::kQ8_0) {
    std::memcpy(block + 2, codes.code.data() + group * 32, 32);
    return;
  }
  half(codes.offset[group], block + 2);
  std::byte* low = block + (to == DType::kQ5_1 ? 8 : 4);
  std::uint32_t high = 0;
  for (std::size_t i = 0; i < 32; ++i) high |= static_cast<std::uint32_t>(code(i) >> 4) << i;
  if (to == DType::kQ5_1) std::memcpy(block + 4, &high, sizeof high);
  for (std::size_t i = 0; i < 16; ++i) low[i] = static_cast<std::byte>((code(i) & 15) | (code(i + 16) & 15) << 4);
}

// The same row in the finer type `to`.
void refine(DType type, const std::byte* from, std::int64_t count, DType to, std::byte* out) {
  if (quant_group(type) == 32) {
    const DTypeInfo& in = info(type);
    BlockCodes codes;
    for (std::int64_t b = 0; b < count / in.block_elements; ++b) {
      unpack_block(type, from + b * in.block_bytes, codes);
      for (int g = 0; g < in.block_elements / 32; ++g, out += info(to).block_bytes) put_run(codes, static_cast<std::size_t>(g), to, out);
    }
    return;
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize_row(type, from, count, values.data());
  quantize_row(to, values.data(), count, out);
}

// Runs of a row in their published order; all of one type.
void order_runs(const TensorLayout& l, DType type, const std::byte* from, std::byte* to) {
  const std::size_t bytes = bytes_of(type, l.run);
  for (std::size_t i = 0; i < l.runs.size(); ++i) std::memcpy(to + static_cast<std::size_t>(l.runs[i]) * bytes, from + i * bytes, bytes);
}

void convert_row(const TensorLayout& l, DType stored, DType given, const std::byte* from, std::int64_t count, std::byte* to) {
  if (l.math != Math::kNone) {
    for (std::int64_t i = 0; i < count; ++i) {
      float x;
      std::memcpy(&x, from + i * 4, 4);
      x = undo(l.math, x);
      std::memcpy(to + i * 4, &x, 4);
    }
  } else if (l.runs.empty()) {
    std::memcpy(to, from, bytes_of(stored, count));
  } else if (stored == given) {
    order_runs(l, stored, from, to);
  } else {
    std::vector<std::byte> same(bytes_of(given, count));
    if (given == DType::kF32) {
      dequantize_row(stored, from, count, reinterpret_cast<float*>(same.data()));
    } else {
      refine(stored, from, count, given, same.data());
    }
    order_runs(l, given, same.data(), to);
  }
}

}  // namespace

std::int64_t layout_rows(std::span<const std::int64_t> extents) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < std::max<std::size_t>(extents.size(), 2); ++i) rows *= extents[i];
  return rows;
}

void to_published(SourceTensor& t, std::string published_name, TensorLayout l) {
  const auto fail = [&](const std::string& why) { return Error("{}: tensor {} {}: {}", t.file, t.name, to_string(t.extents), why); };
  const std::int64_t rows = layout_rows(t.extents), count = t.extents.size() == 1 ? 1 : t.extents.back();
  if (!l.rows.empty() && static_cast<std::int64_t>(l.rows.size()) != rows) throw fail(fmt::format("expected {} rows", l.rows.size()));
  if (!l.runs.empty() && static_cast<std::int64_t>(l.runs.size()) * l.run != count) {
    throw fail(fmt::format("expected rows of {} heads of {}", l.runs.size(), l.run));
  }
  if (l.math != Math::kNone && t.dtype != DType::kF32) throw fail(fmt::format("expected f32, found {}", name(t.dtype)));
  if (l.runs.empty() && !l.rows.empty() && t.extents.size() == 1 && is_block_type(t.dtype)) throw fail("a vector of blocks");
  if (l.form == TensorLayout::Form::kConv) {
    if (t.extents.size() != 2) throw fail("expected a matrix");
    t.extents.insert(t.extents.begin() + 1, 1);
  } else if (l.form == TensorLayout::Form::kRow && t.extents.size() == 1) {
    t.extents.insert(t.extents.begin(), 1);
  } else if (l.form == TensorLayout::Form::kFlat) {
    if (is_block_type(t.dtype)) throw fail(fmt::format("expected numbers, found {}", name(t.dtype)));
    t.extents = {std::accumulate(t.extents.begin(), t.extents.end(), std::int64_t{1}, std::multiplies<>())};
  }
  t.name = std::move(published_name);
  if (l.same_bytes()) return;
  const DType stored = t.dtype;
  t.dtype = type_after(t, l);
  t.convert = [layout = std::move(l), stored, rows, count](const SourceTensor& self, std::byte* to) {
    const std::size_t in = bytes_of(stored, count), out = bytes_of(self.dtype, count);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t published = layout.rows.empty() ? i : layout.rows[static_cast<std::size_t>(i)];
      convert_row(layout, stored, self.dtype, self.bytes.data() + static_cast<std::size_t>(i) * in, count,
                  to + static_cast<std::size_t>(published) * out);
    }
  };
}

void to_file_row(const TensorLayout& l, const float* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = l.runs.empty() ? i : l.runs[static_cast<std::size_t>(i / l.run)] * l.run + i % l.run;
    to[i] = apply(l.math, from[at]);
  }
}

}  // namespace strata
