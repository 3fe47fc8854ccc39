// Errors as each API writes them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"
#include "server/json_edge.h"

namespace strata {

enum class ApiStyle : unsigned char { kOpenAi, kAnthropic };

// The style of a path: Anthropic's for /v1/messages and below, OpenAI's for the rest.
ApiStyle style_of(std::string_view path);

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field at fault, or empty
  std::string code;   // "model_not_found"; or empty

  static ApiError from(const RequestError& error) { return {400, error.message, error.param, {}}; }
};

Json error_body(ApiStyle style, const ApiError& error);
HttpResponse error_response(ApiStyle style, const ApiError& error);

// JSON text; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);
HttpResponse json_response(const Json& body);

}  // namespace strata
