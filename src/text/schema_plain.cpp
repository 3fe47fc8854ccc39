// The keywords of a single schema, and two schemas in one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "text/schema_reader.h"

namespace strata {
namespace {

constexpr int kMaxCount = 1'000'000'000;

int named_type(const std::string& name) {
  if (name == "null") return kNullType;
  if (name == "boolean") return kBooleanType;
  if (name == "integer") return kIntegerType;
  if (name == "number") return kNumberType;
  if (name == "string") return kStringType;
  if (name == "array") return kArrayType;
  if (name == "object") return kObjectType;
  return 0;
}

int read_types(const Json& value, const std::string& path) {
  const auto one = [&](const Json& name) {
    const int type = name.is_string() ? named_type(name.get<std::string>()) : 0;
    if (type == 0) schema_error(path, fmt::format("type {} is unknown", name.dump()));
    return type;
  };
  if (!value.is_array()) return one(value);
  int types = 0;
  for (const Json& name : value) types |= one(name);
  return types;
}

int read_count(const Json& value, const std::string& path, const std::string& keyword) {
  const bool whole = value.is_number_integer() ||
                     (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  if (!whole || value.get<double>() < 0 || value.get<double>() > kMaxCount)
    schema_error(
        path, fmt::format("{} must be a whole number from 0 to {}, is {}", keyword, kMaxCount, value.dump()));
  return static_cast<int>(value.get<double>());
}

const Json& checked(const Json& value, bool right, const std::string& path, const std::string& keyword,
                    std::string_view wanted) {
  if (!right) schema_error(path, fmt::format("{} must be {}", keyword, wanted));
  return value;
}

bool is_schema(const Json& value) { return value.is_object() || value.is_boolean(); }

void read_keyword(PlainSchema& out, const std::string& key, const Json& value, const std::string& path) {
  const auto number = [&]() -> const Json& {
    return checked(value, value.is_number(), path, key, "a number");
  };
  const auto text = [&] {
    return checked(value, value.is_string(), path, key, "a string").get<std::string>();
  };
  const auto schema = [&]() -> const Json& {
    return checked(value, is_schema(value), path, key, "a schema");
  };
  if (key == "type") {
    out.types = read_types(value, path);
    out.typed = true;
  } else if (key == "enum" || key == "const") {
    const Json list =
        key == "enum" ? checked(value, value.is_array(), path, key, "an array") : Json::array({value});
    PlainSchema same;
    same.values = std::vector<Json>(list.begin(), list.end());
    if (!out.values) out.values = same.values;
    std::erase_if(*out.values,
                  [&](const Json& v) { return std::find(list.begin(), list.end(), v) == list.end(); });
  } else if (key == "pattern") {
    out.patterns = {text()};
  } else if (key == "format") {
    out.formats = {text()};
  } else if (key == "minLength") {
    out.min_length = read_count(value, path, key);
  } else if (key == "maxLength") {
    out.max_length = read_count(value, path, key);
  } else if (key == "minimum") {
    out.minimum = number();
  } else if (key == "maximum") {
    out.maximum = number();
  } else if (key == "exclusiveMinimum") {
    out.above = number();
  } else if (key == "exclusiveMaximum") {
    out.below = number();
  } else if (key == "properties") {
    out.properties = checked(value, value.is_object(), path, key, "an object");
    for (const auto& [name, property] : value.items())
      checked(property, is_schema(property), path + "/properties", name, "a schema");
  } else if (key == "additionalProperties") {
    out.additional = schema();
  } else if (key == "required") {
    for (const Json& name : checked(value, value.is_array(), path, key, "an array of strings"))
      out.required.push_back(
          checked(name, name.is_string(), path, key, "an array of strings").get<std::string>());
  } else if (key == "minProperties") {
    out.min_properties = read_count(value, path, key);
  } else if (key == "maxProperties") {
    out.max_properties = read_count(value, path, key);
  } else if (key == "items") {
    out.items = schema();
  } else if (key == "prefixItems") {
    out.prefix = checked(value, value.is_array(), path, key, "an array of schemas");
    for (const Json& item : value) checked(item, is_schema(item), path, key, "an array of schemas");
  } else if (key == "minItems") {
    out.min_items = read_count(value, path, key);
  } else if (key == "maxItems") {
    out.max_items = read_count(value, path, key);
  } else if (key == "uniqueItems" && value == false) {
  } else if (key == "multipleOf" && value == 1) {
    PlainSchema whole;
    whole.types = kAnyType & ~kFractionType;
    out.types &= whole.types;
  } else {
    schema_error(path, fmt::format("the keyword {:?} with the value {} is not supported", key,
                                   value.dump().substr(0, 60)));
  }
}

// The schema of property or item, all of both.
Json both(const Json& a, const Json& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return Json{{"allOf", Json::array({a, b})}};
}

void merge_properties(PlainSchema& a, const PlainSchema& b) {
  const Json yes = true, none = Json::object();
  const auto of = [&](const PlainSchema& s, const std::string& name) -> const Json& {
    if (s.properties && s.properties->contains(name)) return (*s.properties)[name];
    return s.additional ? *s.additional : yes;
  };
  if (a.properties || b.properties) {
    Json all = Json::object();
    for (const PlainSchema* s : std::initializer_list<const PlainSchema*>{&a, &b})
      for (const auto& [name, schema] : (s->properties ? *s->properties : none).items())
        if (!all.contains(name)) all[name] = both(of(a, name), of(b, name));
    const bool additional = a.additional || b.additional;
    Json rest = both(a.additional.value_or(yes), b.additional.value_or(yes));
    a.properties = std::move(all);
    if (additional) a.additional = std::move(rest);
  } else if (b.additional) {
    a.additional = both(a.additional.value_or(yes), *b.additional);
  }
  for (const std::string& name : b.required)
    if (std::find(a.required.begin(), a.required.end(), name) == a.required.end()) a.required.push_back(name);
}

void merge_items(PlainSchema& a, const PlainSchema& b) {
  const Json yes = true;
  const auto of = [&](const PlainSchema& s, std::size_t i) -> Json {
    if (s.prefix && i < s.prefix->size()) return (*s.prefix)[i];
    return s.items.value_or(yes);
  };
  if (a.prefix || b.prefix) {
    Json all = Json::array();
    for (std::size_t i = 0; i < std::max(a.prefix ? a.prefix->size() : 0, b.prefix ? b.prefix->size() : 0);
         ++i)
      all.push_back(both(of(a, i), of(b, i)));
    a.prefix = std::move(all);
  }
  if (a.items || b.items) a.items = both(a.items.value_or(yes), b.items.value_or(yes));
}

int lower(int a, int b) { return a < 0 ? b : b < 0 ? a : std::min(a, b); }

void tighten(std::optional<Json>& a, const std::optional<Json>& b, bool up) {
  if (b && (!a || (up ? *b > *a : *b < *a))) a = b;
}

void append_new(std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (const std::string& s : b)
    if (std::find(a.begin(), a.end(), s) == a.end()) a.push_back(s);
}

}  // namespace

void schema_error(const std::string& path, const std::string& message) {
  throw SchemaError(fmt::format("schema {}: {}", path, message));
}

int type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNullType;
    case Json::value_t::boolean:
      return kBooleanType;
    case Json::value_t::string:
      return kStringType;
    case Json::value_t::array:
      return kArrayType;
    case Json::value_t::object:
      return kObjectType;
    case Json::value_t::number_float:
      return std::trunc(value.get<double>()) == value.get<double>() ? kIntegerType : kFractionType;
    default:
      return kIntegerType;
  }
}

bool is_annotation(std::string_view keyword) {
  static const std::set<std::string_view> kNames{
      "title",     "description",   "default",         "examples",        "example",    "$schema",
      "$id",       "$comment",      "$defs",           "definitions",     "deprecated", "readOnly",
      "writeOnly", "discriminator", "contentEncoding", "contentMediaType"};
  return kNames.contains(keyword) || keyword.starts_with("x-");
}

PlainSchema read_plain(const Json& schema, const std::string& path) {
  PlainSchema out;
  for (const auto& [key, value] : schema.items()) {
    const bool combines = key == "$ref" || key == "allOf" || key == "anyOf" || key == "oneOf";
    if (!combines && !is_annotation(key)) read_keyword(out, key, value, path);
  }
  if (out.values) std::erase_if(*out.values, [&](const Json& v) { return (type_of(v) & out.types) == 0; });
  return out;
}

std::optional<PlainSchema> merged(PlainSchema a, const PlainSchema& b) {
  a.types &= b.types;
  a.typed |= b.typed;
  if (b.values) {
    if (!a.values) a.values = b.values;
    std::erase_if(*a.values, [&](const Json& v) {
      return std::find(b.values->begin(), b.values->end(), v) == b.values->end();
    });
  }
  if (a.values) {
    std::erase_if(*a.values, [&](const Json& v) { return (type_of(v) & a.types) == 0; });
    if (a.values->empty()) return std::nullopt;
  }
  if (a.types == 0) return std::nullopt;
  append_new(a.patterns, b.patterns);
  append_new(a.formats, b.formats);
  a.min_length = std::max(a.min_length, b.min_length);
  a.max_length = lower(a.max_length, b.max_length);
  tighten(a.minimum, b.minimum, true);
  tighten(a.above, b.above, true);
  tighten(a.maximum, b.maximum, false);
  tighten(a.below, b.below, false);
  merge_properties(a, b);
  merge_items(a, b);
  a.min_properties = std::max(a.min_properties, b.min_properties);
  a.max_properties = lower(a.max_properties, b.max_properties);
  a.min_items = std::max(a.min_items, b.min_items);
  a.max_items = lower(a.max_items, b.max_items);
  return a;
}

int PlainSchema::meant_types() const {
  int meant = 0;
  if (!patterns.empty() || !formats.empty() || min_length > 0 || max_length >= 0) meant |= kStringType;
  if (minimum || maximum || above || below) meant |= kNumberType;
  if (properties || additional || !required.empty() || min_properties > 0 || max_properties >= 0)
    meant |= kObjectType;
  if (prefix || items || min_items > 0 || max_items >= 0) meant |= kArrayType;
  return typed || (meant & types) == 0 ? types : meant & types;
}

}  // namespace strata
