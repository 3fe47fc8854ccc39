// Errors of requests are values: Result<T> holds a T or the reason why there is none.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace strata {

// What is wrong with a request, in words for the person who sent it. `param` names the field at fault, if one is.
struct RequestError {
  std::string message;
  std::string param;
};

template <typename T>
using Result = tl::expected<T, RequestError>;

// return bad_request("temperature must be at least 0, is -1", "temperature");
inline tl::unexpected<RequestError> bad_request(std::string message, std::string param = {}) {
  return tl::unexpected<RequestError>(RequestError{std::move(message), std::move(param)});
}

}  // namespace strata
