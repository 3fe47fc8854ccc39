// mix_streams, inject_streams and gate_streams.
#include "ops/cuda/streams.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {
namespace {

cuda::StreamsView view_of(std::string_view op, std::int64_t rows, std::int64_t width, std::int64_t dim) {
  STRATA_CHECK(dim > 0 && width % dim == 0, "{}: rows of {} in streams of {}", op, width, dim);
  cuda::StreamsView view;
  view.rows = rows;
  view.streams = static_cast<int>(width / dim);
  view.dim = static_cast<int>(dim);
  return view;
}

}  // namespace

void CudaOps::mix_streams(Tensor out, Tensor x, Tensor mix) {
  const std::int64_t rows = out.rows(), width = x.row_size();
  cuda::StreamsView view = view_of("mix_streams", rows, width, out.row_size());
  view.out = cuda::rows_of("mix_streams", "out", out, rows, view.dim);
  view.x = cuda::rows_of("mix_streams", "x", x, rows, width);
  view.weight = cuda::rows_of("mix_streams", "mix", mix, rows, width);
  cuda::launch_mix_streams(view, stream_);
}

void CudaOps::inject_streams(Tensor x, Tensor delta, Tensor weight) {
  const std::int64_t rows = x.rows(), width = x.row_size();
  cuda::StreamsView view = view_of("inject_streams", rows, width, delta.row_size());
  view.x = cuda::rows_of("inject_streams", "x", x, rows, width);
  view.delta = cuda::rows_of("inject_streams", "delta", delta, rows, view.dim);
  view.weight = cuda::rows_of("inject_streams", "weight", weight, rows, view.streams);
  cuda::launch_inject_streams(view, stream_);
}

void CudaOps::gate_streams(Tensor out, Tensor key, Tensor query, Tensor value) {
  const std::int64_t rows = out.rows(), width = out.row_size();
  cuda::StreamsView view = view_of("gate_streams", rows, width, value.row_size());
  view.out = cuda::rows_of("gate_streams", "out", out, rows, width);
  view.key = cuda::rows_of("gate_streams", "key", key, rows, width);
  view.query = cuda::rows_of("gate_streams", "query", query, rows, width);
  view.delta = cuda::rows_of("gate_streams", "value", value, rows, view.dim);
  cuda::launch_gate_streams(view, stream_);
}

}  // namespace strata
