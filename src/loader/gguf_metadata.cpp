#include "loader/gguf_metadata.h"

#include <algorithm>

#include "base/error.h"

namespace strata {
namespace {

std::string_view kind_of(const GgufValue& value) {
  static constexpr std::array<std::string_view, 8> kNames = {"an integer",          "a float",          "a boolean",     "a text",
                                                             "a list of integers", "a list of floats", "a list of texts", "a list of booleans"};
  return kNames.at(value.index());
}

}  // namespace

void GgufMetadata::add(std::string_view key, GgufValue value) {
  if (!values_.emplace(key, std::move(value)).second) throw Error("{}: key {} is there twice", origin_, key);
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) throw Error("{}: key {} is missing", origin_, key);
  return *value;
}

void GgufMetadata::expected(std::string_view key, std::string_view what) const {
  throw Error("{}: key {}: expected {}, found {}", origin_, key, what, kind_of(at(key)));
}

std::int64_t GgufMetadata::get_int(std::string_view key) const {
  if (const auto* v = std::get_if<std::int64_t>(&at(key))) return *v;
  expected(key, "an integer");
}

double GgufMetadata::get_float(std::string_view key) const {
  if (const auto* v = std::get_if<double>(&at(key))) return *v;
  if (const auto* v = std::get_if<std::int64_t>(&at(key))) return static_cast<double>(*v);
  expected(key, "a number");
}

bool GgufMetadata::get_bool(std::string_view key) const {
  if (const auto* v = std::get_if<bool>(&at(key))) return *v;
  expected(key, "a boolean");
}

std::string GgufMetadata::get_text(std::string_view key) const {
  if (const auto* v = std::get_if<std::string_view>(&at(key))) return std::string(*v);
  expected(key, "a text");
}

const GgufTexts& GgufMetadata::get_texts(std::string_view key) const {
  if (const auto* v = std::get_if<GgufTexts>(&at(key))) return *v;
  expected(key, "a list of texts");
}

GgufInts GgufMetadata::get_ints(std::string_view key) const {
  if (const auto* v = std::get_if<GgufInts>(&at(key))) return *v;
  if (const auto* v = std::get_if<GgufBools>(&at(key))) return {v->begin(), v->end()};
  expected(key, "a list of integers");
}

GgufFloats GgufMetadata::get_floats(std::string_view key) const {
  if (const auto* v = std::get_if<GgufFloats>(&at(key))) return *v;
  if (const auto* v = std::get_if<GgufInts>(&at(key))) return {v->begin(), v->end()};
  expected(key, "a list of numbers");
}

std::int64_t GgufMetadata::get_common_int(std::string_view key) const {
  const auto* list = std::get_if<GgufInts>(&at(key));
  if (list == nullptr) return get_int(key);
  if (list->empty()) throw Error("{}: key {} is an empty list", origin_, key);
  if (std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) != list->end()) {
    throw Error("{}: key {} differs from layer to layer, which is not supported", origin_, key);
  }
  return list->front();
}

}  // namespace strata
