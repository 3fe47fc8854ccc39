// The HTTP/1.1 transport: sockets, limits, timeouts, keep-alive and draining, on one io thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/http.h"

namespace strata {

struct HttpLimits {
  std::size_t header_bytes = 32 << 10;
  std::size_t body_bytes = 32 << 20;         // of one request
  std::size_t total_body_bytes = 512 << 20;  // of all requests being read or answered
  std::size_t queued_bytes =
      8 << 20;  // written but not yet taken by one client; past it the client is cut off
  int connections = 1024;
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{60'000};   // for the whole body
  std::chrono::milliseconds write_timeout{30'000};  // without a byte taken
  std::chrono::milliseconds idle_timeout{75'000};   // between requests of a connection
};

// Readable from any thread.
struct HttpStats {
  std::atomic<int> connections{0};
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> refused_connections{0};
  std::atomic<std::uint64_t> malformed_requests{0};
  std::atomic<std::uint64_t> disconnects{0};  // clients that left before the end of their answer
  std::atomic<std::uint64_t> cut_off{0};      // of those, clients that took their answer too slowly
};

struct HttpServerCore;

// The thread that calls run() is the io thread. The handler must outlive run(). Exchanges may outlive the
// server: then they do nothing.
class HttpServer {
 public:
  HttpServer(HttpHandler& handler, HttpLimits limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; port 0 takes a free one. Returns the port. Throws Error.
  std::uint16_t listen(const std::string& host, std::uint16_t port);
  // Serves until stop(), or until drain() and the last answer.
  void run();
  // No new connections; open answers are finished, at most for `limit`. From any thread.
  void drain(std::chrono::milliseconds limit);
  // Closes everything at once. From any thread.
  void stop();
  // SIGTERM or SIGINT drains after telling `on_drain`; a second one stops. Call before run().
  void drain_on_signals(std::chrono::milliseconds limit, std::function<void()> on_drain);

  const HttpStats& stats() const;

 private:
  std::shared_ptr<HttpServerCore> core_;
};

}  // namespace strata
