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

// The thread that drives the backend. All but fetch() and draw() return before the device has done the work.
class StepDevice {
 public:
  virtual ~StepDevice() = default;

  // The batch on the device, valid for what is enqueued until the next upload. Where its tensors lie follows
  // from the shape and from which of them are there.
  virtual Batch upload(const Batch& host) = 0;
  // Host numbers on the device, valid for what is enqueued in this step; `numbers` may go away at once.
  virtual Tensor place(std::span<const int> numbers, const Shape& shape) = 0;
  // Records what `step` enqueues, without running it. It must neither allocate nor wait.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& step) = 0;
  // f32 values in host memory, valid until the next fetch; waits for them.
  virtual std::span<const float> fetch(const Tensor& values) = 0;
  // Draws from logits [L, V] f32; waits for the tokens. Valid until the next draw.
  virtual std::span<const Drawn> draw(const Tensor& logits, std::span<const DrawRow> rows) = 0;

  virtual const StepCounters& counters() = 0;
  // How long the device was at work; null: it is not timed.
  virtual DeviceClock* clock() { return nullptr; }
};

}  // namespace strata
