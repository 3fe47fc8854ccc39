// A device's time is counted for what it worked for: the model's pass, or its drafter's.
#include <gtest/gtest.h>

#include <array>

#include "runtime/device_like_ops.h"
#include "runtime/engine_fixture.h"

namespace strata {
namespace {

// A device that takes one second for every upload.
class TimedDevice final : public HostStepDevice, public DeviceClock {
 public:
  Batch upload(const Batch& host, std::span<const TokenSource> drawn) override {
    ++seconds_[static_cast<std::size_t>(part_)];
    return HostStepDevice::upload(host, drawn);
  }
  DeviceClock* clock() override { return this; }
  void begin(StepPart part) override { part_ = part; }
  double seconds(StepPart part) const override { return seconds_[static_cast<std::size_t>(part)]; }

 private:
  StepPart part_ = StepPart::kForward;
  std::array<double, kStepParts> seconds_{};
};

class TimedOps final : public CpuOps {
 public:
  using CpuOps::CpuOps;
  std::unique_ptr<StepDevice> make_step_device(const StepLimits&) override {
    return std::make_unique<TimedDevice>();
  }
};

TEST(DeviceTime, CountsForTheModelAndForItsDrafter) {
  const TestModel model = load_test_model("qwen3_next", std::make_shared<TimedOps>(CpuOptions{.threads = 2}));
  for (const char* speculate : {"none", "mtp"}) {
    EngineOptions o;
    o.speculate = speculate;
    o.draft_tokens = o.speculate == "none" ? 0 : 3;
    EngineFixture e(model, o);
    const auto begun = e.core().runner().clock()->seconds(StepPart::kForward);
    for (int seed = 0; seed < 3; ++seed) {
      Request r = greedy(test_prompt(40, seed), 40);
      r.sampling.ignore_eos = true;
      e.submit(std::move(r));
    }
    e.run();
    const EngineMetrics& m = e.core().metrics();
    EXPECT_EQ(m.device_seconds.at("forward") - begun, static_cast<double>(m.steps));
    const auto uploads = static_cast<double>(e.core().runner().device()->counters().uploads);
    EXPECT_EQ(m.device_seconds.at("draft"), uploads - begun - static_cast<double>(m.steps));
    EXPECT_EQ(m.device_seconds.at("draft") > 0, o.speculate == "mtp");
  }
}

}  // namespace
}  // namespace strata
