// Building, comparing, hashing and walking template values with Python's rules.
#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

constexpr size_t kIndexAbove = 8;  // items a Dict searches linearly; below this a hash table is slower

// The extent of what holds `item` besides `extent`.
Extent holding(const Extent& extent, const Value& item) {
  const uint32_t levels = nesting(item);
  if (levels >= kMaxNesting) fail("values are nested deeper than ", std::to_string(kMaxNesting), " levels");
  const uint64_t total = extent.weight + weight(item);
  if (total > kMaxWeight) fail("a value is larger than ", std::to_string(kMaxWeight), " bytes and elements");
  return {std::max(extent.nesting, levels + 1), total};
}

Value make_sequence(std::vector<Value> items, bool tuple) {
  Extent extent;
  for (const Value& item : items) extent = holding(extent, item);
  return Value(std::make_shared<const Sequence>(Sequence{std::move(items), extent, tuple, false}));
}

size_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

int sign(long double x) { return x < 0 ? -1 : x > 0; }

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    const Int x = a.as_int(), y = b.as_int();
    return x < y ? -1 : x > y;
  }
  const auto wide = [](const Value& v) {
    return v.is_float() ? static_cast<long double>(v.as_float()) : static_cast<long double>(v.as_int());
  };
  return sign(wide(a) - wide(b));
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.items().begin(), a.items().end(), [&b](const Dict::Item& item) {
    const Value* other = b.find(item.first);
    return other && equal(item.second, *other);
  });
}

}  // namespace

Str::Str(std::string t, bool is_safe) : text(std::move(t)), length(count_code_points(text)), safe(is_safe) {}

Value Value::undefined(std::string message) {
  Value v;
  v.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return v;
}

Value Value::list(std::vector<Value> items) { return make_sequence(std::move(items), false); }
Value Value::tuple(std::vector<Value> items) { return make_sequence(std::move(items), true); }

Value Value::from_json(const nlohmann::ordered_json& json, uint32_t depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth >= kMaxNesting) fail("values are nested deeper than ", std::to_string(kMaxNesting), " levels");
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(Int{json.get<int64_t>()});
    case Type::number_unsigned:
      return Value(Int{json.get<uint64_t>()});
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) dict->set(Value(key), from_json(value, depth + 1));
      return Value(DictPtr(std::move(dict)));
    }
    default:
      return Value(None{});
  }
}

void Dict::set(Value key, Value value) {
  const size_t hash = hash_value(key);
  const size_t at = position(key, hash);
  if (at < items_.size()) {
    extent_.weight -= weight(items_[at].second);
    extent_ = holding(extent_, value);
    items_[at].second = std::move(value);
    return;
  }
  extent_ = holding(holding(extent_, key), value);
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() > kIndexAbove) {
    for (size_t i = index_.empty() ? 0 : items_.size() - 1; i < items_.size(); ++i) {
      index_.emplace(hash_value(items_[i].first), i);
    }
  }
}

size_t Dict::position(const Value& key, size_t hash) const {
  if (index_.empty()) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (equal(items_[i].first, key)) return i;
    }
    return items_.size();
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (equal(items_[it->second].first, key)) return it->second;
  }
  return items_.size();
}

const Value* Dict::find(const Value& key) const {
  const size_t at = position(key, hash_value(key));
  return at < items_.size() ? &items_[at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (index_.empty()) {
    for (const auto& [k, v] : items_) {
      if (k.is_str() && k.text() == key) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(hash_text(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [k, v] = items_[it->second];
    if (k.is_str() && k.text() == key) return &v;
  }
  return nullptr;
}

std::string Object::repr() const { return std::string("<") + type_name() + " object>"; }

Value Object::call(Interpreter&, Args&) { fail("'", type_name(), "' object is not callable"); }

uint32_t nesting(const Value& v) {
  if (v.is_sequence()) return v.sequence().extent.nesting;
  if (v.is_dict()) return v.dict().extent().nesting;
  if (v.is_object()) return v.object()->nesting();
  return 0;
}

uint64_t weight(const Value& v) {
  if (v.is_str()) return v.text().size() + 1;
  if (v.is_sequence()) return v.sequence().extent.weight;
  return v.is_dict() ? v.dict().extent().weight : 1;
}

const char* type_name(const Value& v) {
  if (v.is_str()) return v.str().safe ? "Markup" : "str";
  if (v.is_int()) return "int";
  if (v.is_bool()) return "bool";
  if (v.is_float()) return "float";
  if (v.is_none()) return "NoneType";
  if (v.is_sequence()) return v.sequence().tuple ? "tuple" : "list";
  if (v.is_dict()) return "dict";
  if (v.is_object()) return v.object()->type_name();
  return "Undefined";
}

bool truth(const Value& v) {
  if (v.is_bool()) return v.as_bool();
  if (v.is_str()) return !v.text().empty();
  if (v.is_int()) return v.as_int() != 0;
  if (v.is_float()) return v.as_float() != 0;
  if (v.is_sequence()) return !v.items().empty();
  if (v.is_dict()) return v.dict().size() > 0;
  if (v.is_object()) return v.object()->truth();
  return false;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_str() && b.is_str()) return a.text() == b.text();
  if (a.is_number() && b.is_number())
    return compare_numbers(a, b) == 0 && !(a.is_float() && std::isnan(a.as_float())) &&
           !(b.is_float() && std::isnan(b.as_float()));
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_sequence() && b.is_sequence()) {
    const auto& x = a.sequence();
    const auto& y = b.sequence();
    return x.tuple == y.tuple &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict());
  if (a.is_object() && b.is_object()) return a.object()->equals(*b.object());
  return a.is_missing() && b.is_missing();
}

size_t hash_value(const Value& v) {
  if (v.is_str()) return hash_text(v.text());
  if (v.is_integral()) return std::hash<uint64_t>{}(static_cast<uint64_t>(v.as_int()));
  if (v.is_float()) {
    const double d = v.as_float();
    if (std::abs(d) < 1e18 && d == std::floor(d))
      return std::hash<uint64_t>{}(static_cast<uint64_t>(static_cast<int64_t>(d)));
    return std::hash<double>{}(d);
  }
  if (v.is_dict() || (v.is_sequence() && !v.sequence().tuple)) fail("unhashable type: '", type_name(v), "'");
  if (v.is_sequence()) {
    size_t hash = 0x345678;
    for (const Value& item : v.items()) hash = hash * 1000003 ^ hash_value(item);
    return hash;
  }
  if (v.is_object()) return std::hash<const void*>{}(v.object().get());
  return v.is_none() ? 1 : 2;
}

int compare(const Value& a, const Value& b, const char* op) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  // UTF-8 sorts like the code points it encodes.
  if (a.is_str() && b.is_str()) return a.text().compare(b.text());
  if (a.is_undefined()) fail(a.undefined_message());
  if (b.is_undefined()) fail(b.undefined_message());
  if (a.is_sequence() && b.is_sequence() && a.sequence().tuple == b.sequence().tuple) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i], op);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  fail("'", op, "' not supported between instances of '", type_name(a), "' and '", type_name(b), "'");
}

Iterator iterate(const Value& v) {
  if (v.is_sequence()) {
    return [s = v.sequence_ptr(), i = size_t{0}](Value& out) mutable {
      if (i >= s->items.size()) return false;
      out = s->items[i++];
      return true;
    };
  }
  if (v.is_dict()) {
    return [d = v.dict_ptr(), i = size_t{0}](Value& out) mutable {
      if (i >= d->size()) return false;
      out = d->items()[i++].first;
      return true;
    };
  }
  if (v.is_str()) {
    return [keep = v, pos = size_t{0}](Value& out) mutable {
      const std::string& text = keep.text();
      if (pos >= text.size()) return false;
      const size_t begin = pos;
      decode(text, pos);
      out = Value(text.substr(begin, pos - begin), keep.str().safe);
      return true;
    };
  }
  if (v.is_undefined()) return [](Value&) { return false; };
  if (v.is_object()) {
    if (auto it = v.object()->iterate()) return std::move(*it);
  }
  fail("'", type_name(v), "' object is not iterable");
}

bool is_iterable(const Value& v) {
  return v.is_sequence() || v.is_dict() || v.is_str() || v.is_undefined() ||
         (v.is_object() && v.object()->iterate());
}

std::vector<Value> to_vector(const Value& v) {
  if (v.is_sequence()) return v.items();
  std::vector<Value> out;
  Iterator next = iterate(v);
  for (Value item; next(item);) out.push_back(item);
  return out;
}

std::optional<size_t> length(const Value& v) {
  if (v.is_str()) return v.str().length;
  if (v.is_sequence()) return v.items().size();
  if (v.is_dict()) return v.dict().size();
  if (v.is_undefined()) return 0;
  if (v.is_object()) return v.object()->length();
  return std::nullopt;
}

}  // namespace strata::jinja
