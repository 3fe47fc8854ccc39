// Runner: brings a step's batch to where the backend computes, runs a model, and brings results back.
#pragma once

#include <list>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"
#include "ops/device_clock.h"
#include "runtime/batch_builder.h"
#include "runtime/sampler.h"

namespace strata {

// One thread. On a backend with memory of its own (StepDevice), steps of short runs are padded to few shapes
// and recorded when a shape comes for the second time; later ones are replayed. Recordings are bounded: the
// one unused longest goes first.
class Runner {
 public:
  Runner(Ops& ops, const StepLimits& limits) : Runner(ops, ops.make_step_device(limits)) {}
  // For tests: a device of their own.
  Runner(Ops& ops, std::unique_ptr<StepDevice> device)
      : ops_(ops), device_(std::move(device)), clock_(device_ ? device_->clock() : nullptr) {}

  Ops& ops() { return ops_; }
  StepDevice* device() { return device_.get(); }

  // Pads what forward() is to record or replay; call before batch(). Padding rows come last.
  void pad(BatchBuilder& builder) const;
  // Host i32 numbers as a tensor of the backend, valid for the step.
  Tensor place(std::span<const int> numbers, const Shape& shape);
  // The output is scratch of `ops`, as Model::forward's. Tokens of `drawn`'s rows are what begin_draw() or
  // begin_best() are drawing; on the host they are written into the batch.
  ModelOutput forward(const Model& model, const Batch& host_batch, std::span<const Memory> memory,
                      Tensor hidden = {}, std::span<const TokenSource> drawn = {});

  // Whether rows should be drawn together: else one at a time is as good, and what is not needed is not
  // drawn.
  bool draws_together() const { return device_ != nullptr; }
  // Tokens from f32 logits [L, V]; waits for the backend. Valid until the next call.
  std::span<const Drawn> draw(const Tensor& logits, std::span<const DrawRow> rows);
  // The same in two parts, where draws_together(): what is enqueued between them may take the tokens. No row
  // wants more log probabilities than kMostTopLogprobs. See StepDevice.
  std::uint64_t begin_draw(const Tensor& logits, std::span<const DrawRow> rows) {
    return device_->begin_draw(logits, rows);
  }
  std::span<const Drawn> finish_draw(std::uint64_t first) { return device_->finish_draw(first); }

  // A chain of passes that may take the tokens of those before, with one wait at its end. begin_chain()
  // forgets one that was broken off; begin_best() draws the best token of each of the first `n` rows and
  // gives the first one's number; finish_chain() gives all tokens in the order of their draws, valid until
  // the next.
  void begin_chain() { chain_.clear(), best_.clear(); }
  std::uint64_t begin_best(const Tensor& logits, int n);
  std::span<const int> finish_chain();

  // A backend that is timed apart from the host (null: it is not) is told what follows is for.
  void begin(StepPart part) {
    if (clock_ != nullptr) clock_->begin(part);
  }
  const DeviceClock* clock() const { return clock_; }

  int recordings() const { return static_cast<int>(steps_.size()); }
  static constexpr int kMostRecordings = 128;

 private:
  // All that decides what a step enqueues and at which addresses.
  struct Key {
    const Model* model = nullptr;
    const Memory* memory = nullptr;
    BatchShape shape;
    bool tape = false;
    const void* hidden = nullptr;
    Arena::Mark at;
    bool operator==(const Key&) const = default;
  };
  struct Step {
    Key key;
    std::unique_ptr<Recording> recording;  // null until the shape comes again
    ModelOutput output;
    Arena::Mark after;
  };

  Ops& ops_;
  std::list<Step> steps_;  // most recently used first; they go after the device, which waits for what it runs
  std::unique_ptr<StepDevice> device_;
  DeviceClock* clock_ = nullptr;
  Sampler sampler_;
  std::vector<Drawn> drawn_;
  std::vector<std::vector<std::pair<float, int>>> tops_;
  std::vector<DrawRow> rows_;
  std::vector<std::pair<std::uint64_t, int>> chain_;  // on a device: first number and rows of each draw
  std::vector<int> best_, chained_;  // on the host: tokens by number; what finish_chain() gave
};

}  // namespace strata
