// Draws: rows to draw packed and sent, the kernel, and what it found brought back.
#include "ops/cuda/draw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/cuda/draws.h"
#include "ops/cuda/op_checks.h"

namespace strata::cuda {
namespace {

static_assert(kMostTop == kMostTopLogprobs && sizeof(EditView) == sizeof(LogitEdit));

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Draws::Draws(CudaOps& ops, BusyClock& clock, const StepLimits& limits) : ops_(ops), clock_(clock) {
  if (limits.vocab > kMostDrawVocab)
    throw Error("a vocabulary of {} tokens; CUDA draws from at most {}", limits.vocab, kMostDrawVocab);
  const auto rows = static_cast<std::size_t>(limits.logit_rows);
  reserve(aligned(rows * sizeof(DrawJob)) + (64 << 10), rows);
}

void Draws::reserve(std::size_t in_bytes, std::size_t rows) {
  if (in_bytes > in_.bytes()) {
    in_bytes = std::max(in_bytes, 2 * in_.bytes());
    in_ = ops_.allocate(in_bytes);
    in_host_ = ops_.allocate_pinned(in_bytes);
  }
  if (rows > rows_) {
    rows_ = rows;
    out_ = ops_.allocate(top_at() + rows * kMostTop * sizeof(TopEntry));
    out_host_ = ops_.allocate_pinned(out_.bytes());
  }
}

std::size_t Draws::top_at() const { return aligned(rows_ * sizeof(DrawResult)); }

std::span<const Drawn> Draws::operator()(const Tensor& logits, std::span<const DrawRow> rows) {
  STRATA_CHECK(logits.dtype() == DType::kF32 && logits.device() == Device::kCuda, "draw: logits of {}",
               name(logits.dtype()));
  const std::int64_t vocab = logits.row_size();
  std::size_t edits = 0, words = 0, top_rows = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DrawRow& r = rows[i];
    STRATA_CHECK(r.row >= 0 && r.row < logits.rows() && r.score < vocab, "draw: row {} of {}", r.row,
                 logits.rows());
    STRATA_CHECK(r.allowed.empty() || static_cast<std::int64_t>(r.allowed.size()) == (vocab + 31) / 32,
                 "draw: a mask of {} words", r.allowed.size());
    STRATA_CHECK(r.logprobs <= kMostTop, "draw: {} logprobs, at most {}", r.logprobs, kMostTop);
    edits += r.edits.size();
    words += r.allowed.size();
    if (r.logprobs > 0) top_rows = i + 1;
  }
  const std::size_t edits_at = aligned(rows.size() * sizeof(DrawJob)),
                    masks_at = edits_at + aligned(edits * sizeof(EditView)),
                    bytes = masks_at + words * sizeof(std::uint32_t);
  reserve(bytes, rows.size());
  auto* jobs = reinterpret_cast<DrawJob*>(in_host_.data());
  std::size_t edit = 0, word = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DrawRow& r = rows[i];
    jobs[i] = {.uniform = r.uniform,
               .row = r.row,
               .top_k = r.top_k,
               .temperature = r.temperature,
               .top_p = r.top_p,
               .min_p = r.min_p,
               .first_edit = static_cast<int>(edit),
               .edits = static_cast<int>(r.edits.size()),
               .first_mask_word = r.allowed.empty() ? -1 : static_cast<int>(word),
               .score = r.score,
               .logprobs = r.logprobs};
    if (!r.edits.empty())
      std::memcpy(in_host_.data() + edits_at + edit * sizeof(EditView), r.edits.data(), r.edits.size_bytes());
    if (!r.allowed.empty())
      std::memcpy(in_host_.data() + masks_at + word * 4, r.allowed.data(), r.allowed.size_bytes());
    edit += r.edits.size();
    word += r.allowed.size();
  }
  clock_.enter();
  ops_.copy_to_device(in_.view(DType::kU8, {static_cast<std::int64_t>(bytes)}), in_host_.data());

  DrawView view;
  view.logits = logits.data<float>();
  view.stride = logits.stride();
  view.vocab = static_cast<int>(vocab);
  view.count = static_cast<int>(rows.size());
  view.jobs = reinterpret_cast<const DrawJob*>(in_.data());
  view.edits = reinterpret_cast<const EditView*>(in_.data() + edits_at);
  view.masks = reinterpret_cast<const std::uint32_t*>(in_.data() + masks_at);
  view.results = reinterpret_cast<DrawResult*>(out_.data());
  view.top = reinterpret_cast<TopEntry*>(out_.data() + top_at());
  launch_draw(view, ops_.stream());
  const std::size_t out_bytes =
      top_rows > 0 ? top_at() + top_rows * kMostTop * sizeof(TopEntry) : rows.size() * sizeof(DrawResult);
  ops_.copy_to_host(out_host_.data(), out_.view(DType::kU8, {static_cast<std::int64_t>(out_bytes)}));
  clock_.leave();
  ops_.synchronize();
  clock_.settle();

  const auto* results = reinterpret_cast<const DrawResult*>(out_host_.data());
  drawn_.resize(rows.size());
  tops_.resize(std::max(tops_.size(), top_rows));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    drawn_[i] = {.token = results[i].token,
                 .finite = results[i].finite != 0,
                 .logprob = results[i].logprob,
                 .top = {}};
    if (rows[i].logprobs <= 0) continue;
    const auto* top = reinterpret_cast<const TopEntry*>(out_host_.data() + top_at()) + i * kMostTop;
    tops_[i].clear();
    for (int j = 0; j < results[i].top; ++j) tops_[i].emplace_back(top[j].logprob, top[j].token);
    std::sort(tops_[i].begin(), tops_[i].end(), [](const auto& a, const auto& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
    drawn_[i].top = tops_[i];
  }
  return drawn_;
}

}  // namespace strata::cuda
