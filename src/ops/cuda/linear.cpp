// linear and expert_linear: checks, and the choice of a kernel by element types and number of rows.
#include "ops/cuda/linear.h"

#include <algorithm>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/four_bit_pack.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/weight_view.h"

namespace strata {
namespace {

using cuda::kStreamRows;

bool on_tensor_cores(const cuda::LinearArgs& a) {
  return cuda::wide(a.x, a.w.inputs) && a.x.elem == cuda::kElemBF16 &&
         (a.w.data.elem == cuda::kElemBF16 || a.w.data.elem == cuda::kElemF8 || cuda::is_four_bit(a.w.data.elem));
}

// `args` with the rows of x, `rows` of them, as f8 planes: those there are, or made of scratch memory.
cuda::LinearArgs in_planes(const cuda::LinearArgs& args, std::int64_t rows, Arena& arena, cuda::Stream stream) {
  if (args.x_planes.data != nullptr) {
    cuda::LinearArgs f8 = args;
    f8.x = args.x_planes;
    return f8;
  }
  cuda::QuantiseArgs q;
  q.x = args.x;
  q.rows = rows;
  q.columns = static_cast<int>(args.w.inputs);
  q.padded = (q.columns + 127) / 128 * 128;
  q.count = args.planes;
  const Tensor planes = arena.make({rows, q.count * q.padded}, DType::kF8E4M3), scales = arena.make({rows}, DType::kF32);
  q.planes = reinterpret_cast<std::uint8_t*>(planes.raw());
  q.scales = scales.data<float>();
  cuda::launch_quantise_rows(q, stream);
  cuda::LinearArgs f8 = args;
  f8.x = {planes.raw(), planes.stride(), cuda::kElemF8};
  f8.x_scales = q.scales;
  return f8;
}

// `args` with the rows of x, `rows` of them, reordered in scratch memory as tiles of 4-bit weights take them.
cuda::LinearArgs in_order(const cuda::LinearArgs& args, std::int64_t rows, Arena& arena, cuda::Stream stream) {
  const std::int64_t padded = (args.w.inputs + cuda::kFourInputs - 1) / cuda::kFourInputs * cuda::kFourInputs;
  const Tensor ordered = arena.make({rows, padded}, DType::kBF16);
  cuda::LinearArgs out = args;
  out.x = {ordered.raw(), padded, cuda::kElemBF16};
  cuda::launch_reorder_rows({args.x, out.x, rows, static_cast<int>(args.w.inputs)}, stream);
  return out;
}

void run_tiles_four_bit(const cuda::LinearArgs& args, cuda::Stream stream) {
  switch (args.w.data.elem) {
    case cuda::kElemInt4: return cuda::launch_linear_tiles_int4(args, stream);
    case cuda::kElemInt4Min: return cuda::launch_linear_tiles_int4_min(args, stream);
    default: return cuda::launch_linear_tiles_fp4(args, stream);
  }
}

// x_rows: rows of x, which experts gather from.
void run(const cuda::LinearArgs& args, std::int64_t x_rows, Arena& arena, cuda::Stream stream) {
  if (args.rows == 0) return;
  // The stream kernel reads weights as fast as memory gives them for up to 16 rows; of experts it wastes time on finding
  // their few rows, unless there are very few.
  if (!on_tensor_cores(args)) {
    STRATA_CHECK(args.glu.outputs == 0, "linear: a GLU of rows of {} inputs, {} apart", args.w.inputs, args.x.stride);
    cuda::launch_linear_plain(args, stream);
  } else if (args.rows <= kStreamRows) {
    cuda::launch_linear_stream(args, stream);
  } else if (cuda::is_four_bit(args.w.data.elem)) {
    const Scratch scratch(arena);
    run_tiles_four_bit(in_order(args, x_rows, arena, stream), stream);
  } else if (args.w.data.elem == cuda::kElemF8) {
    const Scratch scratch(arena);
    cuda::launch_linear_tiles_f8(in_planes(args, x_rows, arena, stream), stream);
  } else {
    cuda::launch_linear_tiles(args, stream);
  }
}

// Kernels with a GLU: bf16 activations and tensor-core weights, gate and up rows that begin where tiles do.
bool fuses_glu(const Tensor& out, const Tensor& x, const Weight& w) {
  return w.parts.empty() && x.dtype() == DType::kBF16 && out.dtype() == DType::kBF16 &&
         cuda::wide(cuda::rows_of("linear", "x", x, x.rows(), w.inputs()), w.inputs()) &&
         (w.dtype == DType::kBF16 || w.dtype == DType::kF8E4M3 || cuda::is_four_bit_type(w.dtype)) && w.outputs() % 32 == 0;
}

}  // namespace

void CudaOps::linear(Tensor out, Tensor x, const Weight& w, Tensor bias) { product(out, x, w, bias, nullptr); }

void CudaOps::linear_glu(Tensor out, Tensor x, const Weight& w, Tensor bias, Activation activation, float limit) {
  if (!fuses_glu(out, x, w)) return Ops::linear_glu(out, x, w, bias, activation, limit);
  const cuda::GluArgs glu{w.outputs() / 2, static_cast<int>(activation), limit};
  product(out, x, w, bias, &glu);
}

void CudaOps::expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) {
  expert_product(out, x, routing, w, bias, nullptr);
}

void CudaOps::expert_linear_glu(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias, Activation activation,
                                float limit) {
  if (!fuses_glu(out, x, w)) return Ops::expert_linear_glu(out, x, routing, w, bias, activation, limit);
  const cuda::GluArgs glu{w.outputs() / 2, static_cast<int>(activation), limit};
  expert_product(out, x, routing, w, bias, &glu);
}

void CudaOps::product(Tensor out, Tensor x, const Weight& w, Tensor bias, const cuda::GluArgs* glu) {
  STRATA_CHECK(w.shape.rank() == 2, "linear: weight {} is not a matrix", w.shape.to_string());
  if (!w.parts.empty()) {
    cuda::check_extent("linear", "outputs", out.row_size(), w.outputs());
    const auto part_bias = [&](std::int64_t at, const Weight& part) { return bias.empty() ? bias : bias.rows_from(at, part.outputs()); };
    const Weight &above = w.parts[0], &below = w.parts[1];
    if (w.parts.size() == 2 && x.rows() <= kStreamRows && below.dtype == DType::kBF16 &&
        (above.dtype == DType::kF8E4M3 || cuda::is_four_bit_type(above.dtype))) {
      const std::int64_t n = above.outputs();
      const cuda::LinearArgs first = arguments("linear", out.columns(0, n), x, above, part_bias(0, above), nullptr, x.rows()),
                             second = arguments("linear", out.columns(n, below.outputs()), x, below, part_bias(n, below), nullptr, x.rows());
      if (on_tensor_cores(first)) return cuda::launch_linear_pair(first, second, stream_);
    }
    std::int64_t at = 0;
    for (const Weight& part : w.parts) {
      linear(out.columns(at, part.outputs()), x, part, part_bias(at, part));
      at += part.outputs();
    }
    return;
  }
  run(arguments("linear", out, x, w, bias, glu, x.rows()), x.rows(), arena(), stream_);
}

cuda::LinearArgs CudaOps::arguments(std::string_view op, Tensor out, Tensor x, const Weight& w, Tensor bias, const cuda::GluArgs* glu,
                                    std::int64_t rows) const {
  cuda::LinearArgs args;
  args.w = cuda::weight_of(op, w);
  args.rows = rows;
  args.x = cuda::rows_of(op, "x", x, x.rows(), args.w.inputs);
  if (glu != nullptr) args.glu = *glu;
  args.out = cuda::rows_of(op, "out", out, rows, glu != nullptr ? glu->outputs : args.w.outputs);
  args.bias = cuda::vector_of(op, "bias", bias, std::max(args.w.experts, 1) * args.w.outputs, true);
  args.processors = processors_;
  args.planes = options_.f8_activations ? 1 : 2;
  if (planes_.x == args.x.data && x.rows() > 0) {
    cuda::check_extent(op, "rows in planes", planes_.planes.rows(), x.rows());
    args.x_planes = {planes_.planes.raw(), planes_.planes.stride(), cuda::kElemF8};
    args.x_scales = planes_.scales.data<float>();
  }
  return args;
}

void CudaOps::expert_product(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias, const cuda::GluArgs* glu) {
  const std::int64_t experts = w.experts(), rows = routing.expert.rows(), entries = routing.order.elements();
  STRATA_CHECK(experts > 0, "expert_linear: weight {} has no experts", w.shape.to_string());
  cuda::check_extent("expert_linear", "experts of the routing", routing.first.elements() - 1, experts);
  STRATA_CHECK(x.rows() == rows || x.rows() == entries, "expert_linear: rows of x {}, routing {} or {}", x.rows(), rows, entries);
  cuda::LinearArgs args = arguments("expert_linear", out, x, w, bias, glu, entries);
  args.order = cuda::ints_of("expert_linear", "order", routing.order);
  args.first = cuda::ints_of("expert_linear", "first", routing.first);
  args.divisor = x.rows() == entries ? 1 : static_cast<int>(routing.expert.row_size());
  args.longest = static_cast<int>(rows);
  run(args, x.rows(), arena(), stream_);
}

}  // namespace strata
