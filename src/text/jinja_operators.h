// Operators on values with Python's meaning, and access to attributes and elements.
#pragma once

#include <string>

#include "text/jinja_value.h"

namespace strata::jinja {

Value add(Interpreter& rt, const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(Interpreter& rt, const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, const Value& b);
Value modulo(Interpreter& rt, const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value negate(const Value& v);
Value plus(const Value& v);

// `item in container`
bool contains(const Value& container, const Value& item);
// "==", "!=", "<", "<=", ">", ">=", "in", "not in"
bool compare_with(const std::string& op, const Value& a, const Value& b);

// obj.name: the attribute or method, else the element of that key, else undefined.
Value get_attribute(const Value& obj, const std::string& name);
// obj[key]: the element, else the attribute of that name, else undefined.
Value get_item(const Value& obj, const Value& key);
// obj[start:stop:step], any of which may be missing or None.
Value get_slice(Interpreter& rt, const Value& obj, const Value& start, const Value& stop, const Value& step);

}  // namespace strata::jinja
