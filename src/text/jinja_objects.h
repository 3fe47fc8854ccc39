// The values that are neither scalars nor containers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_registry.h"
#include "text/jinja_value.h"

namespace strata::jinja {

// The variables of one running function and the way to those around it.
struct Frame {
  Frame(int count, std::shared_ptr<Frame> around)
      : slots(static_cast<size_t>(count)), outer(std::move(around)) {}
  std::vector<Value> slots;
  std::shared_ptr<Frame> outer;
  bool captured = false;  // a macro or loop keeps it, so the interpreter must empty it at the end
};
using FramePtr = std::shared_ptr<Frame>;

// The only mutable value. The interpreter owns all of them and empties them at the end, so cycles do not
// leak.
struct Namespace : Object {
  Dict attributes;
  const char* type_name() const override { return "Namespace"; }
  std::string repr() const override;
  Value attribute(const std::string& name) override;
  void set(const std::string& name, Value value);
};

// An iterator that can be used once, as Python's generators are.
struct Generator : Object, std::enable_shared_from_this<Generator> {
  Generator(Iterator it, uint32_t depth, const char* type)
      : next(std::move(it)), depth_(depth), type_(type) {}
  Iterator next;
  const char* type_name() const override { return type_; }
  std::optional<Iterator> iterate() override;
  uint32_t nesting() const override { return depth_; }

 private:
  uint32_t depth_;
  const char* type_;
};
// `source` is what the iterator reads from; fails when generators pile up too deep.
Value make_generator(Iterator next, const Value& source, const char* type = "generator");

struct DictView : Object {
  enum class Part { kKeys, kValues, kItems };
  DictView(DictPtr d, Part p) : dict(std::move(d)), part(p) {}
  DictPtr dict;
  Part part;
  const char* type_name() const override;
  std::string repr() const override;
  bool truth() const override { return dict->size() > 0; }
  std::optional<Iterator> iterate() override;
  std::optional<size_t> length() const override { return dict->size(); }
  uint32_t nesting() const override { return dict->extent().nesting + 1; }
};

struct Range : Object {
  Range(Int first, Int end, Int by);
  Int start, stop, step, count;
  const char* type_name() const override { return "range"; }
  std::string repr() const override;
  bool truth() const override { return count > 0; }
  Value attribute(const std::string& name) override;
  Value item(const Value& key) override;
  bool subscriptable() const override { return true; }
  std::optional<Iterator> iterate() override;
  std::optional<size_t> length() const override { return static_cast<size_t>(count); }
  bool equals(const Object& other) const override;
};

// value.method, waiting for its arguments.
struct BoundMethod : Object {
  BoundMethod(Value s, std::string n, MethodFn f) : self(std::move(s)), name(std::move(n)), function(f) {}
  Value self;
  std::string name;
  MethodFn function;
  const char* type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& rt, Args& args) override { return function(rt, self, args); }
  bool equals(const Object& other) const override;
  uint32_t nesting() const override { return jinja::nesting(self) + 1; }
};

using BuiltinFn = std::function<Value(Interpreter&, Args&)>;

struct Builtin : Object {
  Builtin(std::string n, BuiltinFn f, const Value& uses = {})
      : name(std::move(n)), function(std::move(f)), depth(jinja::nesting(uses) + 1) {}
  std::string name;
  BuiltinFn function;
  uint32_t depth;
  const char* type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Interpreter& rt, Args& args) override { return function(rt, args); }
  uint32_t nesting() const override { return depth; }
};

// A macro, or the caller() of a call block, with the frame it was defined in.
struct Macro : Object {
  Macro(const MacroCode& c, FramePtr f) : code(c), closure(std::move(f)) {}
  const MacroCode& code;
  FramePtr closure;
  const char* type_name() const override { return "Macro"; }
  std::string repr() const override;
  Value attribute(const std::string& name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& rt, Args& args) override;
};

// The variable `loop`: where the loop is in its source.
struct Loop : Object, std::enable_shared_from_this<Loop> {
  Loop(Iterator it, std::optional<size_t> len, uint32_t depth)
      : next_(std::move(it)), length_(len), nesting_(depth) {}
  bool advance(Value& out);  // to the next element; false at the end

  const char* type_name() const override { return "LoopContext"; }
  std::string repr() const override;
  Value attribute(const std::string& name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& rt, Args& args) override;  // loop(iterable) of a recursive loop
  std::optional<size_t> length() const override;
  uint32_t nesting() const override { return nesting_; }

  const Stmt* recursive = nullptr;  // the loop to run again
  FramePtr frame;                   // around it
  int depth0 = 0;

 private:
  bool peek();
  Int known_length();
  mutable Iterator next_;
  mutable std::optional<size_t> length_;
  uint32_t nesting_;
  Int index0_ = -1;
  Value before_, current_, after_, last_changed_;
};

struct Cycler : Object, std::enable_shared_from_this<Cycler> {
  explicit Cycler(Value tuple) : items(std::move(tuple)) {}
  Value items;
  size_t position = 0;
  const char* type_name() const override { return "Cycler"; }
  Value attribute(const std::string& name) override;
  uint32_t nesting() const override { return jinja::nesting(items) + 1; }
};

struct Joiner : Object {
  explicit Joiner(Value s) : separator(std::move(s)) {}
  Value separator;
  bool used = false;
  const char* type_name() const override { return "Joiner"; }
  Value attribute(const std::string& name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& rt, Args& args) override;
  uint32_t nesting() const override { return jinja::nesting(separator) + 1; }
};

}  // namespace strata::jinja
