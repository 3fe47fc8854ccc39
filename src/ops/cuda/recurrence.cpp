// causal_conv, gated_delta, delta_net and ssd: checks, and the choice of a kernel.
#include "ops/cuda/recurrence.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/op_checks.h"

namespace strata {
namespace {

static_assert(cuda::kRowsPerTape == kTapeRows);

bool uses_tapes(const Batch& batch, const Tensor& tape) { return !batch.tape.empty() && !tape.empty(); }

cuda::ConvView view_of(const ConvArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, channels = args.weight[0], width = args.weight[1];
  STRATA_CHECK((width >= 2 && width <= 5) || width == 10, "causal_conv: {} taps, 2 to 5 or 10 on CUDA", width);
  STRATA_CHECK(args.activation == Activation::kSilu || args.activation == Activation::kNone, "causal_conv: activation {}",
               static_cast<int>(args.activation));
  STRATA_CHECK(args.out.raw() != args.x.raw(), "causal_conv: out and x are both at {}", static_cast<const void*>(args.x.raw()));
  cuda::ConvView view;
  view.batch = cuda::view_of("causal_conv", batch);
  view.x = cuda::rows_of("causal_conv", "x", args.x, rows, channels);
  view.out = cuda::rows_of("causal_conv", "out", args.out, rows, channels);
  view.weight = cuda::vector_of("causal_conv", "weight", args.weight, channels * width);
  view.bias = cuda::vector_of("causal_conv", "bias", args.bias, channels, true);
  view.state = cuda::pool_of("causal_conv", "state", args.state, channels * (width - 1));
  if (uses_tapes(batch, args.tape)) {
    view.tape = cuda::pool_of("causal_conv", "tape", args.tape, kTapeRows * channels);
  } else {
    view.batch.tape = nullptr;
  }
  view.channels = static_cast<int>(channels);
  view.taps = static_cast<int>(width) - 1;
  view.wide = cuda::wide(view.x, channels) && cuda::wide(view.out, channels);
  view.activation = static_cast<int>(args.activation);
  return view;
}

cuda::GatedDeltaView view_of(const GatedDeltaArgs& args, const Batch& batch) {
  const std::int64_t rows = batch.shape.rows, heads = args.value_heads, keys = std::int64_t{args.key_heads} * args.key_dim,
                     width = 2 * keys + heads * args.value_dim;
  STRATA_CHECK(args.key_heads > 0 && heads % args.key_heads == 0, "gated_delta: {} value heads over {} key heads", heads,
               args.key_heads);
  cuda::GatedDeltaView view;
  view.batch = cuda::view_of("gated_delta", batch);
  view.qkv = cuda::rows_of("gated_delta", "qkv", args.qkv, rows, width);
  view.a = cuda::rows_of("gated_delta", "a", args.a, rows, heads);
  view.b = cuda::rows_of("gated_delta", "b", args.b, rows, heads);
  view.out = cuda::rows_of("gated_delta", "out", args.out, rows, heads * args.value_dim);
  view.a_log = cuda::vector_of("gated_delta", "a_log", args.a_log, heads);
  view.dt_bias = cuda::vector_of("gated_delta", "dt_bias", args.dt_bias, heads);
  view.state = cuda::pool_of("gated_delta", "state", args.state, heads * args.key_dim * args.value_dim);
  STRATA_CHECK(args.state.dtype() == DType::kF32, "gated_delta: state of {}, expected f32", name(args.state.dtype()));
  STRATA_CHECK(args.key_dim <= 320, "gated_delta: key_dim {}, at most 320 on CUDA", args.key_dim);
  view.key_heads = args.key_heads;
  view.heads = args.value_heads;
  view.key_dim = args.key_dim;
  view.value_dim = args.value_dim;
  view.wide = cuda::wide(view.qkv, 8);
  if (uses_tapes(batch, args.tape)) {
    view.tape = cuda::pool_of("gated_delta", "tape", args.tape, kTapeRows * (width + 2 * heads));
    view.tape_wide = cuda::wide(view.tape, 8) && heads % 2 == 0;
  } else {
    view.batch.tape = nullptr;
  }
  return view;
}

// Long runs in chunks on the tensor cores, short ones row by row; which one a sequence takes depends on its own run alone.
void run_gated_delta(const cuda::GatedDeltaView& view, CudaOps& ops) {
  if (view.key_dim != 128 || view.value_dim % 16 != 0 || view.state.stride % 4 != 0)
    return cuda::launch_gated_delta_plain(view, ops.stream());
  const auto chunkable = [](const cuda::Rows& r) { return r.elem == cuda::kElemBF16 && cuda::wide(r, 8); };
  const bool chunks = view.batch.longest_run > cuda::kStepRows && view.value_dim == 128 && chunkable(view.qkv) && chunkable(view.out);
  if (chunks) {
    const Scratch scratch(ops.arena());
    const auto bytes = static_cast<std::int64_t>(cuda::gated_delta_chunk_bytes(view));
    cuda::launch_gated_delta_chunk(view, ops.make({bytes}, DType::kU8).raw(), ops.stream());
    if (view.batch.sequences == 1) return;
  }
  cuda::launch_gated_delta_step(view, chunks ? cuda::kStepRows : view.batch.rows, ops.stream());
}

// Whether the one kernel of launch_delta_net takes it, and gains by it: with more sequences whole steps were slower for it
// (docs/gpu_speed.md). The bits are the same either way.
bool suits_one_kernel(const DeltaNetArgs& a, const cuda::DeltaNetView& v) {
  const cuda::ConvView& conv = v.conv;
  const cuda::GatedDeltaView& delta = v.delta;
  const std::int64_t V = delta.value_dim, group = delta.heads / delta.key_heads;
  const auto alike = [&](const cuda::Rows& r) { return r.elem == conv.x.elem && cuda::wide(r, 8); };
  const auto floats = [](const cuda::Rows& r, std::int64_t row) {
    return r.data == nullptr || (r.elem == cuda::kElemF32 && cuda::wide(r, 8) && row % 4 == 0);
  };
  const Tensor& x = a.norm.x;
  return conv.batch.longest_run <= cuda::kStepRows && conv.batch.sequences <= (conv.batch.longest_run == 1 ? 2 : 8) &&
         conv.taps == 3 && conv.bias == nullptr && delta.key_dim == 128 && (V == 32 || V == 64 || V == 128) &&
         group <= cuda::kMostCluster && a.conv.out.raw() == a.delta.qkv.raw() && a.delta.out.raw() == x.raw() &&
         x.shape().rank() == 3 && x[2] == V && !a.norm.gate_first && (a.norm.group == 0 || a.norm.group == V) &&
         a.norm.weight.elements() == V && alike(conv.x) && alike(conv.out) && alike(delta.out) && alike(v.gate) && alike(v.out) &&
         delta.a.elem == conv.x.elem && delta.b.elem == conv.x.elem && floats(conv.state, conv.channels) &&
         floats(conv.tape, conv.channels) && floats(delta.state, V) && floats(delta.tape, conv.channels + 2 * delta.heads) &&
         (conv.tape.data == nullptr) == (delta.tape.data == nullptr);
}

void write_tapes(cuda::TapeArgs args, cuda::Stream stream) {
  args.wide = cuda::wide(args.tape, args.width);
  for (int p = 0; p < 3; ++p) args.wide = args.wide && (args.widths[p] == 0 || cuda::wide(args.parts[p], args.widths[p]));
  cuda::launch_write_tapes(args, stream);
}

}  // namespace

void CudaOps::causal_conv(const ConvArgs& args, const Batch& batch) {
  if (batch.shape.rows > 0) cuda::launch_causal_conv(view_of(args, batch), stream_);
}

void CudaOps::gated_delta(const GatedDeltaArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const cuda::GatedDeltaView view = view_of(args, batch);
  run_gated_delta(view, *this);
  if (!uses_tapes(batch, args.tape)) return;
  const int width = static_cast<int>(args.qkv.row_size());
  write_tapes({.tape = view.tape,
               .width = width + 2 * view.heads,
               .parts = {view.qkv, view.a, view.b},
               .widths = {width, view.heads, view.heads},
               .batch = view.batch},
              stream_);
}

void CudaOps::delta_net(const DeltaNetArgs& a, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const std::int64_t rows = batch.shape.rows, values = std::int64_t{a.delta.value_heads} * a.delta.value_dim;
  if (a.norm.gate.empty()) return Ops::delta_net(a, batch);
  cuda::DeltaNetView view{.conv = view_of(a.conv, batch), .delta = view_of(a.delta, batch)};
  view.gate = cuda::rows_of("delta_net", "gate", a.norm.gate, rows, values);
  view.out = cuda::rows_of("delta_net", "out", a.norm.out, rows, values);
  if (!suits_one_kernel(a, view)) return Ops::delta_net(a, batch);
  view.weight = cuda::vector_of("delta_net", "weight", a.norm.weight, a.delta.value_dim);
  view.eps = a.norm.eps;
  view.activation = static_cast<int>(a.norm.activation);
  cuda::launch_delta_net(view, stream_);
}

void CudaOps::ssd(const SsdArgs& args, const Batch& batch) {
  if (batch.shape.rows == 0) return;
  const std::int64_t rows = batch.shape.rows, heads = args.heads, channels = heads * args.head_dim,
                     width = channels + 2 * std::int64_t{args.groups} * args.state_dim;
  STRATA_CHECK(args.groups > 0 && heads % args.groups == 0, "ssd: {} heads over {} groups", heads, args.groups);
  STRATA_CHECK(args.state_dim <= 256, "ssd: state_dim {}, at most 256 on CUDA", args.state_dim);
  cuda::SsdView view;
  view.batch = cuda::view_of("ssd", batch);
  view.xbc = cuda::rows_of("ssd", "xbc", args.xbc, rows, width);
  view.dt = cuda::rows_of("ssd", "dt", args.dt, rows, heads);
  view.out = cuda::rows_of("ssd", "out", args.out, rows, channels);
  view.a_log = cuda::vector_of("ssd", "a_log", args.a_log, heads);
  view.dt_bias = cuda::vector_of("ssd", "dt_bias", args.dt_bias, heads);
  view.d = cuda::vector_of("ssd", "d", args.d, heads);
  view.dt_min = args.dt_min;
  view.dt_max = args.dt_max;
  view.heads = args.heads;
  view.head_dim = args.head_dim;
  view.groups = args.groups;
  view.state_dim = args.state_dim;
  view.state = cuda::pool_of("ssd", "state", args.state, channels * args.state_dim);
  if (uses_tapes(batch, args.tape)) {
    view.tape = cuda::pool_of("ssd", "tape", args.tape, kTapeRows * (width + heads));
  } else {
    view.batch.tape = nullptr;
  }
  cuda::launch_ssd(view, stream_);
  if (!uses_tapes(batch, args.tape)) return;
  write_tapes({.tape = view.tape,
               .width = static_cast<int>(width + heads),
               .parts = {view.xbc, view.dt, {}},
               .widths = {static_cast<int>(width), view.heads, 0},
               .batch = view.batch},
              stream_);
}

}  // namespace strata
