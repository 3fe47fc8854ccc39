// store_index, select_blocks and ngram_rows.
#include "ops/cuda/sparse.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {

void CudaOps::store_index(const IndexArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  cuda::IndexView view;
  view.dim = static_cast<int>(args.k.row_size());
  view.pairs = static_cast<int>(args.rope->inv_freq.elements());
  STRATA_CHECK(args.block >= 1 && kPageTokens % args.block == 0, "store_index: blocks of {} in pages of {}", args.block, kPageTokens);
  STRATA_CHECK(view.dim <= 256, "store_index: index_dim {}, at most 256 on CUDA", view.dim);
  STRATA_CHECK(2 * view.pairs <= view.dim && !args.rope->interleaved, "store_index: {} rotated channels of {}", 2 * view.pairs, view.dim);
  view.batch = cuda::view_of("store_index", batch);
  view.k = cuda::rows_of("store_index", "k", args.k, batch.shape.rows, view.dim);
  view.norm = cuda::vector_of("store_index", "norm", args.norm, view.dim);
  view.inv_freq = cuda::vector_of("store_index", "inv_freq", args.rope->inv_freq, view.pairs);
  view.rope_scale = args.rope->scale;
  view.eps = args.eps;
  view.block = args.block;
  view.pages = cuda::pool_of("store_index", "index", args.kv.index, std::int64_t{kPageTokens} * view.dim);
  cuda::launch_store_index(view, stream_);
}

void CudaOps::select_blocks(const SelectArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const std::int64_t rows = batch.shape.rows;
  cuda::SelectView view;
  view.heads = static_cast<int>(args.q[1]);
  view.dim = static_cast<int>(args.q[2]);
  view.block = args.block;
  view.most = static_cast<int>(args.blocks.row_size());
  view.batch = cuda::view_of("select_blocks", batch);
  view.q = cuda::rows_of("select_blocks", "q", args.q, rows, std::int64_t{view.heads} * view.dim);
  cuda::check_extent("select_blocks", "rows of blocks", args.blocks.rows(), rows);
  view.blocks = const_cast<int*>(cuda::ints_of("select_blocks", "blocks", args.blocks));
  view.pages = cuda::pool_of("select_blocks", "index", args.kv.index, std::int64_t{kPageTokens} * view.dim);
  const Scratch scratch(arena());
  const Tensor scores = make({rows, batch.shape.longest_context / args.block + 1}, DType::kF32);
  view.scores = scores.data<float>();
  view.score_stride = scores.stride();
  cuda::launch_select_blocks(view, stream_);
}

void CudaOps::ngram_rows(const NgramArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const int hashes = (args.n - 1) * args.heads;
  STRATA_CHECK(args.n >= 2 && args.n <= 4 && hashes <= 32, "ngram_rows: {} hashes of up to {} tokens", hashes, args.n);
  STRATA_CHECK(args.out.rows() == batch.shape.rows && args.out.row_size() == hashes, "ngram_rows: out {}", args.out.shape().to_string());
  cuda::NgramView view;
  view.out = const_cast<int*>(cuda::ints_of("ngram_rows", "out", args.out));
  view.n = args.n;
  view.heads = args.heads;
  view.end_token = args.end_token;
  std::copy(args.multipliers.begin(), args.multipliers.end(), view.multipliers);
  std::copy(args.sizes.begin(), args.sizes.end(), view.sizes);
  std::copy(args.offsets.begin(), args.offsets.end(), view.offsets);
  view.batch = cuda::view_of("ngram_rows", batch);
  view.state = cuda::pool_of("ngram_rows", "state", args.state, args.n - 1);
  STRATA_CHECK(args.state.dtype() == DType::kF32, "ngram_rows: state of {}, expected f32", name(args.state.dtype()));
  if (!batch.tape.empty() && !args.tape.empty()) {
    view.tape = cuda::pool_of("ngram_rows", "tape", args.tape, kTapeRows);
    STRATA_CHECK(args.tape.dtype() == DType::kF32, "ngram_rows: tape of {}, expected f32", name(args.tape.dtype()));
  } else {
    view.batch.tape = nullptr;
  }
  cuda::launch_ngram_rows(view, stream_);
}

}  // namespace strata
