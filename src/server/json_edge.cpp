#include "server/json_edge.h"

#include <fmt/format.h>

#include <cmath>

namespace strata {
namespace {

// The deepest nesting of brackets outside strings; right for every text that is JSON.
int nesting(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// Without the library's name and number in front.
std::string plain_message(const char* what) {
  std::string_view text = what;
  const auto end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

std::string show(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (nesting(text) > kMaxJsonDepth)
    return bad_request(fmt::format("JSON is nested deeper than {} levels", kMaxJsonDepth));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& e) {
    return bad_request("the body is not valid JSON: " + plain_message(e.what()));
  }
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object_.is_object()) return;
  std::string name = path_.ends_with('.') ? path_.substr(0, path_.size() - 1) : path_;
  error_ = RequestError{(name.empty() ? "the body" : name) + " must be an object", name};
}

const Json* Fields::find(const char* name) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(const char* name, std::string message) {
  if (!error_) error_ = RequestError{path_ + name + " " + message, path_ + name};
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string, is " + show(*value));
  return std::nullopt;
}

std::optional<double> Fields::number(const char* name, double low, double high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) {
    fail(name, "must be a number, is " + show(*value));
    return std::nullopt;
  }
  const double number = value->get<double>();
  if (number >= low && number <= high) return number;
  fail(name, fmt::format("must be between {} and {}, is {}", low, high, show(*value)));
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() && std::trunc(value->get<double>()) == value->get<double>());
  if (!whole) {
    fail(name, "must be an integer, is " + show(*value));
    return std::nullopt;
  }
  const double rough = value->get<double>();  // exact enough to tell what is far outside
  if (rough >= static_cast<double>(low) - 1 && rough < 0x1p63) {
    const auto exact = value->get<std::int64_t>();
    if (exact >= low && exact <= high) return exact;
  }
  fail(name, fmt::format("must be between {} and {}, is {}", low, high, show(*value)));
  return std::nullopt;
}

std::optional<bool> Fields::flag(const char* name) {
  const Json* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false, is " + show(*value));
  return std::nullopt;
}

const Json* Fields::object(const char* name) {
  const Json* value = find(name);
  if (!value || value->is_object()) return value;
  fail(name, "must be an object, is " + show(*value));
  return nullptr;
}

const Json* Fields::array(const char* name) {
  const Json* value = find(name);
  if (!value || value->is_array()) return value;
  fail(name, "must be an array, is " + show(*value));
  return nullptr;
}

std::vector<std::string> Fields::texts(const char* name) {
  std::vector<std::string> out;
  const Json* value = find(name);
  if (!value) return out;
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) {
    fail(name, "must be a string or an array of strings, is " + show(*value));
    return out;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail(name, "must hold strings only, has " + show(item));
      return {};
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

}  // namespace strata
