#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace strata {

void check_failed(const char* expression, const std::string& message, std::source_location where) {
  std::fprintf(stderr, "strata: broken invariant at %s:%u: %s (%s)\n", where.file_name(), where.line(),
               message.c_str(), expression);
  std::fflush(stderr);
  std::abort();
}

}  // namespace strata
