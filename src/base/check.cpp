#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

void check_failed(const char* expression, const std::string& message, const char* file, int line) {
  std::fprintf(stderr, "strata: broken invariant at %s:%d: %s (%s)\n", file, line, message.c_str(),
               expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace strata
