#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace strata::log {

void setup(spdlog::level::level_enum level) {
  auto logger = spdlog::stderr_color_mt("strata");
  logger->set_pattern("%H:%M:%S.%e %^%l%$ %v");
  logger->set_level(level);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace strata::log
