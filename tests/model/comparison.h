// Comparison of a model's outputs with recorded ones.
#pragma once

#include "model_fixture.h"

namespace strata::test {

constexpr double kTolerance = 2e-3;  // of the logits' standard deviation
constexpr float kClearGap = 1e-3F;   // a greedy token further ahead than this must agree

double deviation(const Rows& rows);
// The last rows of `got` against `want`, as a share of `scale`.
double worst(const Rows& got, const Rows& want, double scale);
// Root of the summed squares of what `got` is off by, as a share of those of `want`.
double relative_error(const Rows& got, const Rows& want);
std::size_t argmax(const std::vector<float>& row);
int pages_for(std::size_t tokens);

// The greedy continuation of a prompt, token by token. `gaps`: how far each was ahead.
void check_greedy(LoadedModel& loaded, const Ints& prompt, const Ints& want, const std::vector<float>& gaps,
                  int adapter = -1);

}  // namespace strata::test
