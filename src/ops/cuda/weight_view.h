// The CUDA layout of a Weight as the plain view that kernels take.
#pragma once

#include <string_view>

#include "ops/cuda/views.h"
#include "ops/weight.h"

namespace strata::cuda {

WeightView weight_of(std::string_view op, const Weight& w);

}  // namespace strata::cuda
