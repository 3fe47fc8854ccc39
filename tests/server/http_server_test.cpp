// The transport against a client that behaves in every wrong way.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "server/raw_client.h"

namespace strata {
namespace {

using namespace std::chrono_literals;
using test::get;
using test::post;
using test::RawClient;

// /echo answers with the body; /hold never ends by itself; /flood writes as fast as it can; /throw throws.
class EchoHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest& head) override {
    if (head.path != "/secret") return std::nullopt;
    HttpResponse response;
    response.status = 401;
    return response;
  }
  void handle(const std::shared_ptr<Exchange>& exchange) override {
    const HttpRequest& request = exchange->request();
    if (request.path == "/throw") throw std::runtime_error("planted");
    HttpResponse response;
    if (request.path == "/echo") {
      response.body = request.method + " " + request.query + " " + request.body;
      return exchange->respond(std::move(response));
    }
    exchange->on_disconnect([this] { ++left; });
    response.content_type = "text/event-stream";
    if (request.path == "/silent") {  // an answer that is still being computed
      held_.push_back(exchange);
      ++held;
      return;
    }
    exchange->start_stream(std::move(response));
    exchange->write("first;");
    if (request.path == "/stream") {
      exchange->write("second;");
      return exchange->end();
    }
    if (request.path == "/flood") return flood(exchange);
    held_.push_back(exchange);
    ++held;
  }
  HttpResponse transport_error(int status, std::string_view message, std::string_view) override {
    HttpResponse response;
    response.status = status;
    response.body = message;
    return response;
  }
  void release() {  // on the io thread
    for (const auto& exchange : held_) {
      exchange->write("last;");
      exchange->end();
    }
    held_.clear();
  }
  std::atomic<int> held{0}, left{0};
  std::vector<std::shared_ptr<Exchange>> held_;

 private:
  void flood(const std::shared_ptr<Exchange>& exchange) {
    if (left > 0) return;
    exchange->write(std::string(100'000, 'x'));
    exchange->post([this, exchange] { flood(exchange); });
  }
};

class HttpServerTest : public testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>(handler_, limits);
    port_ = server_->listen("127.0.0.1", 0);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }
  bool eventually(const std::function<bool()>& done) const {
    for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(10ms);
    return done();
  }
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  start();
  RawClient client(port_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.send(post("/echo?a=1", "body" + std::to_string(i))));
    const std::string response = client.read_response();
    EXPECT_NE(response.find("HTTP/1.1 200 OK"), std::string::npos);
    EXPECT_TRUE(response.ends_with("POST a=1 body" + std::to_string(i))) << response;
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(port_);
  client.send(get("/stream") + post("/echo", "two") + post("/echo", "three"));
  ASSERT_TRUE(client.read_until("POST  three"));
  const std::string& text = client.text();
  EXPECT_LT(text.find("second;"), text.find("POST  two"));
  EXPECT_LT(text.find("POST  two"), text.find("POST  three"));
}

TEST_F(HttpServerTest, StreamsInChunksAndForHttp10UntilClose) {
  start();
  RawClient modern(port_);
  modern.send(get("/stream"));
  ASSERT_TRUE(modern.read_until("0\r\n\r\n"));
  EXPECT_NE(modern.text().find("6\r\nfirst;\r\n7\r\nsecond;\r\n0\r\n\r\n"), std::string::npos);
  RawClient old(port_);
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(old.read_all());
  EXPECT_TRUE(old.text().ends_with("\r\n\r\nfirst;second;")) << old.text();
}

TEST_F(HttpServerTest, TellsTheHandlerThatAClientLeftStreamingOrNot) {
  start();
  RawClient streaming(port_), waiting(port_);
  streaming.send(get("/hold"));
  waiting.send(get("/silent"));
  ASSERT_TRUE(streaming.read_until("first;"));
  ASSERT_TRUE(eventually([&] { return handler_.held == 2; }));
  EXPECT_EQ(handler_.left, 0);
  waiting.close();
  EXPECT_TRUE(eventually([&] { return handler_.left == 1; }));
  streaming.close();
  EXPECT_TRUE(eventually([&] { return handler_.left == 2; }));
  EXPECT_EQ(server_->stats().disconnects, 2u);
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, CutsOffAClientThatDoesNotRead) {
  HttpLimits limits;
  limits.queued_bytes = 1 << 20;
  start(limits);
  RawClient client(port_, 4096);
  client.send(get("/flood"));
  EXPECT_TRUE(eventually([&] { return handler_.left == 1; }));
  EXPECT_EQ(server_->stats().cut_off, 1u);
}

TEST_F(HttpServerTest, RefusesByHeadersBeforeTheBodyArrives) {
  start();
  RawClient client(port_);
  client.send("POST /secret HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  ASSERT_TRUE(client.read_until("401 Unauthorized"));
}

TEST_F(HttpServerTest, RefusesWhatIsTooLarge) {
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.body_bytes = 10'000;
  start(limits);
  RawClient body(port_);
  body.send(post("/echo", std::string(20'000, 'a')));
  EXPECT_TRUE(body.read_until("413 Content Too Large"));
  RawClient chunked(port_);
  chunked.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) chunked.send("400\r\n" + std::string(1024, 'b') + "\r\n");
  EXPECT_TRUE(chunked.read_until("413 Content Too Large"));
  RawClient header(port_);
  header.send(get("/echo", "X-Big: " + std::string(8000, 'c') + "\r\n"));
  EXPECT_TRUE(header.read_until("431 Request Header Fields Too Large"));
  RawClient good(port_);
  good.send(post("/echo", "fine"));
  EXPECT_TRUE(good.read_until("POST  fine"));
}

TEST_F(HttpServerTest, AcceptsChunkedBodiesAndExpectContinue) {
  start();
  RawClient chunked(port_);
  chunked.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_TRUE(chunked.read_until("POST  abcde"));
  RawClient expecting(port_);
  expecting.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  ASSERT_TRUE(expecting.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  expecting.send("data");
  EXPECT_TRUE(expecting.read_until("POST  data"));
}

TEST_F(HttpServerTest, GivesUpOnSlowHeadersAndBodies) {
  HttpLimits limits;
  limits.header_timeout = 100ms;
  limits.body_timeout = 100ms;
  start(limits);
  RawClient silent(port_), half_header(port_), half_body(port_);
  half_header.send("POST /echo HTTP/1.1\r\nHos");
  half_body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_TRUE(silent.read_all());
  EXPECT_TRUE(half_header.read_all());
  EXPECT_TRUE(half_body.read_all());
  half_header.close(), half_body.close(), silent.close();
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, SurvivesGarbage) {
  start();
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    RawClient client(port_);
    std::string bytes = i % 3 == 0 ? "POST /echo HTTP/1.1\r\n" : "";
    for (unsigned n = random() % 3000; n > 0; --n) bytes.push_back(static_cast<char>(random()));
    client.send(bytes + "\r\n\r\n");
    client.half_close();
    if (i % 2 == 0) client.read_all(1000);
  }
  RawClient good(port_);
  good.send(post("/echo", "alive"));
  EXPECT_TRUE(good.read_until("POST  alive"));
  good.close();
  EXPECT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimitAndRecovers) {
  HttpLimits limits;
  limits.connections = 3;
  start(limits);
  {
    RawClient a(port_), b(port_), c(port_);
    ASSERT_TRUE(eventually([&] { return server_->stats().connections == 3; }));
    RawClient d(port_);
    EXPECT_TRUE(d.read_until("503 Service Unavailable"));
  }
  ASSERT_TRUE(eventually([&] { return server_->stats().connections == 0; }));
  RawClient again(port_);
  again.send(post("/echo", "room"));
  EXPECT_TRUE(again.read_until("POST  room"));
}

TEST_F(HttpServerTest, AThrowingHandlerIsA500) {
  start();
  RawClient client(port_);
  client.send(get("/throw"));
  EXPECT_TRUE(client.read_until("500 Internal Server Error"));
}

TEST_F(HttpServerTest, DrainFinishesOpenAnswersAndTakesNoNewOnes) {
  start();
  RawClient idle(port_), open(port_);
  open.send(get("/hold"));
  ASSERT_TRUE(open.read_until("first;"));
  server_->drain(10s);
  EXPECT_TRUE(idle.read_all());
  EXPECT_TRUE(eventually([&] { return !RawClient(port_).connected(); }));
  handler_.held_.front()->post([&] { handler_.release(); });
  EXPECT_TRUE(open.read_all());
  EXPECT_NE(open.text().find("last;"), std::string::npos);
  thread_.join();  // run() has returned by itself
}

TEST_F(HttpServerTest, DrainStopsWaitingAfterItsLimit) {
  start();
  RawClient open(port_);
  open.send(get("/hold"));
  ASSERT_TRUE(open.read_until("first;"));
  server_->drain(50ms);
  thread_.join();
  EXPECT_EQ(open.text().find("last;"), std::string::npos);
}

}  // namespace
}  // namespace strata
