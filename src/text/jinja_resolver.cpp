// Resolving names scope by scope, in the order and with the scopes of jinja2/compiler.py.
#include "text/jinja_resolver.h"

#include <fmt/format.h>

#include <set>

#include "text/jinja_lexer.h"
#include "text/jinja_registry.h"
#include "text/jinja_symbols.h"

namespace strata::jinja {
namespace {

using Kind = Stmt::Kind;

class Resolver {
 public:
  void run(TemplateCode& code) {
    Symbols symbols(nullptr, &code.function);
    symbols.visit(code.body);
    body(code.body, symbols, false);
    code.scope = symbols.code();
  }

 private:
  // `soft`: inside an if, where an unknown filter or test is an error only when it is reached.
  void body(Body& statements, Symbols& symbols, bool soft) {
    for (auto& stmt : statements) statement(*stmt, symbols, soft);
  }

  void statement(Stmt& s, Symbols& symbols, bool soft) {
    switch (s.kind) {
      case Kind::kPrint:
      case Kind::kUnavailable:
        return expr(s.expr.get(), symbols, soft);
      case Kind::kIf:
        for (auto& [test, branch] : s.branches) {
          expr(test.get(), symbols, true);
          body(branch, symbols, true);
        }
        return body(s.otherwise, symbols, true);
      case Kind::kFor:
        return loop(s, symbols, soft);
      case Kind::kSet:
        target(*s.target, symbols);
        return expr(s.expr.get(), symbols, soft);
      case Kind::kSetBlock: {
        Symbols inner(&symbols, symbols.function());
        inner.visit(s.body);
        inner.visit(s.expr.get());
        body(s.body, inner, false);
        target(*s.target, symbols);
        expr(s.expr.get(), inner, false);
        s.scope = inner.code();
        return;
      }
      case Kind::kMacro:
        macro(*s.macro, symbols, s.line);
        s.ref = symbols.ref(s.macro->name);
        return;
      case Kind::kCallBlock:
        macro(*s.macro, symbols, s.line);
        return expr(s.expr.get(), symbols, soft);
      case Kind::kGeneration:
        return macro(*s.macro, symbols, s.line);
      case Kind::kFilterBlock: {
        Symbols inner(&symbols, symbols.function());
        inner.visit(s.body);
        inner.visit(s.expr.get());
        body(s.body, inner, false);
        expr(s.expr.get(), inner, false);
        s.scope = inner.code();
        return;
      }
      case Kind::kWith:
        return with(s, symbols, soft);
      case Kind::kScope: {
        Symbols inner(&symbols, symbols.function());
        inner.visit(s.body);
        body(s.body, inner, false);
        s.scope = inner.code();
        return;
      }
      case Kind::kBlock:
        return block(s);
      case Kind::kData:
      case Kind::kBreak:
      case Kind::kContinue:
        return;
    }
  }

  void with(Stmt& s, Symbols& symbols, bool soft) {
    Symbols inner(&symbols, symbols.function());
    for (size_t i = 0; i < s.exprs.size(); i += 2) inner.visit_target(*s.exprs[i], true);
    inner.visit(s.body);
    for (size_t i = 0; i < s.exprs.size(); i += 2) {
      target(*s.exprs[i], inner);
      expr(s.exprs[i + 1].get(), symbols, soft);
    }
    body(s.body, inner, false);
    s.scope = inner.code();
  }

  void block(Stmt& s) {
    if (!blocks_.insert(s.text).second)
      throw SyntaxError(fmt::format("block '{}' defined twice", s.text), s.line);
    s.function = std::make_unique<Function>();
    Symbols inner(nullptr, s.function.get());
    inner.visit(s.body);
    body(s.body, inner, false);
    s.scope = inner.code();
  }

  static Function nested(Function* parent) {
    Function function;
    function.parent = parent;
    function.depth = parent->depth + 1;
    return function;
  }

  void loop(Stmt& s, Symbols& symbols, bool soft) {
    if (s.recursive) s.function = std::make_unique<Function>(nested(symbols.function()));
    Function* function = s.recursive ? s.function.get() : symbols.function();
    Symbols inner(&symbols, function);
    if (s.recursive || find_undeclared(s.body, {"loop"}).count("loop"))
      s.loop_slot = inner.declare_parameter("loop");
    inner.visit_target(*s.target, true);
    inner.visit(s.body);
    if (s.filter) {
      s.filter_function = std::make_unique<Function>(nested(symbols.function()));
      Symbols test(&symbols, s.filter_function.get());
      test.visit_target(*s.target, true);
      test.visit(s.filter.get());
      s.filter_target = copy_target(*s.target);
      target(*s.filter_target, test);
      expr(s.filter.get(), test, false);
      s.filter_scope = test.code();
    }
    if (stores_name(s, "loop"))
      throw SyntaxError("Can't assign to special loop variable in for-loop target", s.line);
    target(*s.target, inner);
    expr(s.expr.get(), symbols, soft);
    body(s.body, inner, false);
    s.scope = inner.code();
    Symbols otherwise(&symbols, function);
    otherwise.visit(s.otherwise);
    body(s.otherwise, otherwise, false);
    s.else_scope = otherwise.code();
  }

  static ExprPtr copy_target(const Expr& e) {
    auto copy = std::make_unique<Expr>();
    copy->kind = e.kind;
    copy->line = e.line;
    copy->name = e.name;
    copy->value = e.value;
    for (const auto& kid : e.kids) copy->kids.push_back(copy_target(*kid));
    return copy;
  }

  void macro(MacroCode& code, Symbols& symbols, int line) {
    code.function = nested(symbols.function());
    Symbols inner(&symbols, &code.function);
    for (const auto& name : code.parameters) inner.declare_parameter(name);
    for (const auto& value : code.defaults) inner.visit(value.get());
    inner.visit(code.body);

    const auto undeclared = find_undeclared(code.body, {"caller", "kwargs", "varargs"});
    for (size_t i = 0; i < code.parameters.size(); ++i) {
      if (code.parameters[i] != "caller") continue;
      code.has_caller_parameter = true;
      if (undeclared.count("caller") && i + code.defaults.size() < code.parameters.size()) {
        throw SyntaxError(
            "When defining macros or call blocks the special \"caller\" argument must be omitted or be given "
            "a default.",
            line);
      }
    }
    const auto special = [&](const char* name) {
      const bool is_parameter = std::count(code.parameters.begin(), code.parameters.end(), name) > 0;
      return undeclared.count(name) && !is_parameter ? inner.declare_parameter(name) : -1;
    };
    code.uses_caller = undeclared.count("caller") > 0;
    code.caller_slot = special("caller");
    code.kwargs_slot = special("kwargs");
    code.varargs_slot = special("varargs");
    for (const auto& name : code.parameters) code.parameter_slots.push_back(inner.ref(name).slot);
    for (auto& value : code.defaults) expr(value.get(), inner, false);
    body(code.body, inner, false);
    code.scope = inner.code();
  }

  void target(Expr& e, const Symbols& symbols) {
    if (e.kind == Expr::Kind::kTuple) {
      for (auto& kid : e.kids) target(*kid, symbols);
    } else {
      e.ref = symbols.ref(e.name);
    }
  }

  void expr(Expr* e, const Symbols& symbols, bool soft) {
    if (!e) return;
    if (e->kind == Expr::Kind::kName) e->ref = symbols.ref(e->name);
    if (e->kind == Expr::Kind::kConditional) soft = true;
    if (e->kind == Expr::Kind::kFilter) {
      e->filter = find_filter(e->name);
      if (!e->filter && !soft) throw SyntaxError(fmt::format("No filter named '{}'.", e->name), e->line);
    } else if (e->kind == Expr::Kind::kTest) {
      e->test = find_test(e->name);
      if (!e->test && !soft) throw SyntaxError(fmt::format("No test named '{}'.", e->name), e->line);
    }
    for (auto& kid : e->kids) expr(kid.get(), symbols, soft);
    if (!e->args) return;
    for (auto& arg : e->args->positional) expr(arg.get(), symbols, soft);
    for (auto& [name, arg] : e->args->named) expr(arg.get(), symbols, soft);
    expr(e->args->star.get(), symbols, soft);
    expr(e->args->double_star.get(), symbols, soft);
  }

  std::set<std::string> blocks_;
};

}  // namespace

void resolve(TemplateCode& code) { Resolver().run(code); }

}  // namespace strata::jinja
