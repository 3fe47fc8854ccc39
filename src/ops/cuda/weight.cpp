// load: a matrix into device memory, row after row, in its own type or in the one asked for.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "ops/cpu/f8_blocks.h"
#include "ops/cpu/matrix_rows.h"
#include "ops/cpu/thread_pool.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/fill.h"
#include "ops/cuda/four_bit_pack.h"
#include "ops/cuda/op_checks.h"
#include "ops/cuda/weight_view.h"

namespace strata {
namespace {

constexpr std::int64_t kScaleBlock = 128;  // inputs, and outputs, that share a scale
constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
constexpr float kDummyDeviation = 0.02F;  // of dummy weights, as models are initialised
constexpr float kDummyF8 = 16;            // deviation of f8 ones before their scale

std::int64_t padded(DType type, std::int64_t inputs) {
  const auto unit = static_cast<std::int64_t>(16 / bytes_of(type, 1));
  return (inputs + unit - 1) / unit * unit;
}

// Types that a backend with bf16 activations keeps as they are stored.
bool stays(DType type) { return type == DType::kF8E4M3 || cuda::is_four_bit_type(type); }

// f32 activations want f32 weights; else bf16 serves for every type but f8 and those of 4 bits, which stay.
DType kept_type(DType stored, std::optional<DType> wanted, DType activation) {
  if (activation == DType::kF32) return DType::kF32;
  const DType type = wanted.value_or(stays(stored) ? stored : DType::kBF16);
  if (type == DType::kF8E4M3 || (stays(type) && stored == type)) return type;
  if (cuda::is_four_bit_type(type) && type != DType::kNVFP4) return type;  // quantised here; NVFP4 would want a factor
  if (type == DType::kF16) return DType::kBF16;
  if (type != DType::kF32 && type != DType::kBF16) throw Error("weights of type {} cannot be kept as {} on CUDA", name(stored), name(type));
  return type;
}

// Inputs of an f8 row in the order kernels want (f8_weight_place of device/rows.cuh).
void order_f8(std::byte* row, std::int64_t stride) {
  std::byte group[16];
  for (std::int64_t k0 = 0; k0 < stride; k0 += 16) {
    for (int k = 0; k < 16; ++k) group[k % 8 / 2 * 4 + k / 8 * 2 + k % 2] = row[k0 + k];
    std::memcpy(row + k0, group, sizeof(group));
  }
}

void read_as(const cpu::MatrixRows& rows, std::int64_t row, DType type, std::byte* to, std::vector<float>& scratch) {
  if (rows.stored_as(type)) return rows.read_raw(row, to);
  scratch.resize(static_cast<std::size_t>(rows.inputs()));
  rows.read_f32(row, scratch.data());
  if (type == DType::kF32) {
    std::memcpy(to, scratch.data(), scratch.size() * sizeof(float));
    return;
  }
  for (std::size_t k = 0; k < scratch.size(); ++k) {
    const BFloat16 value = to_bfloat16(scratch[k]);
    std::memcpy(to + k * sizeof(value), &value, sizeof(value));
  }
}

// Rows that share a scale whatever piece they came from: 128 when every piece keeps to that grid, else 1.
std::int64_t scale_rows(const HostMatrix& matrix, std::int64_t rows_per_expert) {
  std::int64_t at = 0;
  for (const HostPiece& p : matrix.pieces) {
    if (at % kScaleBlock != 0) return 1;
    at += p.transposed ? p.data[1] : p.data[0];
  }
  return matrix.experts == 0 || rows_per_expert % kScaleBlock == 0 ? kScaleBlock : 1;
}

// Pieces in groups of one type each where some that stay lie beside others, which must not widen them; else none.
std::vector<HostMatrix> type_groups(const HostMatrix& matrix) {
  std::vector<HostMatrix> groups;
  bool any = false;
  for (const HostPiece& p : matrix.pieces) {
    any = any || stays(p.data.dtype());
    if (groups.empty() || groups.back().pieces[0].data.dtype() != p.data.dtype()) groups.emplace_back();
    groups.back().pieces.push_back(p);
  }
  if (!any || groups.size() == 1 || matrix.experts > 0) groups.clear();
  return groups;
}

}  // namespace

Weight CudaOps::load(const HostMatrix& matrix, std::optional<DType> type) {
  if (options_.activation != DType::kF32 && !type) {
    if (const auto groups = type_groups(matrix); !groups.empty()) {
      Weight all;
      std::int64_t outputs = 0;
      for (const HostMatrix& group : groups) outputs += all.parts.emplace_back(load(group, type)).outputs();
      all.dtype = all.parts[0].dtype;
      all.shape = {outputs, all.parts[0].inputs()};
      return all;
    }
  }
  const cpu::MatrixRows rows(matrix);
  Weight w;
  w.dtype = kept_type(rows.dtype(), type, options_.activation);
  if (w.dtype == DType::kF8E4M3 && !rows.stored_as(w.dtype) && !options_.dummy_weights) {
    ThreadPool threads(available_cores());
    std::vector<Buffer> made;
    return load(cpu::f8_blocks(matrix, threads, made), type);
  }
  const std::int64_t experts = std::max(matrix.experts, 1), outputs = rows.rows() / experts, inputs = rows.inputs();
  w.shape = matrix.experts == 0 ? Shape{outputs, inputs} : Shape{experts, outputs, inputs};
  if (cuda::is_four_bit_type(w.dtype)) {
    if (cuda::fits_four_bit(rows, w.dtype, matrix.experts, !options_.dummy_weights)) {
      load_four_bit(w, rows);
      return w;
    }
    w.dtype = DType::kBF16;
  }

  const std::int64_t stride = padded(w.dtype, inputs);
  const std::size_t row_bytes = bytes_of(w.dtype, stride), all = row_bytes * static_cast<std::size_t>(rows.rows());
  const bool scaled = w.dtype == DType::kF8E4M3;
  const std::int64_t block = scaled ? scale_rows(matrix, outputs) : 1, blocks = (rows.rows() + block - 1) / block,
                     scale_columns = (inputs + kScaleBlock - 1) / kScaleBlock;
  const std::size_t scales_at = (all + 255) / 256 * 256;
  w.storage = allocate(scaled ? scales_at + static_cast<std::size_t>(blocks * scale_columns) * sizeof(float) : all);
  w.data = w.storage.view(w.dtype, {rows.rows(), stride});
  if (scaled) w.scales = w.storage.view(DType::kF32, {blocks, scale_columns}, scales_at);

  if (options_.dummy_weights) {
    fill_dummy(w, inputs);
    return w;
  }
  std::vector<float> scratch;
  const auto batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(kStagingBytes / row_bytes));
  std::vector<std::byte> staging(row_bytes * static_cast<std::size_t>(std::min(batch, rows.rows())));
  for (std::int64_t begin = 0; begin < rows.rows(); begin += batch) {
    const std::int64_t count = std::min(batch, rows.rows() - begin);
    for (std::int64_t r = 0; r < count; ++r) {
      std::byte* to = staging.data() + static_cast<std::size_t>(r) * row_bytes;
      read_as(rows, begin + r, w.dtype, to, scratch);
      if (scaled) {
        std::fill(to + inputs, to + stride, std::byte{0});
        order_f8(to, stride);
      }
    }
    cuda::check_cuda(cudaMemcpyAsync(w.storage.data() + static_cast<std::size_t>(begin) * row_bytes, staging.data(),
                                     static_cast<std::size_t>(count) * row_bytes, cudaMemcpyHostToDevice, stream_),
                     "loading a weight");
  }
  if (scaled) {
    std::vector<float> scales(static_cast<std::size_t>(blocks * scale_columns));
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t c = 0; c < scale_columns; ++c)
        scales[static_cast<std::size_t>(b * scale_columns + c)] = rows.scale(b * block, c * kScaleBlock);
    }
    copy_to_device(w.scales, scales.data());
  }
  synchronize();
  return w;
}

void CudaOps::load_four_bit(Weight& w, const cpu::MatrixRows& rows) {
  const int elem = cuda::elem_of(w.dtype);
  const std::int64_t groups = (rows.rows() + cuda::kFourRows - 1) / cuda::kFourRows,
                     chunks = (rows.inputs() + cuda::kFourInputs - 1) / cuda::kFourInputs,
                     group_bytes = chunks * cuda::four_block_bytes(elem), factors = groups * cuda::kFourRows;
  const bool fp4 = elem == cuda::kElemFp4;
  const auto all = static_cast<std::size_t>(groups * group_bytes);  // a multiple of 16, as blocks are
  w.storage = allocate(all + (fp4 ? static_cast<std::size_t>(factors) * sizeof(float) : 0));
  w.data = w.storage.view(DType::kU8, {groups, group_bytes});
  if (fp4) w.scales = w.storage.view(DType::kF32, {factors}, all);
  if (options_.dummy_weights) {
    cuda::launch_fill_four_bit({.to = {w.data.raw(), group_bytes, elem},
                                .groups = groups,
                                .factors = fp4 ? w.scales.data<float>() : nullptr,
                                .deviation = kDummyDeviation,
                                .seed = dummy_seed_++},
                               stream_);
    return;
  }
  const auto batch = std::max<std::int64_t>(1, static_cast<std::int64_t>(kStagingBytes) / group_bytes);
  std::vector<std::byte> staging(static_cast<std::size_t>(std::min(batch, groups) * group_bytes));
  std::vector<float> scales(static_cast<std::size_t>(fp4 ? factors : 0));
  ThreadPool threads(available_cores());
  for (std::int64_t begin = 0; begin < groups; begin += batch) {
    const std::int64_t count = std::min(batch, groups - begin);
    std::mutex guard;
    std::exception_ptr failed;
    threads.parallel_for(count, [&](std::int64_t g) {
      const std::int64_t row = (begin + g) * cuda::kFourRows;
      try {
        cuda::pack_four_bit(rows, w.dtype, row, staging.data() + g * group_bytes, fp4 ? scales.data() + row : nullptr);
      } catch (...) {
        const std::lock_guard lock(guard);
        failed = std::current_exception();
      }
    });
    if (failed) std::rethrow_exception(failed);
    copy_to_device(w.data.rows_from(begin, count), staging.data());
  }
  if (fp4) copy_to_device(w.scales, scales.data());
  synchronize();
}

void CudaOps::fill_dummy(const Weight& w, std::int64_t inputs) {
  const bool f8 = !w.scales.empty();
  cuda::launch_fill({.to = {w.data.raw(), w.data.stride(), cuda::elem_of(w.dtype)},
                     .rows = w.data.rows(),
                     .columns = inputs,
                     .deviation = f8 ? kDummyF8 : kDummyDeviation,
                     .seed = dummy_seed_++},
                    stream_);
  if (!f8) return;
  cuda::launch_fill({.to = {w.scales.raw(), w.scales.stride(), cuda::kElemF32},
                     .rows = w.scales.rows(),
                     .columns = w.scales.row_size(),
                     .mean = kDummyDeviation / kDummyF8},
                    stream_);
}

namespace cuda {

WeightView weight_of(std::string_view op, const Weight& w) {
  STRATA_CHECK(!w.empty() && w.data.device() == Device::kCuda, "{}: a weight that is not on the GPU", op);
  WeightView v;
  v.data = {w.data.raw(), w.data.stride(), elem_of(w.dtype)};
  v.experts = static_cast<int>(w.experts());
  v.outputs = w.outputs();
  v.inputs = w.inputs();
  if (!w.scales.empty()) {
    v.scales = w.scales.data<float>();
    if (is_four_bit(v.data.elem)) return v;
    v.scale_columns = w.scales.row_size();
    v.scale_rows = w.scales.rows() == w.data.rows() ? 1 : static_cast<int>(kScaleBlock);
  }
  return v;
}

}  // namespace cuda
}  // namespace strata
