// Where JSON becomes types: a parser that cannot be made to overflow, and readers that name the field at
// fault.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace strata {

using Json = nlohmann::ordered_json;  // keeps the order of keys, which templates show to the model

inline constexpr int kMaxJsonDepth = 128;

// The value of a text. Deeper than kMaxJsonDepth, not JSON, or not UTF-8: an error with the place.
Result<Json> parse_json(std::string_view text);

// The fields of one object. Readers return nothing for a field that is absent or null; the first field that
// is there but cannot be right is kept as error(), and the caller asks for it once, after reading. Lives as
// long as the object.
class Fields {
 public:
  // `path` stands before names in errors: "messages[3].".
  explicit Fields(const Json& object, std::string path = {});

  const Json* find(const char* name) const;
  std::optional<std::string> text(const char* name);
  std::optional<double> number(const char* name, double low, double high);
  std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high);
  std::optional<bool> flag(const char* name);
  const Json* object(const char* name);
  const Json* array(const char* name);
  // One text or an array of them.
  std::vector<std::string> texts(const char* name);

  void fail(const char* name, std::string message);
  bool failed() const { return error_.has_value(); }
  tl::unexpected<RequestError> error() const { return tl::unexpected<RequestError>(*error_); }
  const std::string& path() const { return path_; }

 private:
  const Json& object_;
  std::string path_;
  std::optional<RequestError> error_;
};

}  // namespace strata
