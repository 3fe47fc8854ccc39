// prepare_qkv.
#include "ops/cuda/prepare_qkv.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {
namespace {

cuda::HeadsView heads_of(std::string_view what, const Tensor& x, const Tensor& norm, const Tensor& pages, std::int64_t rows) {
  cuda::HeadsView part;
  if (x.empty()) return part;
  STRATA_CHECK(x.shape().rank() == 3, "prepare_qkv: {} has rank {}, expected 3", what, x.shape().rank());
  part.x = cuda::rows_of("prepare_qkv", what, x, rows, x[1] * x[2]);
  part.heads = static_cast<int>(x[1]);
  part.dim = static_cast<int>(x[2]);
  part.norm = cuda::vector_of("prepare_qkv", what, norm, x[2], true);
  if (!pages.empty()) {
    cuda::check_extent("prepare_qkv", "page tokens", pages[1], kPageTokens);
    cuda::check_extent("prepare_qkv", what, pages[2] * pages[3], x[1] * x[2]);
    part.pages = cuda::pool_of("prepare_qkv", what, pages, kPageTokens * x[1] * x[2]);
  }
  part.wide = cuda::wide(part.x, part.dim) && (part.pages.data == nullptr || cuda::wide(part.pages, part.dim));
  return part;
}

}  // namespace

void CudaOps::prepare_qkv(const QkvArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const std::int64_t rows = batch.shape.rows;
  cuda::PrepareView view;
  view.batch = cuda::view_of("prepare_qkv", batch);
  view.eps = args.eps;
  view.parts[0] = heads_of("q", args.q, args.q_norm, {}, rows);
  view.parts[1] = heads_of("k", args.k, args.k_norm, args.kv.k, rows);
  view.parts[2] = heads_of("v", args.v, args.v_norm, args.kv.v, rows);
  if (args.rope != nullptr) {
    const std::int64_t pairs = args.rope->inv_freq.elements();
    view.inv_freq = cuda::vector_of("prepare_qkv", "inv_freq", args.rope->inv_freq, pairs);
    view.pairs = static_cast<int>(pairs);
    view.rope_scale = args.rope->scale;
    view.interleaved = args.rope->interleaved;
    view.offset = args.rope->offset;
    view.query_beta = args.rope->query_beta;
    view.query_span = args.rope->query_span;
    view.mrope_interleaved = args.rope->mrope_interleaved;
    for (std::size_t i = 0; i < 3; ++i) view.section[i] = args.rope->mrope_section[i];
    for (cuda::HeadsView* part : {&view.parts[0], &view.parts[1]}) {
      part->rotate = part->heads > 0;
      STRATA_CHECK(part->heads == 0 || view.offset + 2 * pairs <= part->dim, "prepare_qkv: {} rotated channels from {} on, of {}",
                   2 * pairs, view.offset, part->dim);
    }
    cuda::check_extent("prepare_qkv", "positions", batch.positions[-1], rows);
  }
  // q with nothing to do stays as it is.
  if (view.parts[0].norm == nullptr && !view.parts[0].rotate) view.parts[0] = {};
  cuda::launch_prepare_qkv(view, stream_);
}

}  // namespace strata
