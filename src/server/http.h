// What handlers see of HTTP: a request, a response, and the exchange that carries one to the other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // without the query
  std::string query;    // what follows '?'
  HttpHeaders headers;  // names in lower case
  std::string body;

  // The value of a header by its lower-case name; empty when it is not there.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;  // beside Content-Type and those of the transport
};

// One request and its answer. All methods but post() belong to the io thread. The answer is either respond(),
// or start_stream(), any number of write(), end(). After the client has left, all of them do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void respond(HttpResponse response) = 0;
  virtual void start_stream(HttpResponse head) = 0;  // its body is the first chunk
  virtual void write(std::string_view chunk) = 0;
  virtual void end() = 0;
  // Called once, when the client leaves or is cut off before the end of the answer.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  // Runs the task on the io thread; from any thread.
  virtual void post(std::function<void()> task) = 0;
};

// What the transport serves. Called on the io thread; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // After the headers, before the body is read: a response here refuses the request.
  virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  virtual void handle(const std::shared_ptr<Exchange>& exchange) = 0;
  // The answer to what never became a request (bad syntax, too large, too slow); path may be empty.
  virtual HttpResponse transport_error(int status, std::string_view message, std::string_view path) = 0;
};

}  // namespace strata
