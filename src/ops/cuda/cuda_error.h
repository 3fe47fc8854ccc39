// What happens when CUDA reports an error in a running backend: the process cannot go on and says why.
#pragma once

namespace strata::cuda {

// `code` is a cudaError_t; anything but success throws Error naming `what` and CUDA's words. After one,
// the context is lost: nothing may be run on the device again.
void check_cuda(int code, const char* what);

}  // namespace strata::cuda
