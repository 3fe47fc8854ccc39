#include "ops/cuda/op_checks.h"

namespace strata::cuda {

int elem_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return kElemF32;
    case DType::kBF16: return kElemBF16;
    case DType::kF16: return kElemF16;
    case DType::kF8E4M3: return kElemF8;
    case DType::kQ4_0: return kElemInt4;
    case DType::kQ4_1: return kElemInt4Min;
    case DType::kMXFP4:
    case DType::kNVFP4: return kElemFp4;
    default: break;
  }
  STRATA_CHECK(false, "{} where CUDA kernels take f32, bf16, f16, f8_e4m3 or 4 bits", name(dtype));
}

Rows rows_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t rows, std::int64_t columns) {
  if (rows == 0) return {};
  STRATA_CHECK((t.dtype() == DType::kF32 || t.dtype() == DType::kBF16) && t.device() == Device::kCuda && !t.empty(),
               "{}: {} must be f32 or bf16 on the GPU, is {}{}", op, what, t.empty() ? "empty, " : "", name(t.dtype()));
  STRATA_CHECK(t.rows() == rows, "{}: rows of {} {}, expected {}", op, what, t.rows(), rows);
  STRATA_CHECK(t.row_size() == columns, "{}: row of {} {}, expected {}", op, what, t.row_size(), columns);
  return {t.raw(), t.stride(), elem_of(t.dtype())};
}

Rows pool_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t columns) {
  STRATA_CHECK(t.device() == Device::kCuda && !t.empty(), "{}: {} must be on the GPU{}", op, what, t.empty() ? ", is empty" : "");
  STRATA_CHECK(t.row_size() == columns, "{}: row of {} {}, expected {}", op, what, t.row_size(), columns);
  return {t.raw(), t.stride(), elem_of(t.dtype())};
}

const float* vector_of(std::string_view op, std::string_view what, const Tensor& t, std::int64_t elements, bool optional) {
  if (t.empty() && optional) return nullptr;
  STRATA_CHECK(t.dtype() == DType::kF32 && t.device() == Device::kCuda && !t.empty(), "{}: {} must be f32 on the GPU, is {}{}",
               op, what, t.empty() ? "empty, " : "", name(t.dtype()));
  STRATA_CHECK(t.elements() == elements, "{}: {} has {} elements, expected {}", op, what, t.elements(), elements);
  STRATA_CHECK(t.contiguous(), "{}: {} must be contiguous: stride {}, row {}", op, what, t.stride(), t.row_size());
  return t.data<float>();
}

const int* ints_of(std::string_view op, std::string_view what, const Tensor& t) {
  if (t.empty()) return nullptr;
  STRATA_CHECK(t.dtype() == DType::kI32 && t.device() == Device::kCuda && t.contiguous(),
               "{}: {} must be contiguous i32 on the GPU, is {}", op, what, name(t.dtype()));
  return t.data<std::int32_t>();
}

BatchView view_of(std::string_view op, const Batch& batch) {
  BatchView v;
  v.rows = batch.shape.rows;
  v.sequences = batch.shape.sequences;
  v.save_count = batch.saves.empty() ? 0 : batch.shape.saves;
  v.longest_run = batch.shape.longest_run;
  v.longest_context = batch.shape.longest_context;
  v.tokens = ints_of(op, "tokens", batch.tokens);
  if (!batch.positions.empty()) {
    const bool streams = batch.positions.shape().rank() == 2;
    v.positions = batch.positions.data<std::int32_t>();
    v.position_stride = streams ? batch.positions.stride() : 0;
    v.position_streams = streams ? static_cast<int>(batch.positions.rows()) : 1;
  }
  v.sequence = ints_of(op, "sequence", batch.sequence);
  v.first = ints_of(op, "first", batch.first);
  v.start = ints_of(op, "start", batch.start);
  if (!batch.page_table.empty()) {
    v.page_table = batch.page_table.data<std::int32_t>();
    v.page_stride = batch.page_table.stride();
  }
  v.kv_slots = ints_of(op, "kv_slots", batch.kv_slots);
  v.state_in = ints_of(op, "state_in", batch.state_in);
  v.saves = ints_of(op, "saves", batch.saves);
  v.tape = ints_of(op, "tape", batch.tape);
  v.replay = ints_of(op, "replay", batch.replay);
  v.state_out = ints_of(op, "state_out", batch.state_out);
  return v;
}

bool wide(const Rows& r, std::int64_t columns) {
  return columns % 8 == 0 && r.stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(r.data) % 16 == 0;
}

}  // namespace strata::cuda
