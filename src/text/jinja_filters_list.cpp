// Filters on sequences.
#include <algorithm>
#include <cmath>

#include "text/jinja_arguments.h"
#include "text/jinja_filters.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {
namespace {

using KeyFn = std::function<Value(const Value&)>;

Value ignore_case(const Value& v) { return v.is_str() ? Value(to_lower(v.text())) : v; }

// "a.0.b" as a path of keys; numbers are indices.
std::vector<Value> attribute_path(const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return {};
  if (!attribute.is_str()) return {attribute};
  std::vector<Value> path;
  for (const auto part : split(attribute.text(), ".", -1, false)) {
    const bool number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    path.push_back(number ? Value(Int{std::stoll(std::string(part))}) : Value(std::string(part)));
  }
  return path;
}

// make_attrgetter of jinja2/filters.py. `otherwise` replaces undefined unless it is missing or None.
KeyFn getter(const Value& attribute, bool fold_case, Value otherwise = {}) {
  return [path = attribute_path(attribute), fold_case, otherwise = std::move(otherwise)](const Value& item) {
    Value v = item;
    for (const Value& key : path) {
      v = get_item(v, key);
      if (v.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) v = otherwise;
    }
    return fold_case ? ignore_case(v) : v;
  };
}

// Stable; keys are computed once each.
std::vector<Value> sorted(const std::vector<Value>& items, const KeyFn& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (const Value& item : items) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (auto& [k, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value list_filter(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("list", args, {});
  auto items = to_vector(v);
  rt.allocate(items.size() * sizeof(Value) + (v.is_str() ? v.text().size() * sizeof(Str) : 0));
  return Value::list(std::move(items));
}

Value first(Interpreter&, const Value& v, Args& args) {
  const Bound bound("first", args, {});
  Value item;
  return iterate(v)(item) ? item : Value::undefined("No first item, sequence was empty.");
}

// reversed(v), or nothing where Python has none.
std::optional<std::vector<Value>> reversed(const Value& v) {
  const bool has_order = v.is_str() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
                         v.object_as<Range>() || v.object_as<DictView>();
  if (!has_order) return std::nullopt;
  auto items = to_vector(v);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last(Interpreter&, const Value& v, Args& args) {
  const Bound bound("last", args, {});
  if (v.is_sequence() && !v.items().empty()) return v.items().back();
  const auto items = reversed(v);
  if (!items) fail("'", type_name(v), "' object is not reversible");
  return items->empty() ? Value::undefined("No last item, sequence was empty.") : items->front();
}

Iterator over(std::vector<Value> items) {
  return [items = std::move(items), i = size_t{0}](Value& out) mutable {
    if (i >= items.size()) return false;
    out = items[i++];
    return true;
  };
}

Value reverse(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("reverse", args, {});
  if (v.is_str()) {
    std::string out;
    const auto characters = split_code_points(v.text());
    for (auto it = characters.rbegin(); it != characters.rend(); ++it) out += *it;
    return rt.text(std::move(out), v.str().safe);
  }
  if (auto items = reversed(v)) {
    rt.allocate(items->size() * sizeof(Value));
    return make_generator(over(std::move(*items)), v,
                          v.is_sequence() && !v.sequence().tuple ? "list_reverseiterator" : "reversed");
  }
  auto items = to_vector(v);
  std::reverse(items.begin(), items.end());
  return Value::list(std::move(items));
}

Value join(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("join", args, {"d", "attribute"});
  const std::string separator = bound.has(0) ? to_string(bound[0]) : "";
  const bool mapped = bound.has_value(1);
  const KeyFn key = getter(mapped ? bound[1] : Value(), false);
  Iterator next = iterate(v);
  std::string out;
  bool is_first = true;
  for (Value item; next(item); is_first = false) {
    const std::string text = to_string(mapped ? key(item) : item);
    rt.charge(text.size() + separator.size());
    if (out.size() > kMaxText) fail("joined text is too long");
    if (!is_first) out += separator;
    out += text;
  }
  return rt.text(std::move(out));
}

Value sort(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  const bool fold = !bound.truth(1, false);
  std::vector<KeyFn> keys;
  if (bound.has(2) && bound[2].is_str()) {
    for (const auto part : split(bound[2].text(), ",", -1, false))
      keys.push_back(getter(Value(std::string(part)), fold));
  } else {
    keys.push_back(getter(bound[2], fold));
  }
  const auto key = [&keys](const Value& item) {
    std::vector<Value> parts;
    for (const auto& k : keys) parts.push_back(k(item));
    return Value::list(std::move(parts));
  };
  auto items = to_vector(v);
  rt.allocate(items.size() * sizeof(Value));
  return Value::list(sorted(items, key, bound.truth(0, false)));
}

Value unique(Interpreter&, const Value& v, Args& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  auto seen = std::make_shared<Dict>();
  return make_generator(
      [next = iterate(v), seen, key = getter(bound[1], !bound.truth(0, false))](Value& out) {
        while (next(out)) {
          const Value k = key(out);
          if (seen->find(k)) continue;
          seen->set(k, Value(None{}));
          return true;
        }
        return false;
      },
      v);
}

template <bool Max>
Value extreme(Interpreter&, const Value& v, Args& args) {
  const Bound bound("min", args, {"case_sensitive", "attribute"});
  const KeyFn key = getter(bound[1], !bound.truth(0, false));
  Iterator next = iterate(v);
  Value best;
  if (!next(best)) return Value::undefined("No aggregated item, sequence was empty.");
  Value best_key = key(best);
  for (Value item; next(item);) {
    Value k = key(item);
    const int order = compare(k, best_key, Max ? ">" : "<");
    if (Max ? order <= 0 : order >= 0) continue;
    best = item;
    best_key = std::move(k);
  }
  return best;
}

Value sum(Interpreter& rt, const Value& v, Args& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  const KeyFn key = getter(bound.has_value(0) ? bound[0] : Value(), false);
  Value total = bound.get(1, Value(Int{0}));
  if (total.is_str()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Iterator next = iterate(v);
  for (Value item; next(item);) total = add(rt, total, key(item));
  return total;
}

Int slice_count(const Value& v, const char* what) {
  const Int count = require_int(v);
  if (count > 1000000) fail(what, " is too large");
  return count;
}

Value batch(Interpreter&, const Value& v, Args& args) {
  const Bound bound("batch", args, {"linecount", "fill_with"}, 1);
  const Int size = slice_count(bound[0], "batch");
  const Value fill = bound.get(1, Value(None{}));
  return make_generator(
      [next = iterate(v), size, fill, pending = Value()](Value& out) mutable {
        std::vector<Value> items;
        if (!pending.is_missing()) items.push_back(std::exchange(pending, Value()));
        for (Value item; pending.is_missing() && next(item);) {
          if (static_cast<Int>(items.size()) == size) {
            pending = item;
          } else {
            items.push_back(item);
          }
        }
        if (items.empty() && pending.is_missing()) return false;
        if (pending.is_missing() && !fill.is_none()) {
          while (static_cast<Int>(items.size()) < size) items.push_back(fill);
        }
        out = Value::list(std::move(items));
        return true;
      },
      v);
}

Value slice(Interpreter&, const Value& v, Args& args) {
  const Bound bound("slice", args, {"slices", "fill_with"}, 1);
  const Int slices = slice_count(bound[0], "slice");
  if (slices == 0) fail("integer division or modulo by zero");
  const auto items = to_vector(v);
  const Int size = static_cast<Int>(items.size()), each = size / std::max<Int>(slices, 1),
            extra = size % std::max<Int>(slices, 1);
  std::vector<Value> out;
  Int begin = 0;
  for (Int i = 0; i < slices; ++i) {
    const Int end = begin + each + (i < extra ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                            items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.has_value(1) && i >= extra) part.push_back(bound[1]);
    out.push_back(Value::list(std::move(part)));
    begin = end;
  }
  return make_generator(over(std::move(out)), v);
}

Value groupby(Interpreter&, const Value& v, Args& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const Value otherwise = bound[1];
  const bool fold = !bound.truth(2, false);
  const KeyFn key = getter(bound[0], fold, otherwise), shown = getter(bound[0], false, otherwise);
  std::vector<Value> out;
  std::vector<Value> group;
  const auto flush = [&] {
    if (group.empty()) return;
    const Value pair = Value::tuple({shown(group.front()), Value::list(std::move(group))});
    out.emplace_back(
        std::make_shared<const Sequence>(Sequence{pair.items(), pair.sequence().extent, true, true}));
    group.clear();
  };
  for (const Value& item : sorted(to_vector(v), key, false)) {
    if (!group.empty() && !equal(key(group.front()), key(item))) flush();
    group.push_back(item);
  }
  flush();
  return Value::list(std::move(out));
}

Value map(Interpreter& rt, const Value& v, Args& args) {
  if (!truth(v)) return make_generator([](Value&) { return false; }, v);
  KeyFn change;
  const bool by_attribute =
      args.positional.empty() && !args.named.empty() &&
      std::any_of(args.named.begin(), args.named.end(), [](const auto& a) { return a.first == "attribute"; });
  if (by_attribute) {
    const Bound bound("map", args, {"attribute", "default"}, 1);
    change = getter(bound[0], false, bound[1]);
  } else {
    if (args.positional.empty()) fail("map requires a filter argument");
    const Value name = args.positional.front();
    const FilterFn filter = name.is_str() ? find_filter(name.text()) : nullptr;
    if (!filter) fail("No filter named ", repr(name), ".");
    args.positional.erase(args.positional.begin());
    change = [&rt, filter, rest = args](const Value& item) {
      Args copy = rest;
      return filter(rt, item, copy);
    };
  }
  return make_generator(
      [next = iterate(v), change, &rt](Value& out) {
        Value item;
        if (!next(item)) return false;
        rt.charge(0);
        out = change(item);
        return true;
      },
      v);
}

// select, reject, selectattr and rejectattr.
template <bool Keep, bool ByAttribute>
Value select(Interpreter& rt, const Value& v, Args& args) {
  if (!truth(v)) return make_generator([](Value&) { return false; }, v);
  KeyFn key = getter({}, false);
  if (ByAttribute) {
    if (args.positional.empty()) fail("Missing parameter for attribute name");
    key = getter(args.positional.front(), false);
    args.positional.erase(args.positional.begin());
  }
  std::function<bool(const Value&)> test = truth;
  if (!args.positional.empty()) {
    const Value name = args.positional.front();
    const TestFn function = name.is_str() ? find_test(name.text()) : nullptr;
    if (!function) fail("No test named ", repr(name), ".");
    args.positional.erase(args.positional.begin());
    test = [&rt, function, rest = args](const Value& item) {
      Args copy = rest;
      return function(rt, item, copy);
    };
  }
  return make_generator(
      [next = iterate(v), key, test, &rt](Value& out) {
        while (next(out)) {
          rt.charge(0);
          if (test(key(out)) == Keep) return true;
        }
        return false;
      },
      v);
}

}  // namespace

const std::vector<Named<FilterFn>>& sequence_filters() {
  static const std::vector<Named<FilterFn>> filters = {
      {"batch", batch},
      {"first", first},
      {"groupby", groupby},
      {"join", join},
      {"last", last},
      {"list", list_filter},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", select<false, false>},
      {"rejectattr", select<false, true>},
      {"reverse", reverse},
      {"select", select<true, false>},
      {"selectattr", select<true, true>},
      {"slice", slice},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return filters;
}

}  // namespace strata::jinja
