// Packs rows of GGUF blocks into the panels of quant_layout.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

// A panel of `lanes` (at most 16) rows, `stride` bytes apart. The panel must be zeros.
void pack_quant_panel(DType dtype, const std::byte* rows, std::int64_t stride, int lanes, std::int64_t inputs,
                      std::byte* panel);

}  // namespace strata::cpu
