#include "text/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

constexpr std::size_t kMaxAlternatives = 512;
constexpr int kMaxDepth = 64, kMaxWork = 100'000;

// The keyword that is all a schema says, or nothing.
std::string_view only_keyword(const Json& schema) {
  std::string_view only;
  if (!schema.is_object()) return only;
  for (auto it = schema.begin(); it != schema.end(); ++it) {
    if (is_annotation(it.key())) continue;
    if (!only.empty()) return {};
    only = it.key();
  }
  return only;
}

std::string unescaped(std::string part) {
  for (std::size_t i = 0; (i = part.find('%', i)) != std::string::npos && i + 2 < part.size(); ++i) {
    const std::string hex = part.substr(i + 1, 2);
    if (hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos)
      part.replace(i, 3, 1, static_cast<char>(std::stoi(hex, nullptr, 16)));
  }
  return part;
}

}  // namespace

const Json& SchemaReader::resolve(const Json& reference, const std::string& path) const {
  const std::string text = reference.is_string() ? reference.get<std::string>() : reference.dump();
  if (!reference.is_string() || !(text == "#" || text.starts_with("#/")))
    schema_error(
        path, fmt::format("$ref {:?} is not supported: it must begin with # and name a place in this schema",
                          text));
  try {
    const Json& found = root_.at(Json::json_pointer(unescaped(text.substr(1))));
    if (found.is_object() || found.is_boolean()) return found;
  } catch (const Json::exception&) {
  }
  schema_error(path, fmt::format("$ref {:?} leads to no schema", text));
}

const Json& SchemaReader::target(const Json& schema, const std::string& path) const {
  const Json* at = &schema;
  for (int i = 0; i < kMaxDepth; ++i) {
    const auto only = only_keyword(*at);
    if (only == "$ref")
      at = &resolve((*at)["$ref"], path);
    else if (only == "allOf" && (*at)["allOf"].is_array() && (*at)["allOf"].size() == 1)
      at = &(*at)["allOf"][0];
    else
      return *at;
  }
  schema_error(path, "refers to itself");
}

const Json* SchemaReader::branches(const Json& schema) const {
  const auto only = only_keyword(schema);
  if (only != "anyOf" && only != "oneOf") return nullptr;
  const Json& list = schema[std::string(only)];
  return list.is_array() && !list.empty() ? &list : nullptr;
}

std::vector<PlainSchema> SchemaReader::alternatives(const Json& schema, const std::string& path,
                                                    int depth) const {
  if (depth > kMaxDepth) schema_error(path, "refers to itself, or is combined too deeply");
  if (++work_ > kMaxWork) schema_error(path, "is combined too often");
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return {PlainSchema{}};
    return {};
  }
  if (!schema.is_object()) schema_error(path, "must be an object, true or false");
  std::vector<PlainSchema> out{read_plain(schema, path)};
  const auto restrict_to = [&](const std::vector<PlainSchema>& others) {
    std::vector<PlainSchema> product;
    for (const PlainSchema& a : out)
      for (const PlainSchema& b : others) {
        if (auto one = merged(a, b)) product.push_back(std::move(*one));
        if (product.size() > kMaxAlternatives)
          schema_error(path, fmt::format("combines to more than {} alternatives", kMaxAlternatives));
      }
    out = std::move(product);
  };
  const auto list = [&](const std::string& key) -> const Json* {
    if (!schema.contains(key)) return nullptr;
    if (!schema[key].is_array() || schema[key].empty())
      schema_error(path, key + " must be an array with schemas");
    return &schema[key];
  };
  if (schema.contains("$ref")) restrict_to(alternatives(resolve(schema["$ref"], path), path, depth + 1));
  if (const Json* all = list("allOf"))
    for (std::size_t i = 0; i < all->size(); ++i)
      restrict_to(alternatives((*all)[i], fmt::format("{}/allOf/{}", path, i), depth + 1));
  for (const std::string key : {"anyOf", "oneOf"}) {
    const Json* any = list(key);
    if (any == nullptr) continue;
    if (key == "oneOf") check_disjoint(*any, out, path, depth);
    std::vector<PlainSchema> others;
    for (std::size_t i = 0; i < any->size(); ++i)
      for (PlainSchema& one : alternatives((*any)[i], fmt::format("{}/{}/{}", path, key, i), depth + 1))
        others.push_back(std::move(one));
    restrict_to(others);
  }
  return out;
}

void SchemaReader::check_disjoint(const Json& branches, const std::vector<PlainSchema>& base,
                                  const std::string& path, int depth) const {
  std::vector<std::vector<PlainSchema>> all(branches.size());
  for (std::size_t i = 0; i < branches.size(); ++i)
    for (const PlainSchema& one : alternatives(branches[i], fmt::format("{}/oneOf/{}", path, i), depth + 1))
      for (const PlainSchema& b : base)
        if (auto both = merged(b, one)) all[i].push_back(std::move(*both));
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j)
      for (const PlainSchema& a : all[i])
        for (const PlainSchema& b : all[j])
          if (!disjoint(a, b, path, depth))
            schema_error(
                path,
                fmt::format("oneOf is supported where its branches differ in type, constant or a required "
                            "property; branches {} and {} do not. Use anyOf",
                            i, j));
}

bool SchemaReader::disjoint(const PlainSchema& a, const PlainSchema& b, const std::string& path,
                            int depth) const {
  if (depth > kMaxDepth) return false;
  const int common = a.types & b.types;
  if (common == 0) return true;
  if (a.values || b.values) {
    const PlainSchema& one = a.values ? a : b;
    const PlainSchema& other = a.values ? b : a;
    return std::all_of(one.values->begin(), one.values->end(), [&](const Json& v) {
      if ((type_of(v) & other.types) == 0) return true;
      return other.values && std::find(other.values->begin(), other.values->end(), v) == other.values->end();
    });
  }
  return common == kObjectType && disjoint_objects(a, b, path, depth);
}

bool SchemaReader::disjoint_objects(const PlainSchema& a, const PlainSchema& b, const std::string& path,
                                    int depth) const {
  const auto needs = [](const PlainSchema& s, const std::string& name) {
    return std::find(s.required.begin(), s.required.end(), name) != s.required.end();
  };
  const auto has = [](const PlainSchema& s, const std::string& name) {
    return s.properties && s.properties->contains(name);
  };
  for (const PlainSchema* s : std::initializer_list<const PlainSchema*>{&a, &b}) {
    const PlainSchema& other = s == &a ? b : a;
    for (const std::string& name : s->required) {
      if (!has(other, name) && other.additional && *other.additional == false) return true;
      if (!needs(other, name) || !has(*s, name) || !has(other, name)) continue;
      const auto mine = alternatives((*s->properties)[name], path, depth + 1);
      const auto others = alternatives((*other.properties)[name], path, depth + 1);
      const bool apart = std::all_of(mine.begin(), mine.end(), [&](const PlainSchema& x) {
        return std::all_of(others.begin(), others.end(),
                           [&](const PlainSchema& y) { return disjoint(x, y, path, depth + 1); });
      });
      if (apart) return true;
    }
  }
  return false;
}

}  // namespace strata
