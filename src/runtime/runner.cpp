#include "runtime/runner.h"

#include <algorithm>

#include "runtime/padding.h"

namespace strata {
namespace {

std::span<const float> row_of(const Tensor& logits, int row) {
  return {logits.row<float>(row), static_cast<std::size_t>(logits.row_size())};
}

}  // namespace

void Runner::pad(BatchBuilder& builder) const {
  if (device_ == nullptr) return;
  const BatchShape shape = builder.shape();
  if (is_paddable(shape)) builder.pad(padded_shape(shape));
}

Tensor Runner::place(std::span<const int> numbers, const Shape& shape) {
  if (device_ != nullptr) return device_->place(numbers, shape);
  return {const_cast<int*>(numbers.data()), DType::kI32, shape};
}

ModelOutput Runner::forward(const Model& model, const Batch& host, std::span<const Memory> memory,
                            Tensor hidden, std::span<const TokenSource> drawn) {
  if (device_ == nullptr) {
    for (const TokenSource& t : drawn) host.tokens.data<int>()[t.row] = best_.at(t.drawn);
    return model.forward(host, memory, ops_, hidden);
  }
  const Batch batch = device_->upload(host, drawn);
  if (!is_paddable(batch.shape) || padded_shape(batch.shape) != batch.shape)
    return model.forward(batch, memory, ops_, hidden);

  const Key key{.model = &model,
                .memory = memory.data(),
                .shape = batch.shape,
                .tape = !batch.tape.empty(),
                .hidden = hidden.raw(),
                .at = ops_.arena().mark()};
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.key == key; });
  if (found ==
      steps_.end()) {  // grows the arena where need be; a step that found no memory is not remembered
    const ModelOutput output = model.forward(batch, memory, ops_, hidden);
    steps_.push_front({.key = key, .recording = nullptr, .output = {}, .after = {}});
    if (recordings() > kMostRecordings) steps_.pop_back();
    return output;
  }
  steps_.splice(steps_.begin(), steps_, found);
  Step& step = *found;
  if (step.recording == nullptr) {
    // By value: a device may run it again instead of what it enqueued.
    step.recording = device_->record([this, &model, &step, batch, memory, hidden] {
      step.output = model.forward(batch, memory, ops_, hidden);
    });
    step.after = ops_.arena().mark();
    ops_.arena().release(key.at);
  }
  step.recording->replay();
  ops_.arena().release(step.after);  // the output stays while the enclosing Scratch does
  return step.output;
}

std::span<const Drawn> Runner::draw(const Tensor& logits, std::span<const DrawRow> rows) {
  if (rows.empty()) return {};
  drawn_.assign(rows.size(), {});
  tops_.resize(std::max(tops_.size(), rows.size()));
  if (device_ == nullptr) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      drawn_[i] = sampler_.draw(row_of(logits, rows[i].row), rows[i], tops_[i]);
    return drawn_;
  }
  rows_.assign(rows.begin(), rows.end());
  for (DrawRow& r : rows_) r.logprobs = std::min(r.logprobs, kMostTopLogprobs);
  const auto drawn = device_->draw(logits, rows_);
  std::copy(drawn.begin(), drawn.end(), drawn_.begin());
  for (std::size_t i = 0; i < rows.size(); ++i) {  // whole distributions are asked for rarely
    if (rows[i].logprobs <= kMostTopLogprobs || drawn_[i].token < 0) continue;
    DrawRow score{.row = rows[i].row, .score = drawn_[i].token, .logprobs = rows[i].logprobs};
    drawn_[i] = sampler_.draw(device_->fetch(logits.rows_from(score.row, 1)), score, tops_[i]);
  }
  return drawn_;
}

std::uint64_t Runner::begin_best(const Tensor& logits, int n) {
  if (n == 0) return 0;
  rows_.clear();
  for (int i = 0; i < n; ++i) rows_.push_back({.row = i, .temperature = 0});
  if (device_ != nullptr) return chain_.emplace_back(device_->begin_draw(logits, rows_), n).first;
  const auto first = best_.size();
  for (const DrawRow& r : rows_) best_.push_back(std::max(sampler_.sample(row_of(logits, r.row), r), 0));
  return first;
}

std::span<const int> Runner::finish_chain() {
  // The last first: the others are done then.
  for (auto draw = chain_.rbegin(); draw != chain_.rend(); ++draw) {
    const auto drawn = device_->finish_draw(draw->first);
    for (auto d = drawn.rbegin(); d != drawn.rend(); ++d) best_.push_back(std::max(d->token, 0));
  }
  if (!chain_.empty()) std::reverse(best_.begin(), best_.end());
  chained_.swap(best_);
  begin_chain();
  return chained_;
}

}  // namespace strata
