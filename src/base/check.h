// Checks of invariants that hold in every build: a broken one stops the process with its reason.
#pragma once

#include <fmt/format.h>

#include <string>

namespace strata {

// Writes the reason and the place to stderr and aborts.
// (The place by builtins: clang 14 with libstdc++ has no std::source_location.)
[[noreturn]] void check_failed(const char* expression, const std::string& message,
                               const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace strata

// STRATA_CHECK(cond, "head_dim: q {}, k {}", q, k): for what can only be false if Strata itself is wrong.
// Bad input is never checked this way: see base/error.h (loading) and base/result.h (requests).
#define STRATA_CHECK(condition, ...)                                             \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      ::strata::check_failed(#condition, ::fmt::format(__VA_ARGS__));            \
  } while (false)
