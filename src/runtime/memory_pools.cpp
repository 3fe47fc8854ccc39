#include "runtime/memory_pools.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace strata {
namespace {

int value_dim(const PagedKv& kv) { return kv.value_dim < 0 ? kv.head_dim : kv.value_dim; }

Shape with_front(std::int64_t n, const Shape& shape) {
  Shape out{n};
  for (int i = 0; i < shape.rank(); ++i) out.append(shape[i]);
  return out;
}

template <typename Spec, typename F>
std::size_t sum_over(std::span<const StateSpec> specs, F&& bytes) {
  std::size_t n = 0;
  for (const StateSpec& s : specs) {
    if (const auto* spec = std::get_if<Spec>(&s)) n += bytes(*spec);
  }
  return n;
}

}  // namespace

Tensor MemoryPools::make(Ops& ops, DType dtype, const Shape& shape) {
  buffers_.push_back(ops.allocate(bytes_of(dtype, shape.elements())));
  return buffers_.back().view(dtype, shape);
}

MemoryPools::MemoryPools(std::span<const StateSpec> specs, const PoolSizes& sizes, DType kv_dtype, Ops& ops) {
  constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
  if (std::find(std::begin(kKvTypes), std::end(kKvTypes), kv_dtype) == std::end(kKvTypes)) {
    throw Error("keys and values cannot be kept as {} (--kv-dtype): f32, f16, bf16 or f8_e4m3", name(kv_dtype));
  }
  for (const StateSpec& s : specs) {
    if (const auto* kv = std::get_if<PagedKv>(&s)) {
      KvView view;
      view.k = make(ops, kv_dtype, {sizes.pages, kPageTokens, kv->heads, kv->head_dim});
      if (value_dim(*kv) > 0) view.v = make(ops, kv_dtype, {sizes.pages, kPageTokens, kv->heads, value_dim(*kv)});
      if (kv->index_dim > 0) view.index = make(ops, DType::kF32, {sizes.pages, kPageTokens, kv->index_dim});
      views_.emplace_back(view);
    } else if (const auto* rec = std::get_if<Recurrent>(&s)) {
      if (rec->dtype != DType::kF32) throw Error("recurrent states cannot be kept as {}: f32 only", name(rec->dtype));
      StateView view;
      for (const Shape& shape : rec->tensors) view.tensors.push_back(make(ops, rec->dtype, with_front(sizes.slots, shape)));
      for (const int width : rec->tape) view.tapes.push_back(make(ops, DType::kF32, {sizes.tapes, kTapeRows, width}));
      views_.emplace_back(std::move(view));
    } else {
      views_.emplace_back(Stateless{});
    }
  }
}

std::size_t MemoryPools::page_bytes(std::span<const StateSpec> specs, DType kv_dtype) {
  return sum_over<PagedKv>(specs, [&](const PagedKv& kv) {
    return kPageTokens * (bytes_of(kv_dtype, std::int64_t{kv.heads} * (kv.head_dim + value_dim(kv))) +
                          bytes_of(DType::kF32, kv.index_dim));
  });
}

std::size_t MemoryPools::slot_bytes(std::span<const StateSpec> specs) {
  return sum_over<Recurrent>(specs, [](const Recurrent& r) {
    std::size_t n = 0;
    for (const Shape& shape : r.tensors) n += bytes_of(r.dtype, shape.elements());
    return n;
  });
}

std::size_t MemoryPools::tape_bytes(std::span<const StateSpec> specs) {
  return sum_over<Recurrent>(specs, [](const Recurrent& r) {
    std::size_t n = 0;
    for (const int width : r.tape) n += bytes_of(DType::kF32, std::int64_t{kTapeRows} * width);
    return n;
  });
}

bool has_recurrent(std::span<const StateSpec> specs) {
  return std::any_of(specs.begin(), specs.end(), [](const StateSpec& s) { return std::holds_alternative<Recurrent>(s); });
}

bool can_replay(std::span<const StateSpec> specs) {
  return std::all_of(specs.begin(), specs.end(), [](const StateSpec& s) {
    const auto* r = std::get_if<Recurrent>(&s);
    return r == nullptr || !r->tape.empty();
  });
}

}  // namespace strata
