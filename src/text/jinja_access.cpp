// obj.name and obj[key], with the sandbox's rules of what may be seen.
#include <memory>

#include "text/jinja_arguments.h"
#include "text/jinja_objects.h"
#include "text/jinja_operators.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

std::string describe_object(const Value& obj) {
  return obj.is_none() ? "None" : "'" + std::string(type_name(obj)) + " object'";
}

Value unsafe(const Value& obj, const std::string& name) {
  return Value::undefined("access to attribute '" + name + "' of '" + type_name(obj) + "' object is unsafe.");
}

// What Python's getattr finds, or missing.
Value attribute(const Value& obj, const std::string& name) {
  if (name.starts_with("__") && name.ends_with("__")) return unsafe(obj, name);
  if (const MethodFn method = find_method(obj, name)) {
    return Value(ObjectPtr(std::make_shared<BoundMethod>(obj, name, method)));
  }
  if (is_mutating_method(obj, name)) return unsafe(obj, name);
  if (obj.is_sequence() && obj.sequence().group) {
    if (name == "grouper") return obj.items()[0];
    if (name == "list") return obj.items()[1];
  }
  if (obj.is_object()) return obj.object()->attribute(name);
  if (obj.is_integral()) {
    if (name == "real" || name == "numerator") return Value(obj.as_int());
    if (name == "imag") return Value(Int{0});
    if (name == "denominator") return Value(Int{1});
  }
  if (obj.is_float()) {
    if (name == "real") return obj;
    if (name == "imag") return Value(0.0);
  }
  return {};
}

// What Python's obj[key] finds, or missing where it raises a lookup or type error.
Value element(const Value& obj, const Value& key) {
  if (obj.is_dict()) {
    if (key.is_str()) {
      const Value* found = obj.dict().find(key.text());
      return found ? *found : Value();
    }
    const bool hashable = !key.is_dict() && !(key.is_sequence() && !key.sequence().tuple);
    const Value* found = hashable ? obj.dict().find(key) : nullptr;
    return found ? *found : Value();
  }
  if (obj.is_object() && obj.object()->subscriptable()) return obj.object()->item(key);
  if (!key.is_integral() || (!obj.is_str() && !obj.is_sequence())) return {};
  const Int size = static_cast<Int>(*length(obj));
  Int index = key.as_int();
  if (index < 0) index += size;
  if (index < 0 || index >= size) return {};
  if (obj.is_sequence()) return obj.items()[static_cast<size_t>(index)];
  const std::string& text = obj.text();
  const size_t begin =
      obj.str().ascii() ? static_cast<size_t>(index) : byte_offset(text, static_cast<size_t>(index));
  size_t end = begin;
  decode(text, end);
  return Value(text.substr(begin, end - begin), obj.str().safe);
}

}  // namespace

Value get_attribute(const Value& obj, const std::string& name) {
  if (obj.is_undefined()) fail(obj.undefined_message());
  Value found = attribute(obj, name);
  if (found.is_missing() && obj.is_dict()) {
    if (const Value* entry = obj.dict().find(name)) return *entry;
  }
  if (!found.is_missing()) return found;
  return Value::undefined(describe_object(obj) + " has no attribute '" + name + "'");
}

Value get_item(const Value& obj, const Value& key) {
  if (obj.is_undefined()) fail(obj.undefined_message());
  Value found = element(obj, key);
  if (found.is_missing() && key.is_str()) found = attribute(obj, key.text());
  if (!found.is_missing()) return found;
  if (key.is_str()) return Value::undefined(describe_object(obj) + " has no attribute '" + key.text() + "'");
  return Value::undefined(describe_object(obj) + " has no element " + repr(key));
}

}  // namespace strata::jinja
