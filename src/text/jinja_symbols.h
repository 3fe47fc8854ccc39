// The names of one scope: which slot each has and what fills it on entry (jinja2/idtracking.py).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "text/jinja_ast.h"

namespace strata::jinja {

// Lives while its scope is being resolved. Copies are branches of an if, merged by branch_update.
class Symbols {
 public:
  Symbols(const Symbols* parent, Function* function)
      : parent_(parent), function_(function), level_(parent ? parent->level_ + 1 : 0) {}

  // Collect the names of statements and expressions, without those of scopes further in.
  void visit(const Body& body);
  void visit(const Stmt& stmt);
  void visit(const Expr* expr);
  void visit(const CallArgs& args);
  void visit_target(const Expr& target, bool parameter);

  int declare_parameter(const std::string& name);
  void store(const std::string& name);
  void load(const std::string& name);

  // The variable `name` as seen from this scope. It must have been collected.
  Ref ref(const std::string& name) const;
  ScopeCode code() const;
  Function* function() const { return function_; }

 private:
  struct Place {
    Function* function;
    int slot;
  };
  std::optional<Place> find(const std::string& name) const;
  Ref ref_to(const Place& place) const { return {function_->depth - place.function->depth, place.slot}; }
  int define(const std::string& name, Load::From from, Ref outer = {});
  void branch_update(std::initializer_list<const Symbols*> branches);
  void visit_if(const Expr* test, const Body& body);

  const Symbols* parent_;
  Function* function_;
  int level_;
  std::map<std::string, int> refs_;
  std::map<int, Load> loads_;
  std::set<std::string> stores_;
};

// Those of `names` that the statements read before they assign them.
std::set<std::string> find_undeclared(const Body& body, std::set<std::string> names);

// Whether anything in the loop assigns to `name`.
bool stores_name(const Stmt& loop, const std::string& name);

}  // namespace strata::jinja
