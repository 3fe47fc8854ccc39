#include "ops/cuda/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "base/check.h"
#include "ops/cuda/cuda_error.h"

namespace strata::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function, found at run time so that the program starts without a driver.
Encode encode_function() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
               "cuTensorMapEncodeTiled");
    STRATA_CHECK(found == cudaDriverEntryPointSuccess && function != nullptr, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

TensorMap encode(CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* extents, const cuuint64_t* strides,
                 const cuuint32_t* box) {
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode_function()(&map, type, rank, data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  STRATA_CHECK(result == CUDA_SUCCESS, "tensor map of rank {}, {} columns, {} bytes a row: error {}", rank, extents[0], strides[0],
               static_cast<int>(result));
  TensorMap out;
  static_assert(sizeof(out) == sizeof(map));
  std::memcpy(&out, &map, sizeof(map));
  return out;
}

}  // namespace

TensorMap make_tensor_map(const Rows& matrix, std::int64_t rows, std::int64_t columns, int box_rows) {
  const bool f8 = matrix.elem == kElemF8;
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.stride) * (f8 ? 1 : 2)};
  const cuuint32_t box[2] = {f8 ? 128U : 64U, static_cast<cuuint32_t>(box_rows)};
  return encode(f8 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix.data, extents, strides, box);
}

TensorMap make_page_map(const Rows& pool, std::int64_t pages, int tokens, std::int64_t columns) {
  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(tokens), static_cast<cuuint64_t>(pages)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(columns) * 2, static_cast<cuuint64_t>(pool.stride) * 2};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(tokens), 1};
  return encode(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, pool.data, extents, strides, box);
}

}  // namespace strata::cuda
