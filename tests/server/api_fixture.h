// A whole server on a free port of this machine, over a scripted engine and the demo model's tokenizer.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "server/app.h"
#include "server/fake_engine.h"
#include "server/http_server.h"
#include "server/raw_client.h"

namespace strata::test {

struct Answer {
  int status = 0;
  std::string head, text;
  Json json;
};

// Takes the chunk sizes out of a chunked body.
inline std::string dechunk(std::string_view body) {
  std::string out;
  while (!body.empty()) {
    const auto line = body.find("\r\n");
    if (line == std::string_view::npos) break;
    const std::size_t size = std::stoul(std::string(body.substr(0, line)), nullptr, 16);
    if (size == 0 || body.size() < line + 2 + size) break;
    out += body.substr(line + 2, size);
    body.remove_prefix(std::min(body.size(), line + 2 + size + 2));
  }
  return out;
}

// The data of a stream's events, "[DONE]" left out.
inline std::vector<Json> events_of(std::string_view text) {
  std::vector<Json> out;
  for (std::size_t at = 0; (at = text.find("data: ", at)) != std::string_view::npos;) {
    at += 6;
    const auto data = text.substr(at, text.find('\n', at) - at);
    if (data != "[DONE]") out.push_back(Json::parse(data));
  }
  return out;
}

class ApiTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = STRATA_SOURCE_DIR "/models/tiny-hybrid/";
    service_.tokenizer = std::make_shared<Tokenizer>(Tokenizer::from_json_file(folder + "tokenizer.json"));
    service_.chat_template = load_template(folder);
    ModelInfo info;
    info.name = "tiny";
    info.vocab_size = service_.tokenizer->vocab_size();
    info.max_context = 4096;
    info.end_tokens = {1191};
    engine_ = std::make_unique<FakeEngine>(info, [this](const Request& request) { return script_(request); });
    service_.generator = engine_.get();
    service_.names = {"tiny"};
    (void)engine_->load_adapter("polite", "good", false);
    if (configure) configure();
    app_ = std::make_unique<App>(service_, keys_);
    server_ = std::make_unique<HttpServer>(*app_, limits_);
    service_.http = &server_->stats();
    port_ = server_->listen("127.0.0.1", 0);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    server_->stop();
    thread_.join();
    engine_.reset();
    server_.reset();
  }

  static std::shared_ptr<const ChatTemplate> load_template(const std::string& folder);

  std::vector<int> encode(std::string_view text) const {
    return service_.tokenizer->encode(text, {.add_special = false});
  }
  void say(std::string text) {
    script_ = [this, text = std::move(text)](const Request&) { return encode(text); };
  }
  std::string prompt_text(std::size_t request = 0) const {
    return service_.tokenizer->decode(engine_->requests().at(request).prompt, false);
  }

  Answer send(const std::string& bytes) const {
    RawClient client(port_);
    client.send(bytes);
    Answer out;
    out.text = client.read_response();
    const auto end = out.text.find("\r\n\r\n");
    if (end == std::string::npos) return out;
    out.head = out.text.substr(0, end + 4);
    out.status = std::stoi(out.text.substr(9, 3));
    out.text.erase(0, end + 4);
    if (out.head.find("chunked") != std::string::npos) {
      client.read_until("0\r\n\r\n");
      out.text = dechunk(out.text + client.text());
    }
    out.json = Json::parse(out.text, nullptr, false);
    return out;
  }
  Answer ask(std::string_view path, const Json& body, std::string_view headers = "") const {
    return send(post(path, body.dump(), headers));
  }
  bool eventually(const std::function<bool()>& done) const {
    for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return done();
  }

  std::function<void()> configure;
  FakeEngine::Script script_ = [](const Request&) { return std::vector<int>{}; };
  Service service_;
  ApiKeys keys_;
  HttpLimits limits_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<App> app_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::uint16_t port_ = 0;
};

inline Json user(std::string_view text) { return {{"role", "user"}, {"content", text}}; }
inline Json chat(std::string_view text) {
  return {{"model", "tiny"}, {"messages", Json::array({user(text)})}};
}
inline Json weather_tool() {
  return Json::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])");
}

}  // namespace strata::test
