// A server whose engine has failed says so and ends; a healthy one goes on.
#include "server/health_watch.h"

#include <gtest/gtest.h>

#include <future>

#include "server/fake_engine.h"
#include "server/raw_client.h"

namespace strata::test {
namespace {

class Teapot final : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest&) override { return {}; }
  void handle(const std::shared_ptr<Exchange>& exchange) override { exchange->respond({.status = 418}); }
  HttpResponse transport_error(int status, std::string_view, std::string_view) override {
    return {.status = status};
  }
};

bool answers(std::uint16_t port) {
  RawClient client(port);
  return client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") &&
         client.read_until("418", 2000);
}

TEST(HealthWatch, EndsTheServerOfAFailedEngineOnly) {
  FakeEngine engine({}, [](const Request&) { return std::vector<int>{}; });
  Teapot teapot;
  HttpServer server(teapot, {});
  const std::uint16_t port = server.listen("127.0.0.1", 0);
  auto running = std::async(std::launch::async, [&] { server.run(); });
  {
    const HealthWatch watch(engine, server, std::chrono::milliseconds(500));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(answers(port));
  }
  EXPECT_TRUE(answers(port));  // a watch that ends leaves the server alone
  const HealthWatch watch(engine, server, std::chrono::milliseconds(500));
  engine.healthy_flag = false;
  EXPECT_TRUE(answers(port));  // for the grace
  EXPECT_EQ(running.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace strata::test
