// The server's routes: which handler answers which path, who may call it, and what is counted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "server/auth.h"
#include "server/http.h"
#include "server/service.h"

namespace strata {

// For the io thread. Service and keys must outlive it.
class App final : public HttpHandler {
 public:
  App(Service& service, const ApiKeys& keys);

  std::optional<HttpResponse> refuse(const HttpRequest& head) override;
  void handle(const std::shared_ptr<Exchange>& exchange) override;
  HttpResponse transport_error(int status, std::string_view message, std::string_view path) override;

 private:
  using Route = std::function<void(Service&, const std::shared_ptr<Exchange>&)>;
  void add(std::string method, std::string path, Route route, bool open = false);

  struct Entry {
    Route route;
    bool open;  // needs no key
  };
  Service& service_;
  const ApiKeys& keys_;
  std::map<std::string, std::map<std::string, Entry>, std::less<>> routes_;  // by path, then method
};

}  // namespace strata
