#include "server/http_wire.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iterator>

namespace strata {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string response_head(const HttpResponse& response, BodyFraming framing, std::size_t length,
                          bool keep_alive) {
  std::string out;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "HTTP/1.1 {} {}\r\nServer: strata\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\n",
                 response.status, reason_phrase(response.status), fmt::gmtime(std::time(nullptr)));
  if (!response.content_type.empty()) fmt::format_to(to, "Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) fmt::format_to(to, "{}: {}\r\n", name, value);
  if (framing == BodyFraming::kLength) fmt::format_to(to, "Content-Length: {}\r\n", length);
  if (framing == BodyFraming::kChunked) out += "Transfer-Encoding: chunked\r\n";
  out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", data.size());
  out.append(data).append("\r\n");
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

bool split_target(std::string_view target, std::string& path, std::string& query) {
  if (target.empty() || target[0] != '/') return false;
  const auto mark = target.find('?');
  query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  target = target.substr(0, mark);
  path.clear();
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path.push_back(target[i]);
      continue;
    }
    unsigned value = 0;
    if (i + 3 > target.size()) return false;
    const char* end = target.data() + i + 3;
    if (std::from_chars(target.data() + i + 1, end, value, 16).ptr != end) return false;
    path.push_back(static_cast<char>(value));
    i += 2;
  }
  return true;
}

}  // namespace strata
