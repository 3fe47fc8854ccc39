#include "server/http_server.h"

#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "server/http_wire.h"

namespace strata {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;
constexpr auto kAsync = asio::as_tuple(asio::use_awaitable);

namespace {

constexpr std::size_t kWritePiece = 64 << 10;  // a client must take this much within write_timeout
constexpr std::size_t kReadAhead = 16 << 10;   // bytes of a pipelined request kept while one is answered
constexpr std::size_t kLingerBytes =
    128 << 20;  // of a refused body read and dropped, so that the refusal arrives
constexpr std::chrono::seconds kLingerTime{3};

class Connection;

}  // namespace

// Member order is the order of destruction backwards: the io context goes while what its coroutines use is
// alive.
struct HttpServerCore {
  HttpServerCore(HttpHandler& h, HttpLimits l) : handler(h), limits(l) {}
  asio::awaitable<void> accept_loop();
  void begin_drain(std::chrono::milliseconds limit);
  void finish_if_drained();
  asio::awaitable<void> wait_for_signals(std::chrono::milliseconds limit, std::function<void()> on_drain);

  HttpHandler& handler;
  const HttpLimits limits;
  HttpStats stats;
  std::size_t body_bytes = 0;  // announced or read, of all connections
  bool draining = false;
  std::unordered_set<Connection*> connections;
  std::weak_ptr<HttpServerCore> self;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{io};
};

namespace {

using Core = HttpServerCore;

// Lives as long as its last holder; the connection detaches itself when it ends.
class HttpExchange final : public Exchange {
 public:
  HttpExchange(HttpRequest request, std::weak_ptr<asio::io_context> io, Connection* connection, bool http11)
      : request_(std::move(request)), io_(std::move(io)), connection_(connection), http11_(http11) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override;
  void start_stream(HttpResponse head) override;
  void write(std::string_view chunk) override;
  void end() override;
  void on_disconnect(std::function<void()> callback) override { on_disconnect_ = std::move(callback); }
  void post(std::function<void()> task) override {
    if (auto io = io_.lock()) asio::post(*io, std::move(task));
  }

  bool ended() const { return ended_; }
  bool keep_alive = false;
  std::string take_output() { return std::exchange(out_, {}); }
  bool has_output() const { return !out_.empty(); }
  void detach(bool disconnected) {
    connection_ = nullptr;
    out_.clear();
    auto callback = std::exchange(on_disconnect_, nullptr);
    if (disconnected && !ended_ && callback) callback();
  }

 private:
  void wake();

  HttpRequest request_;
  std::weak_ptr<asio::io_context> io_;
  Connection* connection_;
  std::function<void()> on_disconnect_;
  std::string out_;
  const bool http11_;
  bool started_ = false, ended_ = false;
};

class Connection {
 public:
  Connection(Core& core, tcp::socket socket) : core_(core), stream_(std::move(socket)), signal_(core.io) {
    core_.connections.insert(this);
    ++core_.stats.connections;
  }
  ~Connection() {
    if (exchange_) exchange_->detach(true);
    release_body();
    core_.connections.erase(this);
    --core_.stats.connections;
    core_.finish_if_drained();
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  asio::awaitable<void> serve() {
    while (co_await serve_one()) {
    }
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (linger_) co_await linger();
  }

  void close_if_idle() {
    if (idle_) stream_.cancel();
  }
  void wake() { signal_.cancel(); }
  bool over_queue(std::size_t bytes) const { return bytes > core_.limits.queued_bytes; }
  void cut_off() {
    if (std::exchange(cut_off_, true)) return;
    ++core_.stats.cut_off;
    stream_.cancel();
    wake();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  // True when the connection can carry another request.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(core_.limits.header_bytes));
    parser.body_limit(core_.limits.body_bytes);
    if (!co_await wait_for_request()) co_return false;

    stream_.expires_after(core_.limits.header_timeout);
    auto [head_error, head_bytes] = co_await http::async_read_header(stream_, buffer_, parser, kAsync);
    if (head_error) co_return co_await refuse_malformed(head_error, "");
    HttpRequest request;
    request.method = std::string(parser.get().method_string());
    for (const auto& field : parser.get())
      request.headers.emplace_back(lower_case(field.name_string()), std::string(field.value()));
    const auto target = parser.get().target();
    if (!split_target({target.data(), target.size()}, request.path, request.query))
      co_return co_await refuse(400, "the request target must be a path", "");
    const bool http11 = parser.get().version() >= 11;
    const bool keep_alive = parser.get().keep_alive() && !core_.draining;

    if (auto refusal = core_.handler.refuse(request))
      co_return co_await answer_and_close(std::move(*refusal));
    const std::uint64_t announced =
        parser.content_length().value_or(parser.chunked() ? core_.limits.body_bytes : 0);
    if (announced > core_.limits.body_bytes)
      co_return co_await refuse_malformed(http::error::body_limit, request.path);
    if (core_.body_bytes + announced > core_.limits.total_body_bytes)
      co_return co_await refuse(503, "too many request bodies at once; try again", request.path);
    held_body_ = announced;
    core_.body_bytes += held_body_;
    if (!parser.is_done()) {
      if (lower_case(request.header("expect")) == "100-continue") {
        stream_.expires_after(core_.limits.write_timeout);
        auto [e, n] =
            co_await asio::async_write(stream_, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25), kAsync);
        if (e) co_return false;
      }
      stream_.expires_after(core_.limits.body_timeout);
      auto [body_error, body_bytes] = co_await http::async_read(stream_, buffer_, parser, kAsync);
      if (body_error) co_return co_await refuse_malformed(body_error, request.path);
    }
    request.body = std::move(parser.get().body());
    stream_.expires_never();

    exchange_ = std::make_shared<HttpExchange>(
        std::move(request), std::shared_ptr<asio::io_context>(core_.self.lock(), &core_.io), this, http11);
    exchange_->keep_alive = keep_alive;
    const bool reusable = co_await answer();
    const bool gone = !exchange_->ended() || exchange_->has_output();
    if (gone) ++core_.stats.disconnects;
    exchange_->detach(gone);
    exchange_.reset();
    release_body();
    co_return reusable && !core_.draining;
  }

  asio::awaitable<bool> wait_for_request() {
    if (buffer_.size() > 0) co_return true;
    if (core_.draining) co_return false;
    idle_ = true;
    stream_.expires_after(first_ ? core_.limits.header_timeout : core_.limits.idle_timeout);
    first_ = false;
    auto [error, n] = co_await stream_.async_read_some(buffer_.prepare(4096), kAsync);
    idle_ = false;
    buffer_.commit(n);
    co_return !error;
  }

  // Runs the handler, carries its output to the client and watches for the client leaving.
  asio::awaitable<bool> answer() {
    try {
      core_.handler.handle(exchange_);
    } catch (const std::exception& e) {
      log::error("{} {}: {}", exchange_->request().method, exchange_->request().path, e.what());
      exchange_->keep_alive = false;
      exchange_->respond(core_.handler.transport_error(500, "internal error", exchange_->request().path));
      exchange_->end();
    }
    bool watch = true;
    for (;;) {
      if (cut_off_) co_return false;
      if (exchange_->has_output()) {
        if (!co_await write(exchange_->take_output())) co_return false;
        continue;
      }
      if (exchange_->ended()) co_return exchange_->keep_alive;
      signal_.expires_at(asio::steady_timer::time_point::max());
      if (watch) {
        auto result = co_await (signal_.async_wait(kAsync) ||
                                stream_.socket().async_wait(tcp::socket::wait_read, kAsync));
        if (result.index() == 1 && !read_ahead(watch)) co_return false;
      } else {
        co_await signal_.async_wait(kAsync);
      }
    }
  }

  // Takes what the client sends meanwhile; false when it has closed its side.
  bool read_ahead(bool& watch) {
    error_code error;
    stream_.socket().non_blocking(true, error);
    const std::size_t n = stream_.socket().read_some(buffer_.prepare(4096), error);
    buffer_.commit(n);
    watch = buffer_.size() < kReadAhead;
    return !error || error == asio::error::would_block;
  }

  asio::awaitable<bool> write(std::string bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += kWritePiece) {
      const std::size_t n = std::min(kWritePiece, bytes.size() - at);
      stream_.expires_after(core_.limits.write_timeout);
      auto [error, written] = co_await asio::async_write(stream_, asio::buffer(bytes.data() + at, n), kAsync);
      if (error == beast::error::timeout) ++core_.stats.cut_off;
      if (error || cut_off_) co_return false;
    }
    stream_.expires_never();
    co_return true;
  }

  asio::awaitable<bool> refuse_malformed(error_code error, std::string_view path) {
    if (error == asio::error::eof || error == http::error::end_of_stream ||
        error == asio::error::connection_reset || error == asio::error::operation_aborted)
      co_return false;
    ++core_.stats.malformed_requests;
    if (error == http::error::body_limit)
      co_return co_await refuse(413, fmt::format("the body exceeds {} bytes", core_.limits.body_bytes), path);
    if (error == http::error::header_limit)
      co_return co_await refuse(431, fmt::format("the headers exceed {} bytes", core_.limits.header_bytes),
                                path);
    if (error == beast::error::timeout) co_return false;  // the stream has closed its socket
    co_return co_await refuse(400, "this is not an HTTP/1.1 request: " + error.message(), path);
  }

  asio::awaitable<bool> refuse(int status, std::string message, std::string_view path) {
    co_return co_await answer_and_close(core_.handler.transport_error(status, message, path));
  }

  asio::awaitable<bool> answer_and_close(HttpResponse response) {
    linger_ = true;
    co_await write(response_head(response, BodyFraming::kLength, response.body.size(), false) +
                   response.body);
    co_return false;
  }

  // Reads on for a while, so that a client still sending its body gets to read why it was refused.
  asio::awaitable<void> linger() {
    stream_.expires_after(kLingerTime);
    std::string sink(kWritePiece, '\0');
    for (std::size_t total = 0; total < kLingerBytes;) {
      auto [error, n] = co_await stream_.async_read_some(asio::buffer(sink), kAsync);
      if (error) break;
      total += n;
    }
  }

  void release_body() { core_.body_bytes -= std::exchange(held_body_, 0); }

  Core& core_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer signal_;
  std::shared_ptr<HttpExchange> exchange_;
  std::size_t held_body_ = 0;
  bool idle_ = false, first_ = true, linger_ = false, cut_off_ = false;
};

void HttpExchange::wake() {
  if (connection_->over_queue(out_.size())) return connection_->cut_off();
  connection_->wake();
}

void HttpExchange::respond(HttpResponse response) {
  if (!connection_ || started_) return;
  started_ = ended_ = true;
  out_ = response_head(response, BodyFraming::kLength, response.body.size(), keep_alive);
  if (request_.method != "HEAD") out_ += response.body;
  connection_->wake();  // a whole answer may exceed the queue: its size is bounded by the request
}

void HttpExchange::start_stream(HttpResponse head) {
  if (!connection_ || started_) return;
  started_ = true;
  if (!http11_) keep_alive = false;
  out_ = response_head(head, http11_ ? BodyFraming::kChunked : BodyFraming::kUntilClose, 0, keep_alive);
  write(head.body);
  wake();
}

void HttpExchange::write(std::string_view chunk) {
  if (!connection_ || ended_) return;
  if (http11_) append_chunk(out_, chunk);
  if (!http11_) out_ += chunk;
  wake();
}

void HttpExchange::end() {
  if (!connection_ || ended_) return;
  ended_ = true;
  if (http11_) out_ += kLastChunk;
  wake();
}

}  // namespace

asio::awaitable<void> HttpServerCore::accept_loop() {
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(kAsync);
    if (!acceptor.is_open()) break;
    if (error) {  // out of file descriptors, most likely: wait for some to come back
      log::warn("accept: {}", error.message());
      asio::steady_timer pause(io, std::chrono::milliseconds(50));
      co_await pause.async_wait(kAsync);
      continue;
    }
    if (static_cast<int>(connections.size()) >= limits.connections) {
      ++stats.refused_connections;
      const HttpResponse full = handler.transport_error(503, "too many connections; try again", "");
      const std::string bytes =
          response_head(full, BodyFraming::kLength, full.body.size(), false) + full.body;
      error_code ignored;
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(bytes), ignored);
      continue;
    }
    ++stats.accepted;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    asio::co_spawn(
        io,
        [](HttpServerCore& core, tcp::socket s) -> asio::awaitable<void> {
          Connection connection(core, std::move(s));
          co_await connection.serve();
        }(*this, std::move(socket)),
        [](std::exception_ptr failure) {
          try {
            if (failure) std::rethrow_exception(failure);
          } catch (const std::exception& e) {
            log::error("connection: {}", e.what());
          }
        });
  }
}

void HttpServerCore::begin_drain(std::chrono::milliseconds limit) {
  if (std::exchange(draining, true)) return;
  error_code ignored;
  acceptor.close(ignored);
  for (Connection* connection : connections) connection->close_if_idle();
  drain_timer.expires_after(limit);
  drain_timer.async_wait([this](error_code error) {
    if (!error) io.stop();
  });
  finish_if_drained();
}

void HttpServerCore::finish_if_drained() {
  if (!draining || !connections.empty()) return;
  error_code ignored;
  signals.cancel(ignored);
  drain_timer.cancel();
}

asio::awaitable<void> HttpServerCore::wait_for_signals(std::chrono::milliseconds limit,
                                                       std::function<void()> on_drain) {
  auto [first_error, first] = co_await signals.async_wait(kAsync);
  if (first_error) co_return;
  log::info("signal {}: finishing open requests", first);
  on_drain();
  begin_drain(limit);
  if (connections.empty()) co_return;  // nothing is open: the server ends now
  auto [second_error, second] = co_await signals.async_wait(kAsync);
  if (!second_error) io.stop();
}

HttpServer::HttpServer(HttpHandler& handler, HttpLimits limits)
    : core_(std::make_shared<HttpServerCore>(handler, limits)) {
  core_->self = core_;
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::listen(const std::string& host, std::uint16_t port) {
  try {
    tcp::resolver resolver(core_->io);
    const tcp::endpoint endpoint =
        *resolver.resolve(host, std::to_string(port), tcp::resolver::passive).begin();
    core_->acceptor.open(endpoint.protocol());
    core_->acceptor.set_option(tcp::acceptor::reuse_address(true));
    core_->acceptor.bind(endpoint);
    core_->acceptor.listen(1024);
    asio::co_spawn(core_->io, core_->accept_loop(), asio::detached);
    return core_->acceptor.local_endpoint().port();
  } catch (const boost::system::system_error& e) {
    throw Error("cannot listen on {}:{}: {}", host, port, e.code().message());
  }
}

void HttpServer::run() { core_->io.run(); }

void HttpServer::drain(std::chrono::milliseconds limit) {
  asio::post(core_->io, [core = core_.get(), limit] { core->begin_drain(limit); });
}

void HttpServer::stop() { core_->io.stop(); }

void HttpServer::drain_on_signals(std::chrono::milliseconds limit, std::function<void()> on_drain) {
  core_->signals.add(SIGTERM);
  core_->signals.add(SIGINT);
  asio::co_spawn(core_->io, core_->wait_for_signals(limit, std::move(on_drain)), asio::detached);
}

const HttpStats& HttpServer::stats() const { return core_->stats; }

}  // namespace strata
