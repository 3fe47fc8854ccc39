// The one error of a backend that a caller may recover from by asking for less.
#pragma once

#include "base/error.h"

namespace strata {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace strata
