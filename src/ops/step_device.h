// StepDevice: how a backend whose memory is not the host's takes in the numbers of a step and gives its
// results out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ops/batch.h"
#include "ops/device_clock.h"
#include "ops/draw.h"

namespace strata {

// The largest step that will come.
struct StepLimits {
  int rows = 0, sequences = 0;
  int pages = 0;  // of one sequence
  int logit_rows = 0;
  int vocab = 0;  // Error when the backend cannot draw from so many
};

// What was enqueued once, to be enqueued again as it was: on the data that then lies at the same addresses.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// What happened so far; a steady step adds an upload, a replay and a wait.
struct StepCounters {
  std::uint64_t uploads = 0, recordings = 0, replays = 0;
  std::uint64_t waits = 0;        // of the host for the device
  std::uint64_t allocations = 0;  // of device or pinned memory, by the whole backend
};

// Logarithms of the best probabilities that a row may ask a device for.
inline constexpr int kMostTopLogprobs = 128;

// Draws that may be begun and not finished: those of a drafter's passes and of two steps.
inline constexpr int kMostDraws = 2 * kTapeRows;

// A token of a batch that is still being drawn when the batch is uploaded: 0 if none may come.
struct TokenSource {
  int row = 0;              // of the batch
  std::uint64_t drawn = 0;  // number of the row drawn from: begin_draw()
};

// The thread that drives the backend. All but fetch() and finish_draw() return before the device has done the
// work; what is enqueued later runs later.
class StepDevice {
 public:
  virtual ~StepDevice() = default;

  // The batch on the device, valid for what is enqueued until the next upload. Where its tensors lie follows
  // from the shape and from which of them are there. Tokens of `drawn`'s rows come from draws begun before.
  virtual Batch upload(const Batch& host, std::span<const TokenSource> drawn = {}) = 0;
  // Host numbers on the device, valid for what is enqueued in this step; `numbers` may go away at once.
  virtual Tensor place(std::span<const int> numbers, const Shape& shape) = 0;
  // Records what `step` enqueues, without running it. It must neither allocate nor wait.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;
  // f32 values in host memory, valid until the next fetch; waits for them.
  virtual std::span<const float> fetch(const Tensor& values) = 0;
  // Draws from logits [L, V] f32; the result is the first row's number of all rows ever drawn, the others'
  // follow. Of the draws that are not finished the latest kMostDraws can be.
  virtual std::uint64_t begin_draw(const Tensor& logits, std::span<const DrawRow> rows) = 0;
  // What the draw with this first number gave, in the order of its rows; waits for it and for all that was
  // enqueued before. Once a draw; valid until the next.
  virtual std::span<const Drawn> finish_draw(std::uint64_t first) = 0;
  std::span<const Drawn> draw(const Tensor& logits, std::span<const DrawRow> rows) {
    return finish_draw(begin_draw(logits, rows));
  }

  virtual const StepCounters& counters() = 0;
  // How long the device was at work; null: it is not timed.
  virtual DeviceClock* clock() { return nullptr; }
};

}  // namespace strata
