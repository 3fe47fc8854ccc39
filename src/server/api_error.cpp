#include "server/api_error.h"

namespace strata {
namespace {

// https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors
std::string_view error_type(ApiStyle style, int status) {
  const bool anthropic = style == ApiStyle::kAnthropic;
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return anthropic ? "not_found_error" : "invalid_request_error";
    case 413:
      return anthropic ? "request_too_large" : "invalid_request_error";
    case 429:
      return anthropic ? "rate_limit_error" : "rate_limit_exceeded";
    case 500:
      return anthropic ? "api_error" : "server_error";
    case 503:
      return anthropic ? "overloaded_error" : "service_unavailable";
    case 504:
      return anthropic ? "timeout_error" : "timeout";
    default:
      return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
  }
}

}  // namespace

ApiStyle style_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ApiStyle::kAnthropic : ApiStyle::kOpenAi;
}

Json error_body(ApiStyle style, const ApiError& error) {
  const auto type = error_type(style, error.status);
  if (style == ApiStyle::kAnthropic)
    return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
  const Json param = error.param.empty() ? Json(nullptr) : Json(error.param);
  const Json code = error.code.empty() ? Json(nullptr) : Json(error.code);
  return {{"error", {{"message", error.message}, {"type", type}, {"param", param}, {"code", code}}}};
}

HttpResponse error_response(ApiStyle style, const ApiError& error) {
  HttpResponse response = json_response(error_body(style, error));
  response.status = error.status;
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpResponse json_response(const Json& body) {
  HttpResponse response;
  response.body = dump(body);
  return response;
}

}  // namespace strata
