// attention by wgmma (FlashAttention-3, Shah et al. 2024, for paged keys): a tile is 64 or 128 rows, each a pair of token and
// query head of one kv head, so that decode, verify and prefill are one kernel and heads of a group share every load. A
// producer warp copies pages by TMA; each consumer warpgroup keeps 64 rows of output in registers and lets the product with
// the values of a block run under the softmax of the next. Blocks of keys lie on the grid of pages and are taken in
// ascending order, so a row's result does not depend on the rows beside it. Long contexts of few rows are split over
// blocks and joined by a second kernel.
#include <algorithm>

#include "ops/cuda/attention.h"
#include "ops/cuda/device/async.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/math.cuh"
#include "ops/cuda/device/pages.cuh"
#include "ops/cuda/device/ragged.cuh"
#include "ops/cuda/device/rows.cuh"
#include "ops/cuda/device/wgmma.cuh"

namespace strata::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634F;

template <int DimT, int GroupsT>
struct Config {
  static constexpr int kDim = DimT, kGroups = GroupsT;     // consumer warpgroups
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kPages = kDim == 256 ? 1 : 2;       // of a block of keys
  static constexpr int kKeys = 64 * kPages;
  static constexpr int kBoxes = kDim / 64;                 // boxes of 64 channels
  static constexpr int kBox = 64 * 128;                    // bytes: 64 rows of 128
  static constexpr int kBlockBytes = kPages * kBoxes * kBox;
  static constexpr int kQueryBytes = kGroups * kBoxes * kBox;
  static constexpr int kStages = (224 * 1024 - kQueryBytes) / (2 * kBlockBytes) < 3 ? 2 : 3;
  static constexpr int kShared = 1024 + kQueryBytes + 2 * kStages * kBlockBytes;
};

// The rows of a block and the keys they see.
struct TileRows {
  int sequence, token, tokens;  // first row of the batch and how many
  int position;                 // index in its sequence of the first
  int key_low, key_end;         // keys any of them sees
  int block, block_end;         // blocks of keys of this split
};

// Tile `tile`, counted from the last since late rows see most keys and should begin first; sequence -1 when there are not so
// many. With a whole warp.
__device__ TileRows find_tile(const AttentionView& a, int tile, int tile_tokens, int keys) {
  const BatchView& b = a.batch;
  const auto tiles = [&](int s) { return (b.first[s + 1] - b.first[s] + tile_tokens - 1) / tile_tokens; };
  TileRows rows{-1, 0, 0, 0, 0, 0, 0, 0};
  const int total = ragged_total(b.sequences, tiles);
  if (tile >= total) return rows;
  const RaggedItem item = ragged_item(b.sequences, total - 1 - tile, tiles);
  const int s = rows.sequence = item.sequence, before = item.inside * tile_tokens;
  rows.token = b.first[s] + before;
  rows.tokens = min(tile_tokens, b.first[s + 1] - rows.token);
  rows.position = b.start[s] + before;
  if (b.kv_slots[rows.token] >= 0) {  // a padding sequence sees nothing
    rows.key_low = max(a.skip, a.window > 0 ? rows.position - a.window + 1 : 0);
    rows.key_end = rows.position + rows.tokens;
  }
  const int first = rows.key_low / keys, blocks = max(0, (rows.key_end + keys - 1) / keys - first);
  rows.block = first + blocks * static_cast<int>(blockIdx.z) / a.splits;
  rows.block_end = first + blocks * (static_cast<int>(blockIdx.z) + 1) / a.splits;
  return rows;
}

template <typename C>
__device__ void produce(const AttentionView& a, const TileRows& rows, const TensorMap* keys, const TensorMap* values,
                        std::uint8_t* k_ring, std::uint8_t* v_ring, std::uint64_t* k_full, std::uint64_t* v_full,
                        std::uint64_t* k_empty, std::uint64_t* v_empty) {
  const int kv_head = blockIdx.y, pages = (rows.key_end + kTokensPerPage - 1) / kTokensPerPage;
  const int* table = a.batch.page_table + rows.sequence * a.batch.page_stride;
  const auto copy = [&](std::uint8_t* to, const TensorMap* map, const int (&page)[C::kPages], std::uint64_t* full, std::uint64_t* empty,
                        int parity) {
    barrier_wait(empty, parity ^ 1);
    barrier_expect(full, C::kBlockBytes);
#pragma unroll
    for (int p = 0; p < C::kPages; ++p) {
#pragma unroll
      for (int box = 0; box < C::kBoxes; ++box)
        copy_page(to + (box * C::kPages + p) * C::kBox, map, kv_head * C::kDim + box * 64, page[p], full);
    }
  };
  Ring<C::kStages> ring;
  for (int block = rows.block; block < rows.block_end; ++block, ring.next()) {
    int page[C::kPages];
#pragma unroll
    for (int p = 0; p < C::kPages; ++p) page[p] = block * C::kPages + p < pages ? table[block * C::kPages + p] : -1;
    copy(k_ring + ring.stage * C::kBlockBytes, keys, page, k_full + ring.stage, k_empty + ring.stage, ring.parity);
    copy(v_ring + ring.stage * C::kBlockBytes, values, page, v_full + ring.stage, v_empty + ring.stage, ring.parity);
  }
}

template <typename C>
struct Consumer {
  static constexpr int kScores = C::kKeys / 2;  // a thread's
  const AttentionView& a;
  const TileRows& rows;
  const int group_heads = a.heads / a.kv_heads;
  const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float out[C::kDim / 2];
  float score[kScores];
  std::uint32_t weights[C::kKeys / 16][4];
  float most[2], sum[2], shrink[2];
  int limit[2], low[2];  // keys [low, limit) of rows g and g + 8

  __device__ Consumer(const AttentionView& args, const TileRows& tile) : a(args), rows(tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = row_token(half), position = rows.position + token;
      const bool live = token < rows.tokens && rows.key_end > 0;
      limit[half] = live ? position + 1 : 0;
      low[half] = max(a.skip, a.window > 0 ? position - a.window + 1 : 0);
      most[half] = a.sinks != nullptr && blockIdx.z == 0 ? a.sinks[head(half)] * kLog2E : -INFINITY;
      sum[half] = a.sinks != nullptr && blockIdx.z == 0 && t == 0 ? 1.0F : 0.0F;  // one of four shares
      shrink[half] = 1;
    }
#pragma unroll
    for (float& x : out) x = 0;
  }
  __device__ int row(int half) const { return group * 64 + warp * 16 + g + 8 * half; }
  __device__ int row_token(int half) const { return row(half) / group_heads; }
  __device__ int head(int half) const { return static_cast<int>(blockIdx.y) * group_heads + row(half) % group_heads; }

  // The warpgroup's 64 rows of q into its boxes.
  __device__ void load_queries(std::uint8_t* to) {
    const int thread = threadIdx.x % 128;
    to += group * C::kBoxes * C::kBox;
    for (int i = thread; i < 64 * C::kDim / 8; i += 128) {
      const int r = i / (C::kDim / 8), piece = i % (C::kDim / 8), all = group * 64 + r, token = all / group_heads;
      uint4 q = make_uint4(0, 0, 0, 0);
      if (token < rows.tokens) {
        const auto* from = static_cast<const __nv_bfloat16*>(a.q.data) + (rows.token + token) * a.q.stride +
                           (static_cast<int>(blockIdx.y) * group_heads + all % group_heads) * C::kDim + piece * 8;
        q = *reinterpret_cast<const uint4*>(from);
      }
      *reinterpret_cast<uint4*>(to + piece / 8 * C::kBox + r * 128 + (piece % 8 ^ (r % 8)) * 16) = q;
    }
    fence_copies();
    sync_group();
  }
  __device__ void sync_group() const { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

  __device__ void issue_scores(std::uint32_t queries, std::uint32_t keys) {
    queries += group * C::kBoxes * C::kBox;
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kDim / 16; ++k) {
      Product<C::kKeys>::shared(score, rows_descriptor(queries + k / 4 * C::kBox) + 2 * (k % 4),
                                rows_descriptor(keys + k / 4 * C::kPages * C::kBox) + 2 * (k % 4), k > 0);
    }
    products_commit();
  }

  __device__ void issue_values(std::uint32_t values) {
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kKeys / 16; ++k)
      Product<C::kDim>::columns(out, weights[k], columns_descriptor(values, C::kPages * C::kBox) + 128 * k, true);
    products_commit();
  }

  // Values that no row of the tile sees may be anything: make them zeros, since 0 * NaN is NaN.
  __device__ void clear_values(std::uint8_t* values, int block) {
    const int key0 = block * C::kKeys;
    if (key0 >= rows.key_low && key0 + C::kKeys <= rows.key_end) return;
    for (int i = threadIdx.x % 128; i < C::kKeys * C::kBoxes * 8; i += 128) {
      const int key = i / 8 % C::kKeys, box = i / (8 * C::kKeys), piece = i % 8;
      if (key0 + key < rows.key_low || key0 + key >= rows.key_end)
        *reinterpret_cast<uint4*>(values + (box * C::kKeys + key) * 128 + piece * 16) = make_uint4(0, 0, 0, 0);
    }
    fence_copies();
    sync_group();
  }

  // Scores of block `block` become weights, relative to the running maxima; `shrink` is what older sums must be
  // multiplied by.
  __device__ void soften(int block) {
    const int key0 = block * C::kKeys;
    if (a.softcap != 0) {
#pragma unroll
      for (float& s : score) s = a.softcap * tanhf(s * a.scale / a.softcap) * kLog2E;
    } else {
      const float scale = a.scale * kLog2E;
#pragma unroll
      for (float& s : score) s *= scale;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (key0 < low[half] || key0 + C::kKeys > limit[half]) {
#pragma unroll
        for (int j = 0; j < kScores; ++j) {
          if (j / 2 % 2 != half) continue;
          const int key = key0 + j / 4 * 8 + 2 * t + j % 2;
          if (key < low[half] || key >= limit[half]) score[j] = -INFINITY;
        }
      }
      float peak = most[half];
#pragma unroll
      for (int j = 0; j < kScores; ++j) peak = j / 2 % 2 == half ? fmaxf(peak, score[j]) : peak;
      peak = fmaxf(peak, __shfl_xor_sync(~0U, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(~0U, peak, 2));
      const float base = peak == -INFINITY ? 0.0F : peak;
      shrink[half] = exp2f(most[half] - base);
      most[half] = peak;
      float added = 0;
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
        if (j / 2 % 2 != half) continue;
        score[j] = exp2f(score[j] - base);
        added += score[j];
      }
      sum[half] = sum[half] * shrink[half] + added;  // this thread's share
    }
  }
  // What soften() left goes into use; no product may be under way.
  __device__ void take_weights() {
#pragma unroll
    for (int k = 0; k < C::kKeys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = pack(score[8 * k + 2 * i], score[8 * k + 2 * i + 1]);
    }
#pragma unroll
    for (int j = 0; j < C::kDim / 2; ++j) out[j] *= shrink[j / 2 % 2];
  }

  __device__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = sum[half];
      all += __shfl_xor_sync(~0U, all, 1);
      all += __shfl_xor_sync(~0U, all, 2);
      const int token = row_token(half);
      if (token >= rows.tokens) continue;
      const std::int64_t row = rows.token + token;
      const int h = head(half);
      if (a.splits > 1) {
        const std::int64_t at = (std::int64_t{blockIdx.z} * a.batch.rows + row) * a.heads + h;
        if (t == 0) a.partial_scale[at] = make_float2(most[half], all);
#pragma unroll
        for (int j = 0; j < C::kDim / 8; ++j) {
          *reinterpret_cast<float2*>(a.partial + at * C::kDim + 8 * j + 2 * t) =
              make_float2(out[4 * j + 2 * half], out[4 * j + 2 * half + 1]);
        }
        continue;
      }
      const float norm = limit[half] > low[half] ? 1.0F / all : 0.0F;
#pragma unroll
      for (int j = 0; j < C::kDim / 8; ++j) {
        const int column = h * C::kDim + 8 * j + 2 * t;
        float x = out[4 * j + 2 * half] * norm, y = out[4 * j + 2 * half + 1] * norm;
        if (a.gate.data != nullptr) {
          x *= sigmoid(load(a.gate, row, column));
          y *= sigmoid(load(a.gate, row, column + 1));
        }
        *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(a.out.data) + row * a.out.stride + column) = pack(x, y);
      }
    }
  }
};

template <typename C>
__global__ void __launch_bounds__(128 * (C::kGroups + 1), 1)
    tiles_kernel(AttentionView a, const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values) {
  extern __shared__ std::uint8_t shared[];
  __shared__ std::uint64_t k_full[C::kStages], v_full[C::kStages], k_empty[C::kStages], v_empty[C::kStages];
  std::uint8_t* queries = shared + (1024 - shared_address(shared) % 1024) % 1024;
  std::uint8_t* k_ring = queries + C::kQueryBytes;
  std::uint8_t* v_ring = k_ring + C::kStages * C::kBlockBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      barrier_init(k_full + i, 1);
      barrier_init(v_full + i, 1);
      barrier_init(k_empty + i, 4 * C::kGroups);
      barrier_init(v_empty + i, 4 * C::kGroups);
    }
    barrier_init_done();
    prefetch_map(&keys);
    prefetch_map(&values);
  }
  begin_kernel();
  __syncthreads();
  const TileRows rows = find_tile(a, blockIdx.x, C::kRows / (a.heads / a.kv_heads), C::kKeys);
  if (rows.sequence < 0) return;
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) produce<C>(a, rows, &keys, &values, k_ring, v_ring, k_full, v_full, k_empty, v_empty);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  Consumer<C> c(a, rows);
  const std::uint32_t q = shared_address(queries);
  if (rows.block < rows.block_end) {
    c.load_queries(queries);
    Ring<C::kStages> k, v;
    barrier_wait(k_full + k.stage, k.parity);
    c.issue_scores(q, shared_address(k_ring + k.stage * C::kBlockBytes));
    products_wait<0>();
    if (c.lane == 0) barrier_arrive(k_empty + k.stage);
    k.next();
    c.soften(rows.block);
    c.take_weights();
    for (int block = rows.block + 1; block < rows.block_end; ++block) {
      barrier_wait(k_full + k.stage, k.parity);
      c.issue_scores(q, shared_address(k_ring + k.stage * C::kBlockBytes));
      barrier_wait(v_full + v.stage, v.parity);
      c.clear_values(v_ring + v.stage * C::kBlockBytes, block - 1);
      c.issue_values(shared_address(v_ring + v.stage * C::kBlockBytes));
      products_wait<1>();
      if (c.lane == 0) barrier_arrive(k_empty + k.stage);
      c.soften(block);
      products_wait<0>();
      if (c.lane == 0) barrier_arrive(v_empty + v.stage);
      c.take_weights();
      k.next();
      v.next();
    }
    barrier_wait(v_full + v.stage, v.parity);
    c.clear_values(v_ring + v.stage * C::kBlockBytes, rows.block_end - 1);
    c.issue_values(shared_address(v_ring + v.stage * C::kBlockBytes));
    products_wait<0>();
  }
  c.finish();
}

// A block per row and head joins the splits: a thread takes four channels of every kJoinThreads / (value_dim / 4)-th split, and
// the threads of the same channels add up in a fixed order.
constexpr int kJoinThreads = 256, kMostSplits = 64;
__global__ void __launch_bounds__(kJoinThreads) join_kernel(AttentionView a) {
  constexpr int kAhead = 8;  // loads of a thread under way at once
  __shared__ float weights[kMostSplits];
  __shared__ float4 sums[kJoinThreads];
  begin_kernel();
  const std::int64_t item = blockIdx.x, items = std::int64_t{a.batch.rows} * a.heads;
  const int lanes = a.value_dim / 4, groups = kJoinThreads / lanes, first = threadIdx.x / lanes, c = threadIdx.x % lanes * 4;
  float4 ahead[kAhead];
  const auto load_from = [&](int s) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i, s += groups) {
      if (s < a.splits) ahead[i] = *reinterpret_cast<const float4*>(a.partial + (s * items + item) * a.value_dim + c);
    }
  };
  load_from(first);
  if (threadIdx.x < 32) {
    float2 scale[kMostSplits / 32];
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      const int s = threadIdx.x + 32 * i;
      scale[i] = s < a.splits ? a.partial_scale[s * items + item] : make_float2(-INFINITY, 0);
      most = fmaxf(most, scale[i].x);
    }
    most = warp_max(most);
    const float base = most == -INFINITY ? 0.0F : most;
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) {
      scale[i].x = exp2f(scale[i].x - base);
      sum += scale[i].x * scale[i].y;
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kMostSplits / 32; ++i) weights[threadIdx.x + 32 * i] = sum > 0 ? scale[i].x / sum : 0.0F;
  }
  __syncthreads();
  float4 all = make_float4(0, 0, 0, 0);
  const auto add = [](float4& to, const float4& x, float weight) {
    to.x += x.x * weight, to.y += x.y * weight, to.z += x.z * weight, to.w += x.w * weight;
  };
  for (int s = first; s < a.splits; s += kAhead * groups) {
    if (s != first) load_from(s);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (s + i * groups < a.splits) add(all, ahead[i], weights[s + i * groups]);
    }
  }
  sums[threadIdx.x] = all;
  __syncthreads();
  if (threadIdx.x >= lanes) return;
  for (int g = 1; g < groups; ++g) add(all, sums[g * lanes + threadIdx.x], 1);
  const std::int64_t row = item / a.heads;
  const int column = static_cast<int>(item % a.heads) * a.value_dim + c;
  const float x[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float gate = a.gate.data != nullptr ? sigmoid(load(a.gate, row, column + i)) : 1.0F;
    store(a.out, row, column + i, x[i] * gate);
  }
}

int tiles_of(const AttentionView& a, int tile_rows) {
  const int tokens = tile_rows / (a.heads / a.kv_heads);
  return a.batch.longest_run <= tokens ? a.batch.sequences : ceil_div(a.batch.rows, tokens) + a.batch.sequences;
}

// Whether 64 rows a block serve better than 128: short runs.
bool one_group(const AttentionView& a) { return a.batch.longest_run * (a.heads / a.kv_heads) <= 64; }

template <int Dim, int Groups>
void start(const AttentionView& a, Stream stream) {
  using C = Config<Dim, Groups>;
  constexpr auto kernel = tiles_kernel<C>;
  allow_shared<kernel, C::kShared>();
  const std::int64_t columns = std::int64_t{a.kv_heads} * Dim;
  launch(kernel, dim3(static_cast<unsigned>(tiles_of(a, C::kRows)), static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(a.splits)),
         128 * (Groups + 1), C::kShared, stream, a, make_page_map(a.k, a.pages, kTokensPerPage, columns),
         make_page_map(a.v, a.pages, kTokensPerPage, columns));
  if (a.splits == 1) return;
  launch(join_kernel, static_cast<unsigned>(a.batch.rows * a.heads), kJoinThreads, 0, stream, a);
}

template <int Dim>
void pick(const AttentionView& a, Stream stream) {
  one_group(a) ? start<Dim, 1>(a, stream) : start<Dim, 2>(a, stream);
}

}  // namespace

int attention_splits(const AttentionView& a, int processors) {
  const int blocks = tiles_of(a, one_group(a) ? 64 : 128) * a.kv_heads;
  const int context = a.window > 0 ? std::min(a.window + a.batch.longest_run, a.batch.longest_context) : a.batch.longest_context;
  constexpr int kFewestKeys = 128;  // below, joining costs more than it saves
  return std::clamp(std::min(processors / std::max(blocks, 1), context / kFewestKeys), 1, kMostSplits);
}

void launch_attention_tiles(const AttentionView& args, Stream stream) {
  switch (args.head_dim) {
    case 64: return pick<64>(args, stream);
    case 128: return pick<128>(args, stream);
    default: return pick<256>(args, stream);
  }
}

}  // namespace strata::cuda
