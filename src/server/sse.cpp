#include "server/sse.h"

#include "server/api_error.h"

namespace strata {

void SseWriter::event(const Json& data, std::string_view name) { write(sse_event(dump(data), name)); }

void SseWriter::text(std::string_view data) { write(sse_event(data)); }

void SseWriter::write(const std::string& bytes) {
  if (started_) return exchange_->write(bytes);
  started_ = true;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  head.body = bytes;
  exchange_->start_stream(std::move(head));
}

void SseWriter::end() { exchange_->end(); }

}  // namespace strata
