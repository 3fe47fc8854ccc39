// The values a template computes with: Python's None, bool, int, float, str, list, tuple, dict, and objects.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace strata::jinja {

class Interpreter;
class Value;

// Python's integers are unbounded; ours are 128 bits wide, and going past them is an error.
__extension__ typedef __int128 Int;

// Lists in lists in lists: deeper values are refused, so that walking one never overflows the stack.
constexpr uint32_t kMaxNesting = 200;

// Lists that hold the same long list many times are cheap to make but not to print or compare: their elements
// and bytes, counted as often as they appear, are bounded too.
constexpr uint64_t kMaxWeight = uint64_t{1} << 28;

// How deep and how large a value is.
struct Extent {
  uint32_t nesting = 1;
  uint64_t weight = 1;
};

// What rendering throws inside the engine; Template::render adds the line and returns it as a value.
struct RenderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  throw RenderError(text);
}

// Text in UTF-8. `safe` marks what went through the filters safe or escape: adding to it escapes the other
// side.
struct Str {
  Str(std::string t, bool is_safe);
  std::string text;
  size_t length;  // code points
  bool safe;
  bool ascii() const { return length == text.size(); }
};

struct None {};

// A name or element that is not there, with the message that using it gives.
struct Undefined {
  std::string message;
};

// A list or tuple. Immutable once built, like every container but Namespace.
struct Sequence {
  std::vector<Value> items;
  Extent extent;
  bool tuple;
  bool group;  // of the filter groupby: item 0 is also .grouper and item 1 .list
};

class Dict;
struct Object;

using StrPtr = std::shared_ptr<const Str>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;

// A cheap copy: scalars by value, the rest shared. Default-constructed it is "missing", which templates never
// see. Not for sharing between threads while rendering, except constants of a parsed template (they are
// immutable).
class Value {
 public:
  Value() = default;
  explicit Value(None) : data_(None{}) {}
  explicit Value(bool b) : data_(b) {}
  explicit Value(Int i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::string text, bool safe = false)
      : data_(std::make_shared<const Str>(std::move(text), safe)) {}
  explicit Value(StrPtr s) : data_(std::move(s)) {}
  explicit Value(SequencePtr s) : data_(std::move(s)) {}
  explicit Value(DictPtr d) : data_(std::move(d)) {}
  explicit Value(ObjectPtr o) : data_(std::move(o)) {}
  static Value undefined(std::string message);
  // Refuse what is nested or weighs too much.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value from_json(const nlohmann::ordered_json& json, uint32_t depth = 0);

  bool is_missing() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const Undefined>>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<Int>(data_); }  // not bool
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_str() const { return std::holds_alternative<StrPtr>(data_); }
  bool is_sequence() const { return std::holds_alternative<SequencePtr>(data_); }
  bool is_dict() const { return std::holds_alternative<DictPtr>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectPtr>(data_); }

  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return is_bool() ? Int{as_bool()} : std::get<Int>(data_); }  // of an integral value
  double as_float() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const Str& str() const { return *std::get<StrPtr>(data_); }
  const std::string& text() const { return str().text; }
  const Sequence& sequence() const { return *std::get<SequencePtr>(data_); }
  const std::vector<Value>& items() const { return sequence().items; }
  const Dict& dict() const { return *std::get<DictPtr>(data_); }
  const SequencePtr& sequence_ptr() const { return std::get<SequencePtr>(data_); }
  const DictPtr& dict_ptr() const { return std::get<DictPtr>(data_); }
  const ObjectPtr& object() const { return std::get<ObjectPtr>(data_); }
  const std::string& undefined_message() const {
    return std::get<std::shared_ptr<const Undefined>>(data_)->message;
  }

  template <typename T>
  T* object_as() const {
    return is_object() ? dynamic_cast<T*>(object().get()) : nullptr;
  }

 private:
  std::variant<std::monostate, None, bool, Int, double, std::shared_ptr<const Undefined>, StrPtr, SequencePtr,
               DictPtr, ObjectPtr>
      data_;
};

// Yields the next element into its argument; false at the end.
using Iterator = std::function<bool(Value&)>;

// An ordered map with Python's key equality (1 == 1.0 == true). Immutable once shared.
class Dict {
 public:
  using Item = std::pair<Value, Value>;
  void set(Value key, Value value);  // fails on an unhashable key
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  const Extent& extent() const { return extent_; }

 private:
  size_t position(const Value& key, size_t hash) const;
  std::vector<Item> items_;
  std::unordered_multimap<size_t, size_t> index_;  // hash -> position, once there are more than a few items
  Extent extent_;
};

// Arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Anything else: functions, methods, loops, namespaces, generators, ranges, views of dicts.
struct Object {
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  virtual std::string repr() const;
  virtual bool truth() const { return true; }
  // The attribute, or missing.
  virtual Value attribute(const std::string&) { return {}; }
  virtual Value item(const Value&) { return {}; }
  virtual bool subscriptable() const { return false; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter&, Args&);
  virtual std::optional<Iterator> iterate() { return std::nullopt; }
  virtual std::optional<size_t> length() const { return std::nullopt; }
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual uint32_t nesting() const { return 1; }
};

uint32_t nesting(const Value& v);
uint64_t weight(const Value& v);

// "int", "str", "NoneType", ...: Python's name of the type.
const char* type_name(const Value& v);
bool truth(const Value& v);
bool equal(const Value& a, const Value& b);
size_t hash_value(const Value& v);  // fails on a list or dict
// Negative, 0, positive; fails where Python has no order between the two.
int compare(const Value& a, const Value& b, const char* op = "<");
// Fails on what is not iterable.
Iterator iterate(const Value& v);
bool is_iterable(const Value& v);
std::vector<Value> to_vector(const Value& v);
std::optional<size_t> length(const Value& v);

std::string to_string(const Value& v);  // str(v)
std::string repr(const Value& v);
std::string repr_str(std::string_view text);
// text with what is not ASCII as \x, \u and \U escapes: ascii(v) is that of repr(v).
std::string escape_non_ascii(std::string_view text);
std::string repr_float(double d);
std::string int_to_string(Int i);
// &<>"' escaped as markupsafe does.
std::string escape_html(std::string_view text);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; nullopt = one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(v, ...) of Python.
std::string to_json(const Value& v, const JsonStyle& style);

}  // namespace strata::jinja
