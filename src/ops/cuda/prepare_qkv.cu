// prepare_qkv: a warp per row and head normalises, rotates, and stores what belongs in the pages.
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/pages.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/prepare_qkv.h"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;

// The position stream of channel pair i: blocks of the sections, or THWTHW... as in Qwen3-VL.
__device__ int stream_of(const PrepareView& a, int i) {
  if (a.section[0] + a.section[1] + a.section[2] == 0) return 0;
  if (a.mrope_interleaved) {
    const int stream = i % 3;
    return stream != 0 && i < 3 * a.section[stream] ? stream : 0;
  }
  if (i < a.section[0]) return 0;
  return i < a.section[0] + a.section[1] ? 1 : 2;
}

__global__ void __launch_bounds__(kWarps * 32) prepare_kernel(PrepareView a, int dim_most) {
  begin_kernel();
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32;
  float* x = shared + threadIdx.x / 32 * dim_most;
  const int heads = a.parts[0].heads + a.parts[1].heads + a.parts[2].heads;
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= std::int64_t{a.batch.rows} * heads) return;
  const auto t = static_cast<int>(item / heads);
  int h = static_cast<int>(item - std::int64_t{t} * heads), which = 0;
  while (h >= a.parts[which].heads) h -= a.parts[which++].heads;
  const HeadsView& part = a.parts[which];
  const std::int64_t base = std::int64_t{h} * part.dim;

  // x by eight channels, 16-byte aligned there and here; n < 8 only at the end of a head.
  const Rows own{x, 0, kElemF32};
  float sum = 0;
  for (int i = lane * 8; i < part.dim; i += 256) {
    const int n = min(8, part.dim - i);
    const Eight e = load8(part.x, t, base + i, n, part.wide);
    store8(own, 0, i, n, true, e);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += e.v[j] * e.v[j];
  }
  __syncwarp();
  if (part.norm != nullptr) {
    const float factor = rsqrtf(warp_sum(sum) / static_cast<float>(part.dim) + a.eps);
    for (int i = lane; i < part.dim; i += 32) x[i] *= factor * part.norm[i];
  }
  __syncwarp();
  if (part.rotate) {
    for (int i = lane; i < a.pairs; i += 32) {
      const int stream = a.batch.position_streams == 1 ? 0 : stream_of(a, i);
      const float angle = static_cast<float>(a.batch.positions[stream * a.batch.position_stride + t]) * a.inv_freq[i];
      float sine, cosine;
      sincosf(angle, &sine, &cosine);
      sine *= a.rope_scale;
      cosine *= a.rope_scale;
      float& lo = x[a.offset + (a.interleaved ? 2 * i : i)];
      float& hi = x[a.offset + (a.interleaved ? 2 * i + 1 : i + a.pairs)];
      const float x0 = lo, x1 = hi;
      lo = x0 * cosine - x1 * sine;
      hi = x1 * cosine + x0 * sine;
    }
    __syncwarp();
    if (which == 0 && a.query_span > 0) {
      const float factor = 1.0F + a.query_beta * logf(1.0F + static_cast<float>(a.batch.positions[t] / a.query_span));
      for (int i = lane; i < part.dim; i += 32) x[i] *= factor;
      __syncwarp();
    }
  }
  const int slot = a.batch.kv_slots[t];
  const std::int64_t entry = page_entry(part.pages, slot, part.heads * part.dim) + base;
  const bool changed = part.norm != nullptr || part.rotate;
  for (int i = lane * 8; i < part.dim; i += 256) {
    const int n = min(8, part.dim - i);
    const Eight e = load8(own, 0, i, n, true);
    if (changed) store8(part.x, t, base + i, n, part.wide, e);
    if (part.pages.data != nullptr && slot >= 0) store8(part.pages, 0, entry + i, n, part.wide, e);
  }
}

}  // namespace

void launch_prepare_qkv(const PrepareView& args, Stream stream) {
  int heads = 0, most = 0;
  for (const HeadsView& part : args.parts) {
    heads += part.heads;
    most = part.heads > 0 && part.dim > most ? part.dim : most;
  }
  most = ceil_div(most, 8) * 8;
  const std::int64_t items = std::int64_t{args.batch.rows} * heads;
  launch(prepare_kernel, static_cast<unsigned>(ceil_div(items, std::int64_t{kWarps})), kWarps * 32,
         static_cast<std::size_t>(kWarps * most) * sizeof(float), stream, args, most);
}

}  // namespace strata::cuda
