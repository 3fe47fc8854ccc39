#include "ops/cpu/f8_blocks.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>

#include "base/error.h"
#include "ops/cpu/matrix_rows.h"
#include "ops/cpu/panel.h"

namespace strata::cpu {
namespace {

constexpr float kLargest = 448;

// Rows [begin, begin + count) of one row of blocks; whether all values are numbers.
bool quantise(const MatrixRows& rows, std::int64_t begin, std::int64_t count, const Tensor& codes,
              float* scales) {
  const std::int64_t inputs = rows.inputs();
  std::vector<float> values(static_cast<std::size_t>(count * inputs));
  const auto at = [&](std::int64_t r) { return values.data() + r * inputs; };
  std::vector<float> peaks(static_cast<std::size_t>(scale_blocks(inputs)));
  bool numbers = true;
  for (std::int64_t r = 0; r < count; ++r) {
    rows.read_f32(begin + r, at(r));
    for (std::int64_t k = 0; k < inputs; ++k) {
      float& peak = peaks[static_cast<std::size_t>(k / kScaleBlock)];
      peak = std::max(peak, std::fabs(at(r)[k]));
      numbers = numbers && std::isfinite(at(r)[k]);
    }
  }
  for (std::int64_t b = 0; b < scale_blocks(inputs); ++b) {
    const float scale = scales[b] = std::max(peaks[static_cast<std::size_t>(b)] / kLargest, FLT_MIN),
                inverse = 1 / scale;
    const std::int64_t end = std::min((b + 1) * kScaleBlock, inputs);
    for (std::int64_t r = 0; r < count; ++r) {
      auto* to = codes.row<std::uint8_t>(begin + r);
      for (std::int64_t k = b * kScaleBlock; k < end; ++k) to[k] = float_to_f8e4m3(at(r)[k] * inverse);
    }
  }
  return numbers;
}

}  // namespace

HostMatrix f8_blocks(const HostMatrix& matrix, ThreadPool& threads, std::vector<Buffer>& kept) {
  HostMatrix out;
  out.experts = matrix.experts;
  for (const HostPiece& piece : matrix.pieces) {
    if (piece.data.dtype() == DType::kF8E4M3) {
      out.pieces.push_back(piece);
      continue;
    }
    HostMatrix one;
    one.pieces.push_back(piece);
    const MatrixRows rows(one);
    const std::int64_t n = rows.rows(), blocks = scale_blocks(n), columns = scale_blocks(rows.inputs());
    const Tensor codes = kept.emplace_back(Buffer::host(bytes_of(DType::kF8E4M3, n * rows.inputs())))
                             .view(DType::kF8E4M3, {n, rows.inputs()});
    const Tensor scales = kept.emplace_back(Buffer::host(bytes_of(DType::kF32, blocks * columns)))
                              .view(DType::kF32, {blocks, columns});
    std::atomic<bool> numbers = true;
    threads.parallel_for(blocks, [&](std::int64_t b) {
      const std::int64_t begin = b * kScaleBlock;
      if (!quantise(rows, begin, std::min<std::int64_t>(kScaleBlock, n - begin), codes, scales.row<float>(b)))
        numbers = false;
    });
    if (!numbers)
      throw Error("a matrix of {} x {} holds values that are no numbers: f8_e4m3 cannot hold it", n,
                  rows.inputs());
    out.pieces.push_back({codes, scales, false});
  }
  return out;
}

}  // namespace strata::cpu
