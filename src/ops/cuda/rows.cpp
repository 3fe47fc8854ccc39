// embed, gather_rows, save_rows, concat.
#include "ops/cuda/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/weight_view.h"

namespace strata {

void CudaOps::embed(Tensor out, Tensor tokens, const Weight& table, float scale) {
  const cuda::WeightView w = cuda::weight_of("embed", table);
  cuda::MoveArgs args;
  args.rows = tokens.elements();
  args.columns = w.inputs;
  args.from = w.data;
  args.to = cuda::rows_of("embed", "out", out, args.rows, args.columns);
  args.from_rows = cuda::ints_of("embed", "tokens", tokens);
  args.scale = scale;
  args.scales = w.scales;
  args.scale_rows = w.scale_rows;
  args.scale_columns = w.scale_columns;
  args.wide = w.data.elem <= cuda::kElemBF16 && cuda::wide(args.from, args.columns) && cuda::wide(args.to, args.columns);
  cuda::launch_move(args, stream_);
}

void CudaOps::gather_rows(Tensor out, Tensor x, Tensor rows) {
  cuda::MoveArgs args;
  args.rows = rows.elements();
  args.columns = x.row_size();
  args.from = cuda::rows_of("gather_rows", "x", x, x.rows(), args.columns);
  args.to = cuda::rows_of("gather_rows", "out", out, args.rows, args.columns);
  args.from_rows = cuda::ints_of("gather_rows", "rows", rows);
  args.wide = cuda::wide(args.from, args.columns) && cuda::wide(args.to, args.columns);
  cuda::launch_move(args, stream_);
}

void CudaOps::save_rows(Tensor x, Tensor saves, Tensor state) {
  if (saves.empty() || saves.elements() == 0) return;
  cuda::MoveArgs args;
  args.rows = saves.rows();
  args.columns = x.row_size();
  args.from = cuda::rows_of("save_rows", "x", x, x.rows(), args.columns);
  args.to = cuda::pool_of("save_rows", "state", state, args.columns);
  args.from_rows = cuda::ints_of("save_rows", "saves", saves);
  args.to_rows = args.from_rows + 1;
  args.step = 2;
  args.wide = cuda::wide(args.from, args.columns) && cuda::wide(args.to, args.columns);
  cuda::launch_move(args, stream_);
}

void CudaOps::concat(Tensor out, Tensor a, Tensor b) {
  const std::int64_t left = a.row_size(), right = b.row_size();
  cuda::MoveArgs args;
  args.rows = out.rows();
  args.to = cuda::rows_of("concat", "out", out, args.rows, left + right);
  args.from = cuda::rows_of("concat", "a", a, args.rows, left);
  args.columns = left;
  args.wide = cuda::wide(args.from, left) && cuda::wide(args.to, left);
  cuda::launch_move(args, stream_);
  args.from = cuda::rows_of("concat", "b", b, args.rows, right);
  args.columns = right;
  args.to_column = left;
  args.wide = left % 8 == 0 && cuda::wide(args.from, right) && cuda::wide(args.to, right);
  cuda::launch_move(args, stream_);
}

}  // namespace strata
