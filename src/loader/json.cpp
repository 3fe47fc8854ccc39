#include "loader/json.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace strata {
namespace {

using Value = nlohmann::json;

// Python's json module writes Infinity, -Infinity and NaN bare, which JSON has not: make them float objects.
// Strings are left alone.
std::string quote_bare_floats(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      in_string = c != '"';
      continue;
    }
    std::string_view word;
    for (const std::string_view w : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i).starts_with(w)) word = w;
    }
    if (word.empty()) {
      out += c;
      in_string = c == '"';
    } else {
      out += fmt::format(R"({{"__float__": "{}"}})", word);
      i += word.size() - 1;
    }
  }
  return out;
}

std::optional<double> special_float(const Value& v) {
  if (!v.is_object() || v.size() != 1) return std::nullopt;
  const auto it = v.find("__float__");
  if (it == v.end() || !it->is_string()) return std::nullopt;
  const auto& word = it->get_ref<const std::string&>();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

Value parse_strict(std::string_view text, const std::string& origin) {
  const auto depth_guard = [&](int depth, Value::parse_event_t, Value&) {
    if (depth > Json::kMaxDepth) throw Error("{}: JSON nested deeper than {}", origin, Json::kMaxDepth);
    return true;
  };
  return Value::parse(text, depth_guard);
}

}  // namespace

Json::Json() : value_(std::make_shared<const Value>()) {}

Json::Json(std::shared_ptr<const Value> value, std::string origin, std::string path)
    : value_(std::move(value)), origin_(std::move(origin)), path_(std::move(path)) {}

Json Json::parse(std::string_view text, const std::string& origin) {
  try {
    return {std::make_shared<const Value>(parse_strict(text, origin)), origin, ""};
  } catch (const Value::exception& strict) {
    if (text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos) {
      try {
        return {std::make_shared<const Value>(parse_strict(quote_bare_floats(text), origin)), origin, ""};
      } catch (const Value::exception&) {  // the first error is about the text as it stands
      }
    }
    throw Error("{}: not valid JSON: {}", origin, strict.what());
  }
}

Json Json::load(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in) throw Error("{}: cannot be read", file.string());
  return parse(text.str(), file.string());
}

Json Json::merge(const Json& over, const Json& under) {
  Value merged = Value::object();
  for (const Json* j : {&under, &over}) {
    if (!j->is_object()) j->expected("an object");
    for (const auto& [key, value] : j->value_->items()) {
      if (!value.is_null() || !merged.contains(key)) merged[key] = value;
    }
  }
  return {std::make_shared<const Value>(std::move(merged)), over.origin_, over.path_};
}

Json Json::with_defaults(const Json& defaults) const {
  if (!is_object()) expected("an object");
  if (!defaults.is_object()) defaults.expected("an object");
  Value all = *value_;
  for (const auto& [key, value] : defaults.value_->items()) {
    if (!all.contains(key)) all[key] = value;
  }
  return {std::make_shared<const Value>(std::move(all)), origin_, path_};
}

bool Json::is_null() const { return value_->is_null(); }
bool Json::is_object() const { return value_->is_object(); }
bool Json::is_array() const { return value_->is_array(); }
bool Json::is_string() const { return value_->is_string(); }
bool Json::is_int() const { return value_->is_number_integer(); }
bool Json::is_number() const { return value_->is_number() || special_float(*value_); }
bool Json::is_bool() const { return value_->is_boolean(); }

std::string Json::where() const { return path_.empty() ? origin_ : origin_ + ": " + path_; }
std::string Json::dump() const { return value_->dump(); }

void Json::expected(std::string_view what) const {
  throw Error("{}: expected {}, found {} {}", where(), what,
              value_->is_object() || value_->is_array() ? "an" : "a", value_->type_name());
}

Json Json::child(const Value& value, const std::string& name) const {
  return {std::shared_ptr<const Value>(value_, &value), origin_, path_.empty() ? name : path_ + "." + name};
}

bool Json::has(std::string_view key) const { return !get(key).is_null(); }

Json Json::get(std::string_view key) const {
  const std::string name(key);
  if (value_->is_object()) {
    if (const auto it = value_->find(name); it != value_->end()) return child(*it, name);
  } else if (!value_->is_null()) {
    expected("an object");
  }
  static const Value kNull;
  return {std::shared_ptr<const Value>(value_, &kNull), origin_, path_.empty() ? name : path_ + "." + name};
}

Json Json::at(std::string_view key) const {
  Json found = get(key);
  if (found.is_null()) throw Error("{}: missing", found.where());
  return found;
}

std::vector<std::string> Json::keys() const {
  if (!is_object()) expected("an object");
  std::vector<std::string> names;
  for (const auto& [key, value] : value_->items()) {
    if (!value.is_null()) names.push_back(key);
  }
  return names;
}

std::size_t Json::size() const {
  if (!is_object() && !is_array()) expected("an array");
  return value_->size();
}

Json Json::operator[](std::size_t i) const {
  if (!is_array()) expected("an array");
  if (i >= value_->size()) throw Error("{}: no element {} of {}", where(), i, value_->size());
  return {std::shared_ptr<const Value>(value_, &(*value_)[i]), origin_, fmt::format("{}[{}]", path_, i)};
}

std::int64_t Json::as_int64() const {
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    throw Error("{}: {} is too large", where(), value_->get<std::uint64_t>());
  }
  if (value_->is_number_integer()) return value_->get<std::int64_t>();
  if (value_->is_number_float()) {
    const double d = value_->get<double>();
    if (d == std::floor(d) && std::abs(d) < 0x1p53) return static_cast<std::int64_t>(d);
    throw Error("{}: expected an integer, found {}", where(), d);
  }
  expected("an integer");
}

int Json::as_int() const {
  const std::int64_t i = as_int64();
  if (i < std::numeric_limits<int>::min() || i > std::numeric_limits<int>::max()) {
    throw Error("{}: {} is too large", where(), i);
  }
  return static_cast<int>(i);
}

double Json::as_float() const {
  if (value_->is_number()) return value_->get<double>();
  if (const auto special = special_float(*value_)) return *special;
  expected("a number");
}

bool Json::as_bool() const {
  if (!is_bool()) expected("true or false");
  return value_->get<bool>();
}

std::string Json::as_string() const {
  if (!is_string()) expected("a string");
  return value_->get<std::string>();
}

std::vector<int> Json::as_ints() const {
  std::vector<int> list(size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = (*this)[i].as_int();
  return list;
}

std::vector<double> Json::as_floats() const {
  std::vector<double> list(size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = (*this)[i].as_float();
  return list;
}

std::vector<std::string> Json::as_strings() const {
  std::vector<std::string> list(size());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = (*this)[i].as_string();
  return list;
}

}  // namespace strata
