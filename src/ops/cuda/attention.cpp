// attention: checks, and the choice of a kernel.
#include "ops/cuda/attention.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {
namespace {

bool suits_tiles(const cuda::AttentionView& a, bool has_values) {
  const auto bf16 = [](const cuda::Rows& r) { return r.elem == cuda::kElemBF16; };
  return has_values && bf16(a.q) && bf16(a.out) && bf16(a.k) && bf16(a.v) && a.head_dim == a.value_dim &&
         (a.head_dim == 64 || a.head_dim == 128 || a.head_dim == 256) && a.heads / a.kv_heads <= 64 &&
         (a.gate.data == nullptr || (bf16(a.gate) && cuda::wide(a.gate, a.head_dim))) && cuda::wide(a.q, a.head_dim) &&
         cuda::wide(a.k, a.head_dim) && cuda::wide(a.v, a.head_dim) && cuda::wide(a.out, a.head_dim) && a.scale > 0;
}

}  // namespace

void CudaOps::attention(const AttentionArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const std::int64_t rows = batch.shape.rows;
  const Tensor &q = args.q, &out = args.out, &k = args.kv.k, &v = args.kv.v;
  STRATA_CHECK(q.shape().rank() == 3 && out.shape().rank() == 3, "attention: q has rank {}, out {}, expected 3", q.shape().rank(),
               out.shape().rank());
  cuda::AttentionView view;
  view.batch = cuda::view_of("attention", batch);
  view.heads = static_cast<int>(q[1]);
  view.head_dim = static_cast<int>(q[2]);
  view.value_dim = static_cast<int>(out[2]);
  view.kv_heads = static_cast<int>(k[2]);
  STRATA_CHECK(view.kv_heads > 0 && view.heads % view.kv_heads == 0, "attention: {} heads over {} kv heads", view.heads,
               view.kv_heads);
  cuda::check_extent("attention", "page tokens", k[1], kPageTokens);
  cuda::check_extent("attention", "head_dim of k", k[3], view.head_dim);
  STRATA_CHECK(view.value_dim <= 512, "attention: value_dim {}, at most 512 on CUDA", view.value_dim);
  view.q = cuda::rows_of("attention", "q", q, rows, std::int64_t{view.heads} * view.head_dim);
  view.out = cuda::rows_of("attention", "out", out, rows, std::int64_t{view.heads} * view.value_dim);
  view.k = cuda::pool_of("attention", "k", k, std::int64_t{kPageTokens} * view.kv_heads * view.head_dim);
  if (v.empty()) {
    STRATA_CHECK(view.value_dim <= view.head_dim, "attention: values of {} in keys of {}", view.value_dim, view.head_dim);
    view.v = view.k;
    view.value_stride = view.head_dim;
  } else {
    cuda::check_extent("attention", "value_dim of v", v[3], view.value_dim);
    view.v = cuda::pool_of("attention", "v", v, std::int64_t{kPageTokens} * view.kv_heads * view.value_dim);
    view.value_stride = view.value_dim;
  }
  if (!args.gate.empty())
    view.gate = cuda::rows_of("attention", "gate", args.gate, rows, std::int64_t{view.heads} * view.value_dim);
  view.sinks = cuda::vector_of("attention", "sinks", args.sinks, view.heads, true);
  view.scale = args.scale;
  view.softcap = args.softcap;
  view.window = args.window;
  view.skip = args.skip;
  if (!args.blocks.empty()) {
    STRATA_CHECK(args.blocks.rows() == rows && args.block >= 1, "attention: blocks {} of {} tokens", args.blocks.shape().to_string(), args.block);
    view.blocks = cuda::ints_of("attention", "blocks", args.blocks);
    view.most_blocks = static_cast<int>(args.blocks.row_size());
    view.block = args.block;
  }
  view.wide = cuda::wide(view.k, view.head_dim);
  view.pages = k[0];
  if (view.blocks != nullptr || !suits_tiles(view, !v.empty())) return cuda::launch_attention_plain(view, stream_);
  const Scratch scratch(arena());
  view.splits = cuda::attention_splits(view, processors_);
  if (view.splits > 1) {
    view.partial = make({view.splits, rows, view.heads, view.value_dim}, DType::kF32).data<float>();
    view.partial_scale = reinterpret_cast<float2*>(make({view.splits, rows, view.heads, 2}, DType::kF32).raw());
  }
  cuda::launch_attention_tiles(view, stream_);
}

}  // namespace strata
