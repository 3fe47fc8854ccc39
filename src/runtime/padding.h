// Padding: the few shapes that decode and verify steps are brought to, so that a recorded step serves again.
#pragma once

#include "ops/batch.h"

namespace strata {

// Numbers of rows and the like are rounded up to four steps an octave: 1..8, 10, 12, 14, 16, 20, ...
int padded_count(int n);

// Whether a step is of the kind that is padded: runs short enough for a tape.
inline bool is_paddable(const BatchShape& shape) { return shape.longest_run <= kTapeRows; }

// The smallest shape to pad to: each sequence added has at least one row and at most longest_run.
// padded_shape(padded_shape(x)) == padded_shape(x). The context becomes a power of two, as only the geometry
// of attention depends on it.
BatchShape padded_shape(const BatchShape& shape);

}  // namespace strata
