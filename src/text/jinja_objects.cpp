// Namespaces, generators, views, ranges, macros and loops.
#include "text/jinja_objects.h"

#include <algorithm>

#include "text/jinja_arguments.h"
#include "text/jinja_interpreter.h"

namespace strata::jinja {
namespace {

Value builtin(std::string name, BuiltinFn function, const Value& uses) {
  return Value(ObjectPtr(std::make_shared<Builtin>(std::move(name), std::move(function), uses)));
}

}  // namespace

std::string Namespace::repr() const {
  std::string out = "<Namespace {";
  for (const auto& [key, value] : attributes.items()) {
    if (out.back() != '{') out += ", ";
    // A namespace in a namespace may be itself: stop there instead of never.
    out += jinja::repr(key) + ": " + (value.object_as<Namespace>() ? "<Namespace ...>" : jinja::repr(value));
  }
  return out + "}>";
}

Value Namespace::attribute(const std::string& name) {
  const Value* found = attributes.find(name);
  return found ? *found : Value();
}

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with("_"))
    fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '", name, "'");
  attributes.set(Value(name), std::move(value));
}

std::optional<Iterator> Generator::iterate() {
  return [self = shared_from_this()](Value& out) { return self->next(out); };
}

Value make_generator(Iterator next, const Value& source, const char* type) {
  const uint32_t depth = nesting(source) + 1;
  if (depth >= kMaxNesting) fail("values are nested deeper than ", std::to_string(kMaxNesting), " levels");
  return Value(ObjectPtr(std::make_shared<Generator>(std::move(next), depth, type)));
}

const char* DictView::type_name() const {
  return part == Part::kKeys ? "dict_keys" : part == Part::kValues ? "dict_values" : "dict_items";
}

std::string DictView::repr() const {
  std::vector<Value> items;
  for (const auto& [key, value] : dict->items()) {
    items.push_back(part == Part::kKeys ? key : part == Part::kValues ? value : Value::tuple({key, value}));
  }
  return std::string(type_name()) + "(" + jinja::repr(Value::list(std::move(items))) + ")";
}

std::optional<Iterator> DictView::iterate() {
  return [d = dict, p = part, i = size_t{0}](Value& out) mutable {
    if (i >= d->size()) return false;
    const auto& [key, value] = d->items()[i++];
    out = p == Part::kKeys ? key : p == Part::kValues ? value : Value::tuple({key, value});
    return true;
  };
}

Range::Range(Int first, Int end, Int by) : start(first), stop(end), step(by), count(0) {
  if (step == 0) fail("range() arg 3 must not be zero");
  if (step > 0 && stop > start) count = (stop - start - 1) / step + 1;
  if (step < 0 && start > stop) count = (start - stop - 1) / -step + 1;
}

std::string Range::repr() const {
  std::string out = "range(" + int_to_string(start) + ", " + int_to_string(stop);
  return out + (step == 1 ? ")" : ", " + int_to_string(step) + ")");
}

Value Range::attribute(const std::string& name) {
  if (name == "start") return Value(start);
  if (name == "stop") return Value(stop);
  if (name == "step") return Value(step);
  return {};
}

Value Range::item(const Value& key) {
  if (!key.is_integral()) return {};
  const Int index = key.as_int() < 0 ? key.as_int() + count : key.as_int();
  return index < 0 || index >= count ? Value() : Value(start + index * step);
}

std::optional<Iterator> Range::iterate() {
  return [at = start, by = step, left = count](Value& out) mutable {
    if (left-- <= 0) return false;
    out = Value(at);
    at += by;
    return true;
  };
}

bool Range::equals(const Object& other) const {
  const auto* r = dynamic_cast<const Range*>(&other);
  return r && count == r->count && (count == 0 || (start == r->start && (count == 1 || step == r->step)));
}

bool BoundMethod::equals(const Object& other) const {
  const auto* m = dynamic_cast<const BoundMethod*>(&other);
  return m && m->name == name && equal(m->self, self);
}

std::string Macro::repr() const {
  return "<Macro " + (code.name.empty() ? "anonymous" : repr_str(code.name)) + ">";
}

Value Macro::attribute(const std::string& name) {
  if (name == "name") return code.name.empty() ? Value(None{}) : Value(code.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const auto& parameter : code.parameters) names.emplace_back(parameter);
    return Value::tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value(code.kwargs_slot >= 0);
  if (name == "catch_varargs") return Value(code.varargs_slot >= 0);
  if (name == "caller") return Value(code.uses_caller);
  return {};
}

Value Macro::call(Interpreter& rt, Args& args) { return rt.call_macro(code, closure, args); }

bool Loop::advance(Value& out) {
  if (!after_.is_missing()) {
    out = std::exchange(after_, Value());
  } else if (!next_(out)) {
    return false;
  }
  ++index0_;
  before_ = std::exchange(current_, out);
  return true;
}

bool Loop::peek() {
  if (after_.is_missing() && !next_(after_)) after_ = Value();
  return !after_.is_missing();
}

// A source of unknown length is read to its end to count it.
std::optional<size_t> Loop::length() const {
  if (!length_) {
    auto rest = std::make_shared<std::vector<Value>>();
    for (Value item; next_(item);) rest->push_back(item);
    length_ = rest->size() + static_cast<size_t>(index0_ + 1) + (after_.is_missing() ? 0 : 1);
    next_ = [rest, i = size_t{0}](Value& out) mutable {
      if (i >= rest->size()) return false;
      out = (*rest)[i++];
      return true;
    };
  }
  return length_;
}

Int Loop::known_length() { return static_cast<Int>(*length()); }

std::string Loop::repr() const {
  return "<LoopContext " + int_to_string(index0_ + 1) + "/" + std::to_string(*length()) + ">";
}

Value Loop::attribute(const std::string& name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return Value(known_length());
  if (name == "revindex") return Value(known_length() - index0_);
  if (name == "revindex0") return Value(known_length() - index0_ - 1);
  if (name == "previtem") return index0_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek() ? after_ : Value::undefined("there is no next item");
  if (name == "depth") return Value(Int{depth0} + 1);
  if (name == "depth0") return Value(Int{depth0});
  const auto self = shared_from_this();
  if (name == "cycle") {
    return builtin(
        name,
        [self](Interpreter&, Args& args) {
          if (args.positional.empty()) fail("no items for cycling given");
          return args.positional[static_cast<size_t>(self->index0_) % args.positional.size()];
        },
        Value(ObjectPtr(self)));
  }
  if (name == "changed") {
    return builtin(
        name,
        [self](Interpreter&, Args& args) {
          Value now = Value::tuple(std::move(args.positional));
          if (!self->last_changed_.is_missing() && equal(self->last_changed_, now)) return Value(false);
          self->last_changed_ = std::move(now);
          return Value(true);
        },
        Value(ObjectPtr(self)));
  }
  return {};
}

Value Loop::call(Interpreter& rt, Args& args) {
  if (!recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  const Bound bound("loop", args, {"iterable"}, 1);
  return rt.call_recursive_loop(*recursive, frame, bound[0], depth0 + 1);
}

Value Cycler::attribute(const std::string& name) {
  if (name == "current") return items.items()[position];
  const auto self = shared_from_this();
  if (name == "next") {
    return builtin(
        name,
        [self](Interpreter&, Args&) {
          const Value& current = self->items.items()[self->position];
          self->position = (self->position + 1) % self->items.items().size();
          return current;
        },
        items);
  }
  if (name == "reset") {
    return builtin(
        name,
        [self](Interpreter&, Args&) {
          self->position = 0;
          return Value(None{});
        },
        items);
  }
  return {};
}

Value Joiner::attribute(const std::string& name) {
  if (name == "sep") return separator;
  return name == "used" ? Value(used) : Value();
}

Value Joiner::call(Interpreter&, Args& args) {
  const Bound bound("joiner", args, {});
  return std::exchange(used, true) ? separator : Value(std::string());
}

}  // namespace strata::jinja
