// attention by wgmma (FlashAttention-3, Shah et al. 2024, for paged keys): a tile is 64 or 128 rows, each a pair of token and
// query head of one kv head, so that decode, verify and prefill are one kernel and heads of a group share every load. A
// producer warp copies pages by TMA; each consumer warpgroup keeps 64 rows of output in registers and lets the product with
// the values of a block run under the softmax of the next. Blocks of keys lie on the grid of pages and are taken in
// ascending order, so a row's result does not depend on the rows beside it. Long contexts of few rows are split over
// blocks and joined by a second kernel (attention_join.cu).
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

// A row's weights may grow to 2^kSlack before they are taken relative to a larger score: what rises little costs nothing.
constexpr float kSlack = 8;

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
  static constexpr int kStages = std::min(6, (224 * 1024 - kQueryBytes) / kBlockBytes);
  static constexpr int kShared = 1024 + kQueryBytes + kStages * kBlockBytes;
};

// The rows of a block and the keys they see.
struct TileRows {
  int sequence, token, tokens;  // first row of the batch and how many
  int position;                 // index in its sequence of the first
  int key_low, key_end;         // keys any of them sees
  int block, block_end;         // blocks of keys of this split
};

// What is the same in all lanes, in a way the compiler sees.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(~0U, x, 0); }

// Tile `tile`, counted from the last since late rows see most keys and should begin first; sequence -1 when there are not so
// many. With a whole warp.
template <typename C>
__device__ TileRows find_tile(const AttentionView& a, int tile) {
  const BatchView& b = a.batch;
  const int most = C::kRows / (a.heads / a.kv_heads);
  const auto tiles = [&](int s) { return (b.first[s + 1] - b.first[s] + most - 1) / most; };
  TileRows rows{-1, 0, 0, 0, 0, 0, 0, 0};
  const int total = ragged_total(b.sequences, tiles);
  if (tile >= total) return rows;
  const RaggedItem item = ragged_item(b.sequences, total - 1 - tile, tiles);
  const int s = rows.sequence = uniform(item.sequence), before = uniform(item.inside) * most;
  rows.token = b.first[s] + before;
  rows.tokens = min(most, b.first[s + 1] - rows.token);
  rows.position = b.start[s] + before;
  if (b.kv_slots[rows.token] >= 0) {  // a padding sequence sees nothing
    rows.key_low = max(a.skip, a.window > 0 ? rows.position - a.window + 1 : 0);
    rows.key_end = rows.position + rows.tokens;
  }
  const int first = rows.key_low / C::kKeys, blocks = max(0, (rows.key_end + C::kKeys - 1) / C::kKeys - first);
  rows.block = uniform(first + blocks * static_cast<int>(blockIdx.z) / a.splits);
  rows.block_end = uniform(first + blocks * (static_cast<int>(blockIdx.z) + 1) / a.splits);
  return rows;
}

// Copies K0, K1, V0, K2, V1 ... into the ring.
template <typename C>
__device__ void produce(const AttentionView& a, const TileRows& rows, const TensorMap* keys, const TensorMap* values,
                        std::uint8_t* ring_bytes, std::uint64_t* full, std::uint64_t* empty) {
  const int kv_head = blockIdx.y, pages = (rows.key_end + kTokensPerPage - 1) / kTokensPerPage;
  const int* table = a.batch.page_table + rows.sequence * a.batch.page_stride;
  Ring<C::kStages> ring;
  const auto copy = [&](const TensorMap* map, int block) {
    int page[C::kPages];
#pragma unroll
    for (int p = 0; p < C::kPages; ++p) page[p] = block * C::kPages + p < pages ? table[block * C::kPages + p] : -1;
    barrier_wait(empty + ring.stage, ring.parity ^ 1);
    barrier_expect(full + ring.stage, C::kBlockBytes);
    std::uint8_t* to = ring_bytes + ring.stage * C::kBlockBytes;
#pragma unroll
    for (int i = 0; i < C::kPages * C::kBoxes; ++i)
      copy_page(to + i * C::kBox, map, kv_head * C::kDim + i / C::kPages * 64, page[i % C::kPages], full + ring.stage);
    ring.next();
  };
  for (int block = rows.block; block < rows.block_end; ++block) {
    copy(keys, block);
    if (block > rows.block) copy(values, block - 1);
  }
  if (rows.block < rows.block_end) copy(values, rows.block_end - 1);
}

// A descriptor `by` units of 16 bytes further on.
__device__ __forceinline__ std::uint64_t moved(std::uint64_t descriptor, int by) {
  return (descriptor & ~std::uint64_t{~0U}) | static_cast<std::uint32_t>(static_cast<std::uint32_t>(descriptor) + by);
}

template <typename C>
struct Consumer {
  static constexpr int kScores = C::kKeys / 2;  // a thread's
  const AttentionView& a;
  const TileRows& rows;
  const int group_heads = a.heads / a.kv_heads;
  const int inverse = (65536 + group_heads - 1) / group_heads;  // x * inverse >> 16 is x / group_heads for x < 128, group_heads <= 64
  const int group = uniform(threadIdx.x / 128) - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  float out[C::kDim / 2];
  float score[kScores];
  std::uint32_t weights[C::kKeys / 16][4];
  float most[2], sum[2], shrink[2];  // most: what weights are relative to, log2
  int limit[2], low[2];  // keys [low, limit) of rows g and g + 8

  __device__ Consumer(const AttentionView& args, const TileRows& tile) : a(args), rows(tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int token = token_of(own_row(half)), position = rows.position + token;
      const bool live = token < rows.tokens && rows.key_end > 0;
      limit[half] = live ? position + 1 : 0;
      low[half] = max(a.skip, a.window > 0 ? position - a.window + 1 : 0);
      most[half] = a.sinks != nullptr && blockIdx.z == 0 ? a.sinks[head_of(own_row(half))] * kLog2E : -INFINITY;
      sum[half] = a.sinks != nullptr && blockIdx.z == 0 && t == 0 ? 1.0F : 0.0F;  // one of four shares
      shrink[half] = 1;
    }
#pragma unroll
    for (float& x : out) x = 0;
  }
  // Of row `r` of this warpgroup's 64: the tile's token, and the head.
  __device__ int token_of(int r) const { return (group * 64 + r) * inverse >> 16; }
  __device__ int head_of(int r) const {
    return static_cast<int>(blockIdx.y) * group_heads + group * 64 + r - token_of(r) * group_heads;
  }
  __device__ int own_row(int half) const { return warp * 16 + g + 8 * half; }

  // f(row, piece of 16 bytes) for all of the warp's 16 rows, neighbours in neighbouring lanes.
  template <typename F>
  __device__ void for_pieces(const F& f) const {
    constexpr int kPieces = C::kDim / 8;
    int first = lane;
    asm volatile("" : "+r"(first));  // else what follows from it is kept in registers, or spilled, from one call to the next
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i) f(warp * 16 + (32 * i + first) / kPieces, (32 * i + first) % kPieces);
  }
  // Where such a piece lies in the boxes of queries, whose place the gates and then the outputs take.
  __device__ static int place(int group, int r, int piece) {
    return (group * C::kBoxes + piece / 8) * C::kBox + r * 128 + (piece % 8 ^ (r % 8)) * 16;
  }
  __device__ void ask_for(const Rows& from, std::uint8_t* boxes) const {
    for_pieces([&](int r, int piece) {
      const int token = token_of(r);
      const bool live = token < rows.tokens;
      const auto* row = static_cast<const __nv_bfloat16*>(from.data) + (rows.token + (live ? token : 0)) * from.stride;
      copy_16(boxes + place(group, r, piece), row + head_of(r) * C::kDim + piece * 8, !live);
    });
  }
  __device__ void load_queries(std::uint8_t* boxes) const {
    ask_for(a.q, boxes);
    wait_copies();
    fence_copies();
    sync_group();
  }
  // Once no product of this warp reads queries any more: the place of all is free, for the gates of the rows and the outputs.
  __device__ void take_place(std::uint8_t* boxes) const {
    if (a.splits > 1) return;
    sync_group();
    if (a.gate.data != nullptr) ask_for(a.gate, boxes);
  }
  __device__ void sync_group() const { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

  __device__ void issue_scores(std::uint32_t queries, std::uint32_t keys) {
    const std::uint64_t q = rows_descriptor(queries + group * C::kBoxes * C::kBox), key = rows_descriptor(keys);
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kDim / 16; ++k) {
      Product<C::kKeys>::shared(score, moved(q, (k / 4 * C::kBox >> 4) + 2 * (k % 4)),
                                moved(key, (k / 4 * C::kPages * C::kBox >> 4) + 2 * (k % 4)), k > 0);
    }
    products_commit();
  }

  __device__ void issue_values(std::uint32_t values) {
    const std::uint64_t v = columns_descriptor(values, C::kPages * C::kBox);
    products_begin();
#pragma unroll
    for (int k = 0; k < C::kKeys / 16; ++k) Product<C::kDim>::columns(out, weights[k], moved(v, 128 * k), true);
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

  // Scores of block `block` become weights relative to `most`; `shrink` is what older sums must be multiplied by.
  __device__ void soften(int block) {
    const int key0 = block * C::kKeys;
    float factor = a.scale * kLog2E;
    if (a.softcap != 0) {  // tanh by way of e^2x
      const float twice = 2 * factor / a.softcap;
#pragma unroll
      for (float& s : score) s = 1.0F - __fdividef(2.0F, 1.0F + power_of_two(s * twice));
      factor = a.softcap * kLog2E;
    }
    if (key0 < max(low[0], low[1]) || key0 + C::kKeys > min(limit[0], limit[1])) {
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
        const int half = j / 2 % 2, key = key0 + j / 4 * 8 + 2 * t + j % 2;
        if (key < low[half] || key >= limit[half]) score[j] = -INFINITY;
      }
    }
    float peaks[4], base[2], added[4] = {};  // of a row's even and odd keys
#pragma unroll
    for (int i = 0; i < 4; ++i) peaks[i] = score[i];
#pragma unroll
    for (int j = 4; j < kScores; ++j) peaks[j % 4] = fmaxf(peaks[j % 4], score[j]);
#pragma unroll
    for (int half = 0; half < 2; ++half) peaks[half] = fmaxf(peaks[2 * half], peaks[2 * half + 1]);
#pragma unroll
    for (int o = 1; o < 4; o <<= 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) peaks[half] = fmaxf(peaks[half], __shfl_xor_sync(~0U, peaks[half], o));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float peak = peaks[half] * factor, now = peak > most[half] + kSlack ? peak : most[half];
      base[half] = now == -INFINITY ? 0.0F : now;
      shrink[half] = now == most[half] ? 1.0F : power_of_two(most[half] - base[half]);
      most[half] = now;
    }
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      score[j] = power_of_two(fmaf(score[j], factor, -base[j / 2 % 2]));
      added[j % 4] += score[j];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      sum[half] = sum[half] * shrink[half] + (added[2 * half] + added[2 * half + 1]);  // this thread's share
  }
  // What soften() left goes into use; no product may be under way.
  __device__ void take_weights() {
#pragma unroll
    for (int k = 0; k < C::kKeys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = pack(score[8 * k + 2 * i], score[8 * k + 2 * i + 1]);
    }
    if (!__any_sync(~0U, shrink[0] != 1.0F || shrink[1] != 1.0F)) return;
#pragma unroll
    for (int j = 0; j < C::kDim / 2; ++j) out[j] *= shrink[j / 2 % 2];
  }

  __device__ void finish(std::uint8_t* boxes) const {
    wait_copies();
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = sum[half];
      all += __shfl_xor_sync(~0U, all, 1);
      all += __shfl_xor_sync(~0U, all, 2);
      const int r = own_row(half), token = token_of(r);
      if (a.splits > 1) {
        if (token >= rows.tokens) continue;
        const std::int64_t at = (std::int64_t{blockIdx.z} * a.batch.rows + rows.token + token) * a.heads + head_of(r);
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
        auto* at = reinterpret_cast<std::uint32_t*>(boxes + place(group, r, j) + 4 * t);
        float x = out[4 * j + 2 * half] * norm, y = out[4 * j + 2 * half + 1] * norm;
        if (a.gate.data != nullptr) {
          const float2 gate = unpack(*at);
          x *= sigmoid(gate.x);
          y *= sigmoid(gate.y);
        }
        *at = pack(x, y);
      }
    }
    if (a.splits > 1) return;
    __syncwarp();
    for_pieces([&](int r, int piece) {
      const int token = token_of(r);
      if (token >= rows.tokens) return;
      auto* to = static_cast<__nv_bfloat16*>(a.out.data) + (rows.token + token) * a.out.stride + head_of(r) * C::kDim + piece * 8;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(boxes + place(group, r, piece));
    });
  }
};

template <typename C>
__global__ void __launch_bounds__(128 * (C::kGroups + 1), 1)
    tiles_kernel(AttentionView a, const __grid_constant__ TensorMap keys, const __grid_constant__ TensorMap values) {
  extern __shared__ std::uint8_t shared[];
  __shared__ std::uint64_t full[C::kStages], empty[C::kStages];
  std::uint8_t* queries = shared + (1024 - shared_address(shared) % 1024) % 1024;
  std::uint8_t* ring_bytes = queries + C::kQueryBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, 4 * C::kGroups);
    }
    barrier_init_done();
    prefetch_map(&keys);
    prefetch_map(&values);
  }
  begin_kernel();
  __syncthreads();
  const TileRows rows = find_tile<C>(a, blockIdx.x);
  if (rows.sequence < 0) return;
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) produce<C>(a, rows, &keys, &values, ring_bytes, full, empty);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  Consumer<C> c(a, rows);
  const std::uint32_t q = shared_address(queries), ring_address = shared_address(ring_bytes);
  const auto release = [&](int stage) {
    if (c.lane == 0) barrier_arrive(empty + stage);
  };
  if (rows.block < rows.block_end) {
    c.load_queries(queries);
    Ring<C::kStages> ring;
    barrier_wait(full + ring.stage, ring.parity);
    c.issue_scores(q, ring_address + ring.stage * C::kBlockBytes);
    products_wait<0>();
    release(ring.stage);
    ring.next();
    c.soften(rows.block);
    c.take_weights();
    barrier_wait(full + ring.stage, ring.parity);
    for (int block = rows.block + 1; block < rows.block_end; ++block) {
      const int key_stage = ring.stage;
      c.issue_scores(q, ring_address + key_stage * C::kBlockBytes);
      ring.next();
      const int value_stage = ring.stage;
      barrier_wait(full + value_stage, ring.parity);
      c.clear_values(ring_bytes + value_stage * C::kBlockBytes, block - 1);
      c.issue_values(ring_address + value_stage * C::kBlockBytes);
      ring.next();
      products_wait<1>();
      release(key_stage);
      c.soften(block);
      // What comes next, keys or the last values. It is waited for here because ptxas moves arithmetic behind a wait for
      // products, where the softmax would no longer run beside them, but not past the loop of this wait.
      barrier_wait(full + ring.stage, ring.parity);
      products_wait<0>();
      release(value_stage);
      c.take_weights();
    }
    c.take_place(queries);
    c.clear_values(ring_bytes + ring.stage * C::kBlockBytes, rows.block_end - 1);
    c.issue_values(ring_address + ring.stage * C::kBlockBytes);
    products_wait<0>();
  } else {
    c.take_place(queries);
  }
  c.finish(queries);
}

int tiles_of(const AttentionView& a, int tile_rows) {
  const int tokens = tile_rows / (a.heads / a.kv_heads);
  return a.batch.longest_run <= tokens ? a.batch.sequences : ceil_div(a.batch.rows, tokens) + a.batch.sequences;
}

// Whether 64 rows a block serve better than 128: short runs.
bool one_group(const AttentionView& a) { return a.batch.longest_run * (a.heads / a.kv_heads) <= 64; }

template <typename C>
void start(const AttentionView& a, Stream stream) {
  constexpr auto kernel = tiles_kernel<C>;
  allow_shared<kernel, C::kShared>();
  const std::int64_t columns = std::int64_t{a.kv_heads} * C::kDim;
  launch(kernel, dim3(static_cast<unsigned>(tiles_of(a, C::kRows)), static_cast<unsigned>(a.kv_heads), static_cast<unsigned>(a.splits)),
         128 * (C::kGroups + 1), C::kShared, stream, a, make_page_map(a.k, a.pages, kTokensPerPage, columns),
         make_page_map(a.v, a.pages, kTokensPerPage, columns));
  if (a.splits > 1) launch_attention_join(a, stream);
}

template <int Dim>
void pick(const AttentionView& a, Stream stream) {
  one_group(a) ? start<Config<Dim, 1>>(a, stream) : start<Config<Dim, 2>>(a, stream);
}

}  // namespace

int attention_splits(const AttentionView& a, int processors) {
  const int blocks = tiles_of(a, one_group(a) ? 64 : 128) * a.kv_heads;
  const int context = a.window > 0 ? std::min(a.window + a.batch.longest_run, a.batch.longest_context) : a.batch.longest_context;
  constexpr int kFewestKeys = 128;  // below, joining costs more than it saves
  return std::clamp(std::min(processors / std::max(blocks, 1), context / kFewestKeys), 1, kMostAttentionSplits);
}

void launch_attention_tiles(const AttentionView& args, Stream stream) {
  switch (args.head_dim) {
    case 64: return pick<64>(args, stream);
    case 128: return pick<128>(args, stream);
    default: return pick<256>(args, stream);
  }
}

}  // namespace strata::cuda
