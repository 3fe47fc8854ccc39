// DeviceClock: how long a device was at work, by what it worked for.
#pragma once

#include <cstdint>

namespace strata {

enum class StepPart : std::uint8_t { kForward, kDraft };
inline constexpr int kStepParts = 2;

// Of a StepDevice. It is at work from the first thing that is enqueued through it until a draw or a fetch has
// run, or another part begins. The thread that drives the backend.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // What is enqueued from now on is for `part`; what was before ends here. Waits for nothing.
  virtual void begin(StepPart part) = 0;
  // So far, up to what the host last waited for.
  virtual double seconds(StepPart part) const = 0;
};

}  // namespace strata
