// gather_rows, save_rows, concat: rows moved as they are.
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/op_checks.h"
#include "ops/cpu/row_blocks.h"

namespace strata {
namespace {

void copy_row(float* to, const float* from, std::int64_t n) {
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
}

}  // namespace

void CpuOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  const std::int64_t columns = x.row_size();
  check_f32("gather_rows", "x", x);
  check_matrix("gather_rows", "out", out, rows.elements(), columns);
  const auto* from = rows.data<std::int32_t>();
  for_row_blocks(*threads_, out.rows(), columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      STRATA_CHECK(from[i] >= 0 && from[i] < x.rows(), "gather_rows: row {} of {}", from[i], x.rows());
      copy_row(out.row<float>(i), x.row<float>(from[i]), columns);
    }
  });
}

void CpuOps::save_rows(Tensor x, Tensor saves, Tensor state) {
  if (saves.empty() || saves.elements() == 0) return;
  const std::int64_t columns = x.row_size();
  check_f32("save_rows", "x", x);
  check_matrix("save_rows", "state", state, state.rows(), columns);
  for (std::int64_t i = 0; i < saves.rows(); ++i) {
    const auto* save = saves.row<std::int32_t>(i);
    STRATA_CHECK(save[0] >= 0 && save[0] < x.rows(), "save_rows: row {} of {}", save[0], x.rows());
    STRATA_CHECK(save[1] >= 0 && save[1] < state.rows(), "save_rows: slot {} of {}", save[1], state.rows());
    copy_row(state.row<float>(save[1]), x.row<float>(save[0]), columns);
  }
}

void CpuOps::concat(Tensor out, Tensor a, Tensor b) {
  const std::int64_t left = a.row_size(), right = b.row_size();
  check_matrix("concat", "a", a, out.rows(), left);
  check_matrix("concat", "b", b, out.rows(), right);
  check_matrix("concat", "out", out, out.rows(), left + right);
  for_row_blocks(*threads_, out.rows(), left + right, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      copy_row(out.row<float>(i), a.row<float>(i), left);
      copy_row(out.row<float>(i) + left, b.row<float>(i), right);
    }
  });
}

}  // namespace strata
