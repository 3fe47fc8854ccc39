// Draws: rows to draw packed and sent, the kernel, and what it found brought back.
#include "ops/cuda/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/cuda/draws.h"
#include "ops/cuda/op_checks.h"

namespace strata::cuda {
namespace {

static_assert(kMostTop == kMostTopLogprobs && sizeof(EditView) == sizeof(LogitEdit));

bool wants_only_the_best(const DrawRow& r) {
  const bool best = r.temperature <= 0 || r.top_p <= 0 || r.top_k == 1;
  return best && r.score < 0 && r.logprobs < 0 && r.edits.empty() && r.allowed.empty();
}

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t most_rows(const StepLimits& limits) { return static_cast<std::size_t>(limits.logit_rows); }
std::size_t job_bytes(const StepLimits& limits) {
  return aligned(most_rows(limits) * sizeof(DrawJob)) + (std::size_t{64} << 10);
}
// Also of the small draws that are begun before the host reads the first.
std::size_t result_bytes(const StepLimits& limits) {
  return aligned(most_rows(limits) * (sizeof(DrawResult) + kMostTop * sizeof(TopEntry))) +
         (std::size_t{64} << 10);
}
std::size_t kept_rows(const StepLimits& limits) { return std::bit_ceil(kMostDraws * most_rows(limits)); }

}  // namespace

Draws::Draws(CudaOps& ops, BusyClock& clock, const StepLimits& limits)
    : ops_(ops),
      clock_(clock),
      jobs_(std::make_unique<Staging>(ops, job_bytes(limits))),
      results_(ops, result_bytes(limits), Staging::Where::kHost),
      kept_(ops.allocate(kept_rows(limits) * sizeof(std::int32_t))) {
  if (limits.vocab > kMostDrawVocab)
    throw Error("a vocabulary of {} tokens; CUDA draws from at most {}", limits.vocab, kMostDrawVocab);
}

std::uint64_t Draws::begin(const Tensor& logits, std::span<const DrawRow> rows) {
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
  if (bytes > jobs_->capacity()) {
    ops_.synchronize();
    const std::size_t more = std::max(bytes, 2 * jobs_->capacity());
    jobs_.reset();
    jobs_ = std::make_unique<Staging>(ops_, more);
  }
  const Staging::Place in = jobs_->take(bytes);
  auto* jobs = reinterpret_cast<DrawJob*>(in.host);
  std::size_t edit = 0, word = 0;
  const auto plain = static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), wants_only_the_best));
  std::size_t next_plain = 0, next_other = plain;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DrawRow& r = rows[i];
    jobs[wants_only_the_best(r) ? next_plain++ : next_other++] = {
        .uniform = r.uniform,
        .row = r.row,
        .place = static_cast<int>(i),
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
      std::memcpy(in.host + edits_at + edit * sizeof(EditView), r.edits.data(), r.edits.size_bytes());
    if (!r.allowed.empty())
      std::memcpy(in.host + masks_at + word * 4, r.allowed.data(), r.allowed.size_bytes());
    edit += r.edits.size();
    word += r.allowed.size();
  }
  clock_.enter();
  send_numbers(ops_, in.device, in.host, bytes);

  Draw& d = draw(begun_++);
  d.first = rows_;
  d.top_at = aligned(rows.size() * sizeof(DrawResult));
  const std::size_t out_bytes = d.top_at + top_rows * kMostTop * sizeof(TopEntry);
  const Staging::Place out = results_.take(out_bytes);
  d.results = out.host;
  d.taken = taken_ += aligned(out_bytes);
  d.logprobs.clear();
  for (const DrawRow& r : rows) d.logprobs.push_back(r.logprobs);

  DrawView view;
  view.logits = logits.data<float>();
  view.stride = logits.stride();
  view.vocab = static_cast<int>(vocab);
  view.jobs = reinterpret_cast<const DrawJob*>(in.device);
  view.edits = reinterpret_cast<const EditView*>(in.device + edits_at);
  view.masks = reinterpret_cast<const std::uint32_t*>(in.device + masks_at);
  view.results =
      reinterpret_cast<DrawResult*>(out.host);  // written from the device, so that nothing has to be copied
  view.top = reinterpret_cast<TopEntry*>(out.host + d.top_at);
  view.kept = {reinterpret_cast<int*>(kept_.data()), static_cast<unsigned>(kept_.bytes() / sizeof(int) - 1)};
  view.first = static_cast<unsigned>(rows_);
  view.count = static_cast<int>(plain);
  launch_best(view, ops_.stream());
  view.jobs += plain;
  view.count = static_cast<int>(rows.size() - plain);
  launch_draw(view, ops_.stream());
  rows_ += rows.size();
  clock_.leave();
  d.done.record(ops_.stream());
  return d.first;
}

std::span<const Drawn> Draws::finish(std::uint64_t first) {
  const auto found = std::find_if(draws_.begin(), draws_.end(),
                                  [&](const Draw& d) { return d.first == first && d.results != nullptr; });
  STRATA_CHECK(found != draws_.end(), "the draw of row {} is finished or too long ago", first);
  Draw& d = *found;
  STRATA_CHECK(taken_ - d.taken <= results_.capacity(), "the draw of row {} is overwritten", first);
  ops_.counters().waits += d.done.wait() ? 1 : 0;
  clock_.settle();

  const auto* results = reinterpret_cast<const DrawResult*>(d.results);
  const auto* tops = reinterpret_cast<const TopEntry*>(d.results + d.top_at);
  drawn_.resize(d.logprobs.size());
  tops_.resize(std::max(tops_.size(), drawn_.size()));
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    drawn_[i] = {.token = results[i].token,
                 .finite = results[i].finite != 0,
                 .logprob = results[i].logprob,
                 .top = {}};
    if (d.logprobs[i] <= 0) continue;
    const TopEntry* top = tops + i * kMostTop;
    tops_[i].clear();
    for (int j = 0; j < results[i].top; ++j) tops_[i].emplace_back(top[j].logprob, top[j].token);
    std::sort(tops_[i].begin(), tops_[i].end(), [](const auto& a, const auto& b) {
      return a.first > b.first || (a.first == b.first && a.second < b.second);
    });
    drawn_[i].top = tops_[i];
  }
  d.results = nullptr;
  return drawn_;
}

int Draws::kept_at(std::uint64_t drawn) const {
  const std::uint64_t kept = kept_.bytes() / sizeof(int);
  STRATA_CHECK(drawn < rows_ && rows_ - drawn <= kept, "the token of row {} of {} is not kept", drawn, rows_);
  return static_cast<int>(drawn % kept);
}

void Draws::take(const Tensor& tokens, const Tensor& pairs) {
  if (pairs.empty()) return;
  launch_take({reinterpret_cast<int*>(tokens.raw()), reinterpret_cast<const int*>(pairs.raw()),
               static_cast<int>(pairs.rows()), reinterpret_cast<const int*>(kept_.data())},
              ops_.stream());
}

}  // namespace strata::cuda
