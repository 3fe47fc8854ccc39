#include "server/app.h"

#include <fmt/format.h>

#include "server/api_error.h"
#include "server/handlers.h"

namespace strata {
namespace {

// Counts the answer by path and status on its way out.
class CountedExchange final : public Exchange {
 public:
  CountedExchange(std::shared_ptr<Exchange> inner, Service& service)
      : inner_(std::move(inner)), service_(service) {}
  const HttpRequest& request() const override { return inner_->request(); }
  void respond(HttpResponse response) override {
    count(response.status);
    inner_->respond(std::move(response));
  }
  void start_stream(HttpResponse head) override {
    count(head.status);
    inner_->start_stream(std::move(head));
  }
  void write(std::string_view chunk) override { inner_->write(chunk); }
  void end() override { inner_->end(); }
  void on_disconnect(std::function<void()> callback) override { inner_->on_disconnect(std::move(callback)); }
  void post(std::function<void()> task) override { inner_->post(std::move(task)); }

 private:
  void count(int status) { ++service_.responses[{request().path, status}]; }
  std::shared_ptr<Exchange> inner_;
  Service& service_;
};

}  // namespace

App::App(Service& service, const ApiKeys& keys) : service_(service), keys_(keys) {
  add("POST", "/v1/chat/completions", openai_chat);
  add("POST", "/v1/completions", openai_completions);
  add("POST", "/v1/responses", openai_responses);
  add("POST", "/v1/messages", anthropic_messages);
  add("POST", "/v1/messages/count_tokens", anthropic_count_tokens);
  add("GET", "/v1/models", list_models);
  add("POST", "/v1/load_lora_adapter", load_lora_adapter);
  add("POST", "/v1/unload_lora_adapter", unload_lora_adapter);
  add("POST", "/tokenize", tokenize);
  add("POST", "/detokenize", detokenize);
  add("GET", "/health", health, true);
  add("GET", "/health/live", health_live, true);
  add("GET", "/metrics", metrics_page, true);
  add("GET", "/", chat_page, true);
}

void App::add(std::string method, std::string path, Route route, bool open) {
  if (method == "GET") routes_[path]["HEAD"] = {route, open};
  routes_[std::move(path)][std::move(method)] = {std::move(route), open};
}

std::optional<HttpResponse> App::refuse(const HttpRequest& head) {
  const ApiStyle style = style_of(head.path);
  const auto path = routes_.find(head.path.starts_with("/v1/models/") ? "/v1/models" : head.path);
  std::optional<HttpResponse> out;
  if (path == routes_.end()) {
    out = error_response(style, {404, fmt::format("there is no {}", head.path.substr(0, 200)), {}, {}});
  } else if (const auto entry = path->second.find(head.method); entry == path->second.end()) {
    std::string allowed;
    for (const auto& [method, route] : path->second) allowed += (allowed.empty() ? "" : ", ") + method;
    out = error_response(style, {405, fmt::format("{} takes {}", path->first, allowed), {}, {}});
    out->headers.emplace_back("Allow", allowed);
  } else if (!entry->second.open && !keys_.allow(head)) {
    out = error_response(style, {401, "the API key is missing or wrong", {}, "invalid_api_key"});
  }
  if (out) ++service_.responses[{path == routes_.end() ? "other" : path->first, out->status}];
  return out;
}

void App::handle(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const bool one_model = request.path.starts_with("/v1/models/");
  const Entry& entry = routes_.at(one_model ? "/v1/models" : request.path).at(request.method);
  if (one_model) return entry.route(service_, exchange);  // its path is the caller's: not counted by path
  entry.route(service_, std::make_shared<CountedExchange>(exchange, service_));
}

HttpResponse App::transport_error(int status, std::string_view message, std::string_view path) {
  ++service_.responses[{routes_.contains(path) ? std::string(path) : "other", status}];
  return error_response(style_of(path), {status, std::string(message), {}, {}});
}

}  // namespace strata
