// What a kernel sees of tensors and batches: plain structs that host code and .cu files share.
#pragma once

#include <cstdint>

#include "ops/cuda/stream.h"

namespace strata::cuda {

enum Elem : int { kElemF32 = 0, kElemBF16 = 1, kElemF16 = 2, kElemF8 = 3,
                  kElemInt4 = 4, kElemInt4Min = 5, kElemFp4 = 6 };  // of weights: four_bit.h

// Rows of f32 or bf16 (KV pages and tapes: any Elem); `stride` elements apart.
struct Rows {
  void* data = nullptr;
  std::int64_t stride = 0;
  int elem = kElemF32;
};

// Rows of all experts one after the other, K elements each and zeros up to a multiple of 16 bytes.
// f8: inputs in the order of f8_weight_place (device/rows.cuh); `scales`
// [rows / scale_rows, scale_columns] f32, one for each 128 inputs; scale_rows is 128 where blocks of rows keep to
// that grid, 1 where pieces were stacked off it. 4-bit codes: blocks as in four_bit.h, `stride` bytes from 16 rows to the next;
// kElemFp4: `scales` f32, the factor of each row.
struct WeightView {
  Rows data;
  int experts = 0;  // 0 = a plain matrix
  std::int64_t outputs = 0, inputs = 0;
  const float* scales = nullptr;
  int scale_rows = 1;
  std::int64_t scale_columns = 0;
};

// Batch on the device; see ops/batch.h. Absent tensors are null.
struct BatchView {
  int rows = 0, sequences = 0, save_count = 0, longest_run = 0, longest_context = 0;
  const int* tokens = nullptr;
  const int* positions = nullptr;  // [streams, T], position_stride apart
  std::int64_t position_stride = 0;
  int position_streams = 1;
  const int* sequence = nullptr;
  const int* first = nullptr;
  const int* start = nullptr;
  const int* page_table = nullptr;
  std::int64_t page_stride = 0;
  const int* kv_slots = nullptr;
  const int* state_in = nullptr;
  const int* saves = nullptr;
  const int* tape = nullptr;
  const int* replay = nullptr;
  const int* state_out = nullptr;
};

}  // namespace strata::cuda
