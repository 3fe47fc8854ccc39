#include "cli/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace strata {
namespace {

std::string_view header_value(std::string_view line, std::string_view name) {
  if (line.size() <= name.size() || line[name.size()] != ':') return {};
  for (std::size_t i = 0; i < name.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(line[i])) != name[i]) return {};
  line.remove_prefix(name.size() + 1);
  while (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

}  // namespace

HttpUrl HttpUrl::parse(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) throw Error("{}: the address must begin with http://", text);
  std::string rest = text.substr(kScheme.size());
  HttpUrl url;
  const auto slash = rest.find('/');
  if (slash != std::string::npos) url.base = rest.substr(slash);
  while (url.base.ends_with('/')) url.base.pop_back();
  rest = rest.substr(0, slash);
  const auto colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && !rest.ends_with(']');
  url.host = rest.substr(0, has_port ? colon : std::string::npos);
  url.port = has_port ? rest.substr(colon + 1) : "80";
  if (url.host.starts_with('[') && url.host.ends_with(']'))
    url.host = url.host.substr(1, url.host.size() - 2);
  if (url.host.empty() || url.port.empty()) throw Error("{}: no host in this address", text);
  return url;
}

HttpClient::HttpClient(HttpUrl url, std::string api_key, std::optional<TimePoint> give_up_at)
    : url_(std::move(url)), key_(std::move(api_key)), give_up_at_(give_up_at) {}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  buffer_.clear();
}

void HttpClient::connect() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int e = ::getaddrinfo(url_.host.c_str(), url_.port.c_str(), &hints, &found); e != 0)
    throw Error("{}: {}", url_.host, gai_strerror(e));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> holder(found, &::freeaddrinfo);
  for (const addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
    fd_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd_ >= 0 && ::connect(fd_, a->ai_addr, a->ai_addrlen) != 0) close();
  }
  if (fd_ < 0) throw Error("cannot connect to {}:{}", url_.host, url_.port);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) throw Error("the server closed the connection");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void HttpClient::fill() {
  if (give_up_at_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*give_up_at_ - std::chrono::steady_clock::now());
    pollfd waits{.fd = fd_, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&waits, 1, static_cast<int>(left.count())) == 0)
      throw HttpTimeout("no answer in time");
  }
  char piece[16384];
  const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
  if (n <= 0) throw Error("the server closed the connection in the middle of an answer");
  buffer_.append(piece, static_cast<std::size_t>(n));
}

std::string HttpClient::take_line() {
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) fill();
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

void HttpClient::take(std::size_t size, HttpReply& reply,
                      const std::function<void(std::string_view)>& on_piece) {
  while (size > 0) {
    if (buffer_.empty()) fill();
    const std::size_t n = std::min(size, buffer_.size());
    if (on_piece) on_piece(std::string_view(buffer_).substr(0, n));
    reply.body.append(buffer_, 0, n);
    buffer_.erase(0, n);
    size -= n;
  }
}

HttpReply HttpClient::get(std::string_view path) {
  return exchange(fmt::format("GET {}{} HTTP/1.1\r\nHost: {}\r\n{}\r\n", url_.base, path, url_.host,
                              key_.empty() ? "" : "Authorization: Bearer " + key_ + "\r\n"),
                  {});
}

HttpReply HttpClient::post(std::string_view path, std::string_view body,
                           const std::function<void(std::string_view)>& on_piece) {
  return exchange(
      fmt::format("POST {}{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}Content-Length: "
                  "{}\r\n\r\n{}",
                  url_.base, path, url_.host, key_.empty() ? "" : "Authorization: Bearer " + key_ + "\r\n",
                  body.size(), body),
      on_piece);
}

HttpReply HttpClient::exchange(const std::string& request,
                               const std::function<void(std::string_view)>& on_piece) {
  if (fd_ < 0) connect();
  HttpReply reply;
  try {
    send(request);
    const std::string status = take_line();
    if (status.size() < 12) throw Error("not an HTTP answer: {}", status);
    reply.status = std::stoi(status.substr(9, 3));
    std::size_t length = 0;
    bool chunked = false, keep = true;
    for (std::string line = take_line(); !line.empty(); line = take_line()) {
      if (const auto v = header_value(line, "content-length"); !v.empty())
        length = std::stoul(std::string(v));
      if (header_value(line, "transfer-encoding") == "chunked") chunked = true;
      if (header_value(line, "connection") == "close") keep = false;
    }
    if (!chunked) take(length, reply, on_piece);
    while (chunked) {
      const std::size_t size = std::stoul(take_line(), nullptr, 16);
      take(size, reply, on_piece);
      take_line();
      chunked = size > 0;
    }
    if (!keep) close();
  } catch (const std::exception&) {
    close();
    throw;
  }
  return reply;
}

}  // namespace strata
