// HealthWatch: ends a server whose engine has failed.
#pragma once

#include <chrono>
#include <thread>

#include "server/generator.h"
#include "server/http_server.h"

namespace strata {

// A thread from construction to destruction. An engine that has failed answers nothing any more: /health says
// so for `grace`, so that whoever watches hears it, then the server stops. Generator and server outlive this.
class HealthWatch {
 public:
  HealthWatch(const Generator& generator, HttpServer& server, std::chrono::milliseconds grace);

 private:
  std::jthread thread_;
};

}  // namespace strata
