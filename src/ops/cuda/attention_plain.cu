// attention for any element types and sizes: a warp per row and head, a lane per key, then a lane per value channel.
#include "ops/cuda/attention.h"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/pages.cuh"
#include "ops/cuda/device/rows.cuh"

namespace strata::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMostValues = 512 / 32;  // value channels a lane sums

__global__ void __launch_bounds__(kWarps * 32) plain_kernel(AttentionView a) {
  begin_kernel();
  extern __shared__ float shared[];
  const int lane = threadIdx.x % 32;
  float* q = shared + threadIdx.x / 32 * a.head_dim;
  const std::int64_t item = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= std::int64_t{a.batch.rows} * a.heads) return;
  const auto t = static_cast<int>(item / a.heads);
  const int h = static_cast<int>(item - std::int64_t{t} * a.heads), kv_head = h / (a.heads / a.kv_heads);
  for (int i = lane; i < a.head_dim; i += 32) q[i] = load(a.q, t, h * a.head_dim + i);
  __syncwarp();

  const int s = a.batch.sequence[t], last = a.batch.start[s] + t - a.batch.first[s];
  // Keys are counted: the token of number j is j itself, or lies in the chosen blocks and behind the last complete one.
  const int* blocks = a.blocks != nullptr ? a.blocks + std::int64_t{t} * a.most_blocks : nullptr;
  const int complete = blocks != nullptr ? (last + 1) / a.block : 0, chosen = min(complete, a.most_blocks) * a.block;
  const auto token_of = [&](int j) {
    if (blocks == nullptr) return j;
    return j < chosen ? blocks[j / a.block] * a.block + j % a.block : complete * a.block + j - chosen;
  };
  const int low = blocks != nullptr ? 0 : max(a.skip, a.window > 0 ? last - a.window + 1 : 0);
  const int seen = blocks != nullptr ? chosen + last + 1 - complete * a.block : last + 1;
  const int end = a.batch.kv_slots[t] < 0 ? low : seen;  // a padding row sees nothing
  const int* pages = a.batch.page_table + s * a.batch.page_stride;
  float most = a.sinks != nullptr ? a.sinks[h] : -INFINITY, sum = a.sinks != nullptr ? 1.0F : 0.0F;
  float acc[kMostValues] = {};
  for (int base = low; base < end; base += 32) {
    const int j = base + lane;
    const int token = j < end ? token_of(j) : 0;
    const int slot = j < end ? pages[token / kTokensPerPage] * kTokensPerPage + token % kTokensPerPage : 0;
    float score = -INFINITY;
    if (j < end) {
      const Rows key{a.k.data, 0, a.k.elem};
      const std::int64_t at = page_entry(a.k, slot, a.kv_heads * a.head_dim) + kv_head * a.head_dim;
      float dot = 0;
      for (int i = 0; i < a.head_dim; i += 8) {
        const Eight k = load8(key, 0, at + i, min(8, a.head_dim - i), a.wide);
#pragma unroll
        for (int e = 0; e < 8; ++e) dot += i + e < a.head_dim ? k.v[e] * q[i + e] : 0.0F;
      }
      score = dot * a.scale;
      if (a.softcap != 0) score = a.softcap * tanhf(score / a.softcap);
    }
    const float peak = fmaxf(most, warp_max(score)), shrink = __expf(most - peak);
    const float p = __expf(score - peak);
    most = peak;
    sum = sum * shrink + warp_sum(p);
#pragma unroll
    for (int i = 0; i < kMostValues; ++i) acc[i] *= shrink;
    for (int k = 0; k < min(32, end - base); ++k) {
      const float weight = __shfl_sync(~0U, p, k);
      const int from = __shfl_sync(~0U, slot, k);
      const std::int64_t at = page_entry(a.v, from, a.kv_heads * a.value_stride) + kv_head * a.value_stride;
#pragma unroll
      for (int i = 0; i < kMostValues; ++i) {
        if (lane + 32 * i < a.value_dim) acc[i] += weight * load_elem(a.v.data, a.v.elem, at + lane + 32 * i);
      }
    }
  }
  const float norm = low < end ? 1.0F / sum : 0.0F;
#pragma unroll
  for (int i = 0; i < kMostValues; ++i) {
    const int c = lane + 32 * i;
    if (c >= a.value_dim) break;
    float out = acc[i] * norm;
    if (a.gate.data != nullptr) out *= sigmoid(load(a.gate, t, h * a.value_dim + c));
    store(a.out, t, h * a.value_dim + c, out);
  }
}

}  // namespace

void launch_attention_plain(const AttentionView& args, Stream stream) {
  const std::int64_t items = std::int64_t{args.batch.rows} * args.heads;
  launch(plain_kernel, static_cast<unsigned>(ceil_div(items, std::int64_t{kWarps})), kWarps * 32,
         static_cast<std::size_t>(kWarps * args.head_dim) * sizeof(float), stream, args);
}

}  // namespace strata::cuda
