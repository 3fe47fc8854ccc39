// GET /: the chat page, a single file embedded at build time (page/index.html).
#include <iterator>

#include "server/handlers.h"

namespace strata {
namespace {

constexpr unsigned char kPage[] = {
#include "page_bytes.inc"
};

}  // namespace

void chat_page(Service&, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body.assign(std::begin(kPage), std::end(kPage));
  response.headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                       "connect-src 'self'; img-src data:; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"}};
  exchange->respond(std::move(response));
}

}  // namespace strata
