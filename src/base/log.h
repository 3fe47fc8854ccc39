// Logging to stderr: log::info("loaded {} tensors", n). Thread safe; level set once by the command line.
#pragma once

#include <spdlog/spdlog.h>

namespace strata::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

// Sends logs to stderr with a short time stamp. Call once, before threads start.
void setup(spdlog::level::level_enum level);

}  // namespace strata::log
