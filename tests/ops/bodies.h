// The bodies that an op test runs on: the plain scalar one, and the SIMD one for each instruction set of this
// machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <ostream>
#include <string>
#include <vector>

namespace strata::testing {

struct Body {
  std::string name;
  bool scalar = false;
  std::int64_t target = 0;

  friend void PrintTo(const Body& body, std::ostream* out) { *out << body.name; }
};

inline std::vector<Body> bodies() {
  std::vector<Body> all{{"plain", true, 0}, {"portable", false, HWY_SCALAR}};
  constexpr std::int64_t kNotBuilt =
      HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SCALAR | HWY_EMU128;  // see src/ops/cpu/CMakeLists.txt
  for (std::int64_t left = hwy::SupportedTargets() & ~kNotBuilt; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    all.push_back({hwy::TargetName(target), false, target});
  }
  return all;
}

// A test on one body: the instruction set is chosen for its duration.
class BodyTest : public ::testing::TestWithParam<Body> {
 protected:
  void SetUp() override { choose(GetParam().target); }
  void TearDown() override { choose(0); }
  bool scalar() const { return GetParam().scalar; }

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace strata::testing

#define STRATA_ON_EVERY_BODY(Name)                                                         \
  INSTANTIATE_TEST_SUITE_P(Bodies, Name, ::testing::ValuesIn(::strata::testing::bodies()), \
                           [](const auto& body) { return body.param.name; })
