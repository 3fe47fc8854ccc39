// JSON schemas taken apart: keywords checked, references followed, allOf merged, anyOf and oneOf spread out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/char_dfa.h"

namespace strata {

using Json = nlohmann::ordered_json;  // keeps the order of keys, which is the order of an answer's properties

// Types of values as bits. Every number is either an integer or not.
enum SchemaType : int {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kNumberType = kIntegerType | kFractionType,
  kAnyType = 127,
};
int type_of(const Json& value);

// A schema without references and combinations.
struct PlainSchema {
  int types = kAnyType;
  bool typed = false;                       // `type` was given
  std::optional<std::vector<Json>> values;  // enum, const
  std::vector<std::string> patterns, formats;
  int min_length = 0, max_length = -1;                 // -1: no limit, as everywhere here
  std::optional<Json> minimum, maximum, above, below;  // above, below: exclusive
  std::optional<Json> properties, additional;          // additional: absent = not said
  std::vector<std::string> required;
  int min_properties = 0, max_properties = -1;
  std::optional<Json> prefix, items;
  int min_items = 0, max_items = -1;

  // The types it allows when a type was not given: those its keywords speak of, if they speak of any.
  int meant_types() const;
};

// Reads one document. Everything throws SchemaError, with the place. The document must outlive it.
class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  // Plain schemas whose union the schema is.
  std::vector<PlainSchema> alternatives(const Json& schema, const std::string& path, int depth = 0) const;
  // Where schemas that are nothing but a reference lead.
  const Json& target(const Json& schema, const std::string& path) const;
  // The branches, when the schema is nothing but an anyOf or a oneOf; else null.
  const Json* branches(const Json& schema) const;
  // Refuses a oneOf of which two branches can hold for one value that `base` allows too, as far as types,
  // constants and required properties tell.
  void check_disjoint(const Json& branches, const std::vector<PlainSchema>& base, const std::string& path,
                      int depth = 0) const;

 private:
  const Json& resolve(const Json& reference, const std::string& path) const;
  bool disjoint(const PlainSchema& a, const PlainSchema& b, const std::string& path, int depth) const;
  bool disjoint_objects(const PlainSchema& a, const PlainSchema& b, const std::string& path, int depth) const;

  const Json& root_;
  mutable int work_ = 0;  // schemas looked at: nested combinations multiply
};

// One schema for what both allow; nothing when that is no value.
std::optional<PlainSchema> merged(PlainSchema a, const PlainSchema& b);
// The keywords of one schema that are no references or combinations.
PlainSchema read_plain(const Json& schema, const std::string& path);
// Whether a keyword says nothing about values.
bool is_annotation(std::string_view keyword);

[[noreturn]] void schema_error(const std::string& path, const std::string& message);

}  // namespace strata
