// A small blocking HTTP/1.1 client, enough to put load on a server: POST and GET, whole answers and event
// streams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace strata {

struct HttpUrl {
  std::string host, port, base;  // base: the path before the API's own, without a slash at its end
  // Of "http://host:port/base". Throws Error for anything else.
  static HttpUrl parse(const std::string& text);
};

struct HttpReply {
  int status = 0;
  std::string body;
};

// Thrown when an answer has not come in time; the connection is closed then.
struct HttpTimeout : Error {
  using Error::Error;
};

// One connection, kept open between requests. For one thread. Calls throw Error when the connection fails.
class HttpClient {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // From `give_up_at` on calls throw HttpTimeout, also those that wait for an answer.
  HttpClient(HttpUrl url, std::string api_key, std::optional<TimePoint> give_up_at = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  HttpReply get(std::string_view path);
  // Every piece of the body is given to `on_piece` as it arrives, and gathered in the reply.
  HttpReply post(std::string_view path, std::string_view body,
                 const std::function<void(std::string_view)>& on_piece = {});

 private:
  HttpReply exchange(const std::string& request, const std::function<void(std::string_view)>& on_piece);
  void connect();
  void close();
  void send(std::string_view bytes);
  void fill();  // reads some more into buffer_
  std::string take_line();
  void take(std::size_t size, HttpReply& reply, const std::function<void(std::string_view)>& on_piece);

  HttpUrl url_;
  std::string key_;
  std::optional<TimePoint> give_up_at_;
  int fd_ = -1;
  std::string buffer_;
};

}  // namespace strata
