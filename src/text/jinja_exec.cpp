// Running statements.
#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace strata::jinja {

using Kind = Stmt::Kind;

constexpr size_t kBytesPerStep = 64;

// Collects output and, optionally, switches to another frame; undone at the end of its scope.
class Interpreter::Capture {
 public:
  Capture(Interpreter& rt, FramePtr frame) : rt_(rt), out_(std::exchange(rt.out_, &text)), frame_(rt.frame_) {
    rt_.frame_ = std::move(frame);
  }
  ~Capture() {
    rt_.out_ = out_;
    rt_.frame_ = std::move(frame_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::string text;

 private:
  Interpreter& rt_;
  std::string* out_;
  FramePtr frame_;
};

Interpreter::Interpreter(const TemplateCode& code, const nlohmann::ordered_json& context,
                         const RenderOptions& options)
    : code_(code), context_(context), options_(options) {}

// Macros and namespaces may refer to what holds them; emptying the holders breaks every such cycle.
Interpreter::~Interpreter() {
  for (auto& frame : captured_) frame->slots.clear();
  for (auto& ns : namespaces_) ns->attributes = Dict();
}

std::string Interpreter::run() {
  root_ = frame_ = std::make_shared<Frame>(code_.function.slots, nullptr);
  enter(code_.scope);
  exec(code_.body);
  return std::move(output_);
}

void Interpreter::charge(size_t bytes) {
  steps_ += 1 + bytes / kBytesPerStep;
  if (steps_ > options_.max_steps)
    fail("template takes more than ", std::to_string(options_.max_steps), " steps");
}

void Interpreter::allocate(size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > options_.max_bytes)
    fail("template makes more than ", std::to_string(options_.max_bytes), " bytes of text");
}

// A variable of the context or a global function; missing if there is neither.
Value Interpreter::resolve(const std::string& name) {
  if (frame_ != root_ && !frame_->outer) {  // a {% block %} sees what the template has set so far
    const auto slot = code_.function.slot_of.find({0, name});
    if (slot != code_.function.slot_of.end() &&
        !root_->slots[static_cast<size_t>(slot->second)].is_missing()) {
      return root_->slots[static_cast<size_t>(slot->second)];
    }
  }
  if (const auto it = resolved_.find(name); it != resolved_.end()) return it->second;
  if (const auto it = context_.find(name); it != context_.end()) {
    return resolved_.emplace(name, Value::from_json(*it)).first->second;
  }
  return find_global(name);
}

void Interpreter::enter(const ScopeCode& scope) {
  for (const Load& load : scope) {
    Value& target = frame_->slots[static_cast<size_t>(load.slot)];
    switch (load.from) {
      case Load::From::kParameter:
        break;
      case Load::From::kUndefined:
        target = Value();
        break;
      case Load::From::kOuter:
        target = slot(load.outer);
        break;
      case Load::From::kContext:
        target = resolve(load.name);
        break;
    }
  }
}

void Interpreter::leave(const ScopeCode& scope) {
  for (const Load& load : scope) frame_->slots[static_cast<size_t>(load.slot)] = Value();
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  const Depth depth(*this);
  for (const auto& stmt : body) {
    const Flow flow = exec(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec(const Stmt& stmt) {
  line_ = stmt.line;
  switch (stmt.kind) {
    case Kind::kData:
      allocate(stmt.text.size());
      *out_ += stmt.text;
      break;
    case Kind::kPrint:
      print(eval(*stmt.expr));
      break;
    case Kind::kIf:
      return exec_if(stmt);
    case Kind::kFor:
      return exec_for(stmt);
    case Kind::kSet:
      check_namespaces(*stmt.target);
      assign(*stmt.target, eval(*stmt.expr));
      break;
    case Kind::kSetBlock:
      return exec_set_block(stmt);
    case Kind::kMacro:
      slot(stmt.ref) = make_macro(*stmt.macro);
      break;
    case Kind::kCallBlock:
      exec_call_block(stmt);
      break;
    case Kind::kGeneration: {
      Args none;
      print(call_macro(*stmt.macro, frame_, none));
      break;
    }
    case Kind::kFilterBlock:
      return exec_filter_block(stmt);
    case Kind::kWith:
      return exec_with(stmt);
    case Kind::kScope: {
      enter(stmt.scope);
      const Flow flow = exec(stmt.body);
      leave(stmt.scope);
      return flow;
    }
    case Kind::kBlock:
      exec_block(stmt);
      break;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
    case Kind::kUnavailable:
      fail("{% ", stmt.text, " %}: a chat template has no other templates to load");
  }
  return Flow::kNormal;
}

void Interpreter::print(const Value& v) {
  if (v.is_str()) {
    allocate(v.text().size());
    *out_ += v.text();
    return;
  }
  const std::string text = to_string(v);
  allocate(text.size());
  *out_ += text;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& stmt) {
  for (const auto& [test, body] : stmt.branches) {
    if (truth(eval(*test))) return exec(body);
  }
  return exec(stmt.otherwise);
}

Interpreter::Flow Interpreter::exec_for(const Stmt& stmt) {
  const Value source = eval(*stmt.expr);
  line_ = stmt.line;
  if (!stmt.recursive) return run_loop(stmt, source, frame_, 0);
  print(call_recursive_loop(stmt, frame_, source, 0));
  return Flow::kNormal;
}

Value Interpreter::call_recursive_loop(const Stmt& loop, const FramePtr& around, const Value& source,
                                       int depth0) {
  const FramePtr outer = around;
  Capture capture(*this, std::make_shared<Frame>(loop.function->slots, outer));
  run_loop(loop, source, outer, depth0);
  return text(std::move(capture.text));
}

// The elements for which the loop's `if` holds, tested only as they are needed.
Iterator Interpreter::filtered(const Stmt& stmt, Iterator source, const FramePtr& around) {
  auto frame = std::make_shared<Frame>(stmt.filter_function->slots, around);
  keep(around);  // which may hold the loop that holds this iterator
  keep(frame);
  return [this, &stmt, frame, next = std::move(source)](Value& out) {
    const FramePtr running = std::exchange(frame_, frame);
    bool found = false;
    try {
      enter(stmt.filter_scope);
      while (!found && next(out)) {
        assign(*stmt.filter_target, out);
        found = truth(eval(*stmt.filter));
      }
    } catch (...) {
      frame_ = running;
      throw;
    }
    frame_ = running;
    return found;
  };
}

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const Value& source, const FramePtr& around,
                                        int depth0) {
  Iterator next = iterate(source);
  std::optional<size_t> known_length = length(source);
  if (stmt.filter) {
    next = filtered(stmt, std::move(next), around);
    known_length.reset();
  }
  std::shared_ptr<Loop> loop;
  if (stmt.loop_slot >= 0) {
    const uint32_t levels = nesting(source) + 1;
    if (levels >= kMaxNesting) fail("values are nested deeper than ", std::to_string(kMaxNesting), " levels");
    loop = std::make_shared<Loop>(std::move(next), known_length, levels);
    loop->depth0 = depth0;
    if (stmt.recursive) {
      loop->recursive = &stmt;
      loop->frame = around;
      keep(around);
    }
  }
  bool completed = false;  // an iteration ran to its end, which is what Jinja's `else` looks at
  Flow flow = Flow::kNormal;
  for (Value item; loop ? loop->advance(item) : next(item);) {
    line_ = stmt.line;
    charge(0);
    assign(*stmt.target, item);
    if (loop) frame_->slots[static_cast<size_t>(stmt.loop_slot)] = Value(ObjectPtr(loop));
    enter(stmt.scope);
    flow = exec(stmt.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNormal) completed = true;
  }
  leave(stmt.scope);
  if (completed || stmt.otherwise.empty()) return Flow::kNormal;
  enter(stmt.else_scope);
  flow = exec(stmt.otherwise);
  leave(stmt.else_scope);
  return flow;
}

Interpreter::Flow Interpreter::exec_set_block(const Stmt& stmt) {
  Value value;
  enter(stmt.scope);
  {
    Capture capture(*this, frame_);
    const Flow flow = exec(stmt.body);
    if (flow != Flow::kNormal) return flow;
    value = text(std::move(capture.text));
  }
  if (stmt.expr) value = eval_filter(*stmt.expr, &value);
  check_namespaces(*stmt.target);
  assign(*stmt.target, std::move(value));
  leave(stmt.scope);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_filter_block(const Stmt& stmt) {
  Value value;
  enter(stmt.scope);
  {
    Capture capture(*this, frame_);
    const Flow flow = exec(stmt.body);
    if (flow != Flow::kNormal) return flow;
    value = text(std::move(capture.text));
  }
  print(eval_filter(*stmt.expr, &value));
  leave(stmt.scope);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::exec_with(const Stmt& stmt) {
  enter(stmt.scope);
  for (size_t i = 0; i < stmt.exprs.size(); i += 2) assign(*stmt.exprs[i], eval(*stmt.exprs[i + 1]));
  const Flow flow = exec(stmt.body);
  leave(stmt.scope);
  return flow;
}

void Interpreter::exec_block(const Stmt& stmt) {
  std::string rendered;
  {
    Capture capture(*this, std::make_shared<Frame>(stmt.function->slots, nullptr));
    enter(stmt.scope);
    exec(stmt.body);
    rendered = std::move(capture.text);
  }
  *out_ += rendered;
}

void Interpreter::exec_call_block(const Stmt& stmt) {
  const Value caller = make_macro(*stmt.macro);
  print(eval_call(*stmt.expr, &caller));
}

// Notes a frame that a value refers to, to be emptied at the end.
void Interpreter::keep(const FramePtr& frame) {
  if (std::exchange(frame->captured, true)) return;
  captured_.push_back(frame);
  allocate(sizeof(Frame) + frame->slots.size() * sizeof(Value));
}

Value Interpreter::make_macro(const MacroCode& code) {
  keep(frame_);
  return Value(ObjectPtr(std::make_shared<Macro>(code, frame_)));
}

Value Interpreter::make_namespace(Dict attributes) {
  auto ns = std::make_shared<Namespace>();
  for (const auto& [key, value] : attributes.items()) ns->set(to_string(key), value);
  allocate(sizeof(Namespace));
  namespaces_.push_back(ns);
  return Value(ObjectPtr(std::move(ns)));
}

void Interpreter::check_namespaces(const Expr& target) {
  for (const auto& kid : target.kids) check_namespaces(*kid);
  if (target.kind == Expr::Kind::kNamespaceRef && !slot(target.ref).object_as<Namespace>()) {
    fail("cannot assign attribute on non-namespace object");
  }
}

void Interpreter::assign(const Expr& target, Value value) {
  if (target.kind == Expr::Kind::kName) {
    slot(target.ref) = std::move(value);
  } else if (target.kind == Expr::Kind::kNamespaceRef) {
    slot(target.ref).object_as<Namespace>()->set(target.value.text(), std::move(value));
  } else {
    const std::vector<Value> items = to_vector(value);
    if (items.size() != target.kids.size()) {
      fail(items.size() < target.kids.size() ? "not enough" : "too many", " values to unpack (expected ",
           std::to_string(target.kids.size()), ", got ", std::to_string(items.size()), ")");
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], items[i]);
  }
}

// Binds arguments as jinja2.runtime.Macro.__call__ does and renders the body.
Value Interpreter::call_macro(const MacroCode& code, const FramePtr& closure, Args& args) {
  const auto frame = std::make_shared<Frame>(code.function.slots, closure);
  const auto slot_at = [&frame](int i) -> Value& { return frame->slots[static_cast<size_t>(i)]; };
  const auto take = [&args](const std::string& name) {
    const auto it =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == name; });
    if (it == args.named.end()) return Value();
    Value value = std::move(it->second);
    args.named.erase(it);
    return value;
  };
  const size_t count = code.parameters.size();
  std::vector<Value> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(i < args.positional.size() ? args.positional[i] : take(code.parameters[i]));
  }
  if (code.caller_slot >= 0) {
    Value caller = take("caller");
    if (caller.is_missing() || caller.is_none()) caller = Value::undefined("No caller defined");
    slot_at(code.caller_slot) = std::move(caller);
  }
  const std::string name = code.name.empty() ? "None" : "'" + code.name + "'";
  if (code.kwargs_slot >= 0) {
    auto kwargs = std::make_shared<Dict>();
    for (auto& [key, value] : args.named) kwargs->set(Value(key), std::move(value));
    slot_at(code.kwargs_slot) = Value(DictPtr(std::move(kwargs)));
  } else if (!args.named.empty()) {
    fail("macro ", name, " takes no keyword argument '", args.named.front().first, "'");
  }
  if (code.varargs_slot >= 0) {
    const auto begin =
        args.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, args.positional.size()));
    slot_at(code.varargs_slot) = Value::tuple(std::vector<Value>(begin, args.positional.end()));
  } else if (args.positional.size() > count) {
    fail("macro ", name, " takes not more than ", std::to_string(count), " argument(s)");
  }

  const int call_line = line_;
  Capture capture(*this, frame);
  enter(code.scope);
  for (size_t i = 0; i < count; ++i) slot_at(code.parameter_slots[i]) = values[i];
  for (size_t i = 0; i < count; ++i) {
    Value& value = slot_at(code.parameter_slots[i]);
    if (!value.is_missing()) continue;
    const size_t first_default = count - code.defaults.size();
    value = i >= first_default ? eval(*code.defaults[i - first_default])
                               : Value::undefined("parameter '" + code.parameters[i] + "' was not provided");
  }
  exec(code.body);
  line_ = call_line;
  return text(std::move(capture.text));
}

}  // namespace strata::jinja
