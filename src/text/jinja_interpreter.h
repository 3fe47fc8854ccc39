// Runs a parsed template once.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/jinja.h"
#include "text/jinja_ast.h"
#include "text/jinja_objects.h"
#include "text/jinja_value.h"

namespace strata::jinja {

// One rendering, on one thread; throws RenderError, and line() then tells where. The template and the context
// outlive it.
class Interpreter {
 public:
  Interpreter(const TemplateCode& code, const nlohmann::ordered_json& context, const RenderOptions& options);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run();
  int line() const { return line_; }

  // For filters, tests, methods and objects.
  Value call(const Value& callee, Args& args);
  Value call_macro(const MacroCode& code, const FramePtr& closure, Args& args);
  Value call_recursive_loop(const Stmt& loop, const FramePtr& around, const Value& source, int depth0);
  Value make_namespace(Dict attributes);
  // Counts work towards the limits: a step that reads `bytes`; `bytes` newly made.
  void charge(size_t bytes);
  void allocate(size_t bytes);
  Value text(std::string s, bool safe = false) {
    allocate(s.size());
    return Value(std::move(s), safe);
  }
  std::time_t now() const { return options_.now ? *options_.now : std::time(nullptr); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;

  // One level of blocks, calls and expressions, bounded so that recursion ends in an error instead of a
  // crash.
  class Depth {
   public:
    explicit Depth(Interpreter& rt) : rt_(rt) {
      if (rt_.depth_ >= rt_.options_.max_depth) {
        fail("template recursion is deeper than ", std::to_string(rt_.options_.max_depth), " levels");
      }
      ++rt_.depth_;
    }
    ~Depth() { --rt_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Interpreter& rt_;
  };

  // jinja_exec.cpp
  Flow exec(const Body& body);
  Flow exec(const Stmt& stmt);
  Flow exec_if(const Stmt& stmt);
  Flow exec_for(const Stmt& stmt);
  Flow run_loop(const Stmt& stmt, const Value& source, const FramePtr& around, int depth0);
  Flow exec_set_block(const Stmt& stmt);
  Flow exec_filter_block(const Stmt& stmt);
  Flow exec_with(const Stmt& stmt);
  void exec_block(const Stmt& stmt);
  void exec_call_block(const Stmt& stmt);
  Iterator filtered(const Stmt& stmt, Iterator source, const FramePtr& around);
  void print(const Value& v);
  void enter(const ScopeCode& scope);
  void leave(const ScopeCode& scope);
  void assign(const Expr& target, Value value);
  void check_namespaces(const Expr& target);
  Value resolve(const std::string& name);
  Value make_macro(const MacroCode& code);
  void keep(const FramePtr& frame);

  // jinja_eval.cpp
  Value eval(const Expr& e);
  Value eval_name(const Expr& e);
  Value eval_items(const Expr& e);
  Value eval_dict(const Expr& e);
  Value eval_call(const Expr& e, const Value* caller);
  Value eval_filter(const Expr& e, const Value* block);
  bool eval_test(const Expr& e);
  Value eval_binary(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_slice(const Expr& e);
  bool eval_compare(const Expr& e);
  Value eval_conditional(const Expr& e);
  Args eval_args(const CallArgs& args);
  Value& slot(const Ref& ref);

  const TemplateCode& code_;
  const nlohmann::ordered_json& context_;
  const RenderOptions& options_;
  std::map<std::string, Value> resolved_;  // context entries already converted
  std::string output_;
  std::string* out_ = &output_;
  FramePtr root_, frame_;
  std::vector<FramePtr> captured_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  size_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 0;
};

}  // namespace strata::jinja
