// Server-sent events: how a stream of JSON values is written.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/json_edge.h"
#include "server/sse_event.h"

namespace strata {

// Writes events to an exchange; the head goes out with the first. For the io thread.
class SseWriter {
 public:
  explicit SseWriter(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  bool started() const { return started_; }
  void event(const Json& data, std::string_view name = {});
  void text(std::string_view data);
  void end();

 private:
  void write(const std::string& bytes);
  std::shared_ptr<Exchange> exchange_;
  bool started_ = false;
};

}  // namespace strata
