// Evaluating expressions.
#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_registry.h"

namespace strata::jinja {

using Kind = Expr::Kind;

Value& Interpreter::slot(const Ref& ref) {
  Frame* frame = frame_.get();
  for (int i = 0; i < ref.hops; ++i) frame = frame->outer.get();
  return frame->slots[static_cast<size_t>(ref.slot)];
}

Value Interpreter::eval(const Expr& e) {
  charge(0);
  const Depth depth(*this);
  switch (e.kind) {
    case Kind::kConst:
      return e.value;
    case Kind::kName:
      return eval_name(e);
    case Kind::kList:
    case Kind::kTuple:
      return eval_items(e);
    case Kind::kDict:
      return eval_dict(e);
    case Kind::kAttribute: {
      const Value object = eval(*e.kids[0]);
      line_ = e.line;
      return get_attribute(object, e.name);
    }
    case Kind::kItem: {
      const Value object = eval(*e.kids[0]);
      const Value key = eval(*e.kids[1]);
      line_ = e.line;
      return get_item(object, key);
    }
    case Kind::kSlice:
      return eval_slice(e);
    case Kind::kCall:
      return eval_call(e, nullptr);
    case Kind::kFilter:
      return eval_filter(e, nullptr);
    case Kind::kTest:
      return Value(eval_test(e));
    case Kind::kNot:
      return Value(!truth(eval(*e.kids[0])));
    case Kind::kAnd: {
      Value left = eval(*e.kids[0]);
      return truth(left) ? eval(*e.kids[1]) : left;
    }
    case Kind::kOr: {
      Value left = eval(*e.kids[0]);
      return truth(left) ? left : eval(*e.kids[1]);
    }
    case Kind::kConcat:
      return eval_concat(e);
    case Kind::kCompare:
      return Value(eval_compare(e));
    case Kind::kConditional:
      return eval_conditional(e);
    case Kind::kNamespaceRef:
      fail("a namespace attribute is only a target of set");
    default:
      return eval_binary(e);
  }
}

Value Interpreter::eval_name(const Expr& e) {
  const Value& value = slot(e.ref);
  return value.is_missing() ? Value::undefined("'" + e.name + "' is undefined") : value;
}

Value Interpreter::eval_items(const Expr& e) {
  std::vector<Value> items;
  items.reserve(e.kids.size());
  for (const auto& kid : e.kids) items.push_back(eval(*kid));
  line_ = e.line;
  return e.kind == Kind::kTuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value Interpreter::eval_dict(const Expr& e) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < e.kids.size(); i += 2) {
    Value key = eval(*e.kids[i]);
    Value value = eval(*e.kids[i + 1]);
    line_ = e.line;
    dict->set(std::move(key), std::move(value));
  }
  return Value(DictPtr(std::move(dict)));
}

Args Interpreter::eval_args(const CallArgs& args) {
  Args out;
  out.positional.reserve(args.positional.size());
  for (const auto& arg : args.positional) out.positional.push_back(eval(*arg));
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, eval(*arg));
  if (args.star) {
    for (Value& item : to_vector(eval(*args.star))) out.positional.push_back(std::move(item));
  }
  if (args.double_star) {
    const Value named = eval(*args.double_star);
    if (!named.is_dict()) fail("argument after ** must be a mapping, not ", type_name(named));
    for (const auto& [key, value] : named.dict().items()) {
      if (!key.is_str()) fail("keywords must be strings");
      for (const auto& [other, unused] : out.named) {
        if (other == key.text()) fail("got multiple values for keyword argument '", other, "'");
      }
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::call(const Value& callee, Args& args) {
  if (callee.is_undefined()) fail(callee.undefined_message());
  if (!callee.is_object() || !callee.object()->callable())
    fail("'", type_name(callee), "' object is not callable");
  return callee.object()->call(*this, args);
}

Value Interpreter::eval_call(const Expr& e, const Value* caller) {
  const Expr& callee = *e.kids[0];
  // obj.method(...): without making a value of the method.
  if (callee.kind == Kind::kAttribute && !caller) {
    const Value object = eval(*callee.kids[0]);
    if (const MethodFn method = find_method(object, callee.name)) {
      Args args = eval_args(*e.args);
      line_ = e.line;
      return method(*this, object, args);
    }
    line_ = callee.line;
    const Value function = get_attribute(object, callee.name);
    Args args = eval_args(*e.args);
    line_ = e.line;
    return call(function, args);
  }
  const Value function = eval(callee);
  Args args = eval_args(*e.args);
  if (caller) args.named.emplace_back("caller", *caller);
  line_ = e.line;
  return call(function, args);
}

// `block`: the text of a filter or set block, for the innermost filter of a chain.
Value Interpreter::eval_filter(const Expr& e, const Value* block) {
  const Value input = e.kids.empty()                              ? *block
                      : block && e.kids[0]->kind == Kind::kFilter ? eval_filter(*e.kids[0], block)
                                                                  : eval(*e.kids[0]);
  Args args = eval_args(*e.args);
  line_ = e.line;
  if (!e.filter) fail("No filter named '", e.name, "' found.");
  return e.filter(*this, input, args);
}

bool Interpreter::eval_test(const Expr& e) {
  const Value input = eval(*e.kids[0]);
  Args args = eval_args(*e.args);
  line_ = e.line;
  if (!e.test) fail("No test named '", e.name, "' found.");
  return e.test(*this, input, args);
}

Value Interpreter::eval_binary(const Expr& e) {
  const Value left = eval(*e.kids[0]);
  const Value right = e.kids.size() > 1 ? eval(*e.kids[1]) : Value();
  line_ = e.line;
  switch (e.kind) {
    case Kind::kAdd:
      return add(*this, left, right);
    case Kind::kSubtract:
      return subtract(left, right);
    case Kind::kMultiply:
      return multiply(*this, left, right);
    case Kind::kDivide:
      return divide(left, right);
    case Kind::kFloorDivide:
      return floor_divide(left, right);
    case Kind::kModulo:
      return modulo(*this, left, right);
    case Kind::kPower:
      return power(left, right);
    case Kind::kNegate:
      return negate(left);
    default:
      return plus(left);
  }
}

Value Interpreter::eval_concat(const Expr& e) {
  std::string joined;
  for (const auto& kid : e.kids) joined += to_string(eval(*kid));
  line_ = e.line;
  return text(std::move(joined));
}

Value Interpreter::eval_slice(const Expr& e) {
  const Value object = eval(*e.kids[0]);
  const auto bound = [this, &e](size_t i) { return e.kids[i] ? eval(*e.kids[i]) : Value(); };
  const Value start = bound(1), stop = bound(2), step = bound(3);
  line_ = e.line;
  return get_slice(*this, object, start, stop, step);
}

bool Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.kids[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = eval(*e.kids[i + 1]);
    line_ = e.line;
    charge(std::min(weight(left), weight(right)) + (e.operators[i].ends_with("in") ? weight(right) : 0));
    if (!compare_with(e.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval_conditional(const Expr& e) {
  if (truth(eval(*e.kids[0]))) return eval(*e.kids[1]);
  if (e.kids[2]) return eval(*e.kids[2]);
  return Value::undefined("the inline if-expression on line " + std::to_string(e.line) +
                          " evaluated to false and no else section was defined.");
}

}  // namespace strata::jinja
