// The CUDA stream type by name only, so that headers need no CUDA.
#pragma once

struct CUstream_st;

namespace strata::cuda {

using Stream = CUstream_st*;

}  // namespace strata::cuda
