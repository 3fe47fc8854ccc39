// Collecting the names of a scope, as FrameSymbolVisitor and Symbols do in jinja2/idtracking.py.
#include "text/jinja_symbols.h"

#include "base/check.h"

namespace strata::jinja {

using Kind = Stmt::Kind;

std::optional<Symbols::Place> Symbols::find(const std::string& name) const {
  for (const Symbols* s = this; s; s = s->parent_) {
    if (const auto it = s->refs_.find(name); it != s->refs_.end()) return Place{s->function_, it->second};
  }
  return std::nullopt;
}

Ref Symbols::ref(const std::string& name) const {
  const auto place = find(name);
  STRATA_CHECK(place, "template variable {} was not collected", name);
  return ref_to(*place);
}

int Symbols::define(const std::string& name, Load::From from, Ref outer) {
  const auto [it, is_new] = function_->slot_of.try_emplace({level_, name}, function_->slots);
  if (is_new) ++function_->slots;
  refs_[name] = it->second;
  loads_[it->second] = Load{from, it->second, outer, name};
  return it->second;
}

int Symbols::declare_parameter(const std::string& name) {
  stores_.insert(name);
  return define(name, Load::From::kParameter);
}

void Symbols::store(const std::string& name) {
  stores_.insert(name);
  if (refs_.count(name)) return;
  if (const auto outer = parent_ ? parent_->find(name) : std::nullopt) {
    define(name, Load::From::kOuter, ref_to(*outer));
  } else {
    define(name, Load::From::kUndefined);
  }
}

void Symbols::load(const std::string& name) {
  if (!find(name)) define(name, Load::From::kContext);
}

ScopeCode Symbols::code() const {
  ScopeCode out;
  for (const auto& [slot, load] : loads_) out.push_back(load);
  return out;
}

// A name stored in some branch but not all may still have its outer value after the if.
void Symbols::branch_update(std::initializer_list<const Symbols*> branches) {
  std::set<std::string> stores;
  for (const Symbols* branch : branches) stores.insert(branch->stores_.begin(), branch->stores_.end());
  for (const auto& name : stores_) stores.erase(name);
  for (const Symbols* branch : branches) {
    for (const auto& [name, slot] : branch->refs_) refs_[name] = slot;
    for (const auto& [slot, load] : branch->loads_) loads_[slot] = load;
    stores_.insert(branch->stores_.begin(), branch->stores_.end());
  }
  for (const auto& name : stores) {
    if (const auto outer = parent_ ? parent_->find(name) : std::nullopt) {
      define(name, Load::From::kOuter, ref_to(*outer));
    } else {
      define(name, Load::From::kContext);
    }
  }
}

void Symbols::visit(const Body& body) {
  for (const auto& stmt : body) visit(*stmt);
}

void Symbols::visit_if(const Expr* test, const Body& body) {
  visit(test);
  Symbols taken = *this;
  taken.visit(body);
  const Symbols not_taken = *this;
  branch_update({&taken, &not_taken, &not_taken});
}

void Symbols::visit(const Stmt& stmt) {
  switch (stmt.kind) {
    case Kind::kIf: {
      visit(stmt.branches[0].first.get());
      Symbols body = *this, elifs = *this, otherwise = *this;
      body.visit(stmt.branches[0].second);
      for (size_t i = 1; i < stmt.branches.size(); ++i) {
        elifs.visit_if(stmt.branches[i].first.get(), stmt.branches[i].second);
      }
      otherwise.visit(stmt.otherwise);
      branch_update({&body, &elifs, &otherwise});
      break;
    }
    case Kind::kMacro:
      store(stmt.macro->name);
      break;
    case Kind::kSet:
      visit(stmt.expr.get());
      visit_target(*stmt.target, false);
      break;
    case Kind::kSetBlock:
      visit_target(*stmt.target, false);
      break;
    case Kind::kWith:
      for (size_t i = 1; i < stmt.exprs.size(); i += 2) visit(stmt.exprs[i].get());
      break;
    case Kind::kPrint:
    case Kind::kFor:
    case Kind::kCallBlock:
    case Kind::kFilterBlock:
    case Kind::kUnavailable:
      visit(stmt.expr.get());
      break;
    case Kind::kData:
    case Kind::kGeneration:
    case Kind::kScope:
    case Kind::kBlock:
    case Kind::kBreak:
    case Kind::kContinue:
      break;
  }
}

void Symbols::visit(const CallArgs& args) {
  for (const auto& arg : args.positional) visit(arg.get());
  for (const auto& [name, arg] : args.named) visit(arg.get());
  visit(args.star.get());
  visit(args.double_star.get());
}

void Symbols::visit(const Expr* expr) {
  if (!expr) return;
  if (expr->kind == Expr::Kind::kName) load(expr->name);
  for (const auto& kid : expr->kids) visit(kid.get());
  if (expr->args) visit(*expr->args);
}

void Symbols::visit_target(const Expr& target, bool parameter) {
  if (target.kind == Expr::Kind::kTuple) {
    for (const auto& kid : target.kids) visit_target(*kid, parameter);
  } else if (target.kind == Expr::Kind::kNamespaceRef) {
    load(target.name);
  } else if (parameter) {
    declare_parameter(target.name);
  } else {
    store(target.name);
  }
}

namespace {

// Walks everything below a statement except {% block %}s, in the order of Jinja's node fields.
class NameWalker {
 public:
  virtual ~NameWalker() = default;
  virtual void on_load(const std::string& name) = 0;
  virtual void on_store(const std::string& name) = 0;
  virtual void on_parameter(const std::string& name) { on_store(name); }

  void walk(const Body& body) {
    for (const auto& stmt : body) walk(*stmt);
  }

  void walk(const Stmt& stmt) {
    if (stmt.kind == Kind::kBlock) return;
    if (stmt.target) target(*stmt.target);
    if (stmt.kind == Kind::kWith) {
      for (size_t i = 0; i < stmt.exprs.size(); i += 2) target(*stmt.exprs[i]);
      for (size_t i = 1; i < stmt.exprs.size(); i += 2) expr(stmt.exprs[i].get());
    }
    expr(stmt.expr.get());
    for (const auto& [test, body] : stmt.branches) {
      expr(test.get());
      walk(body);
    }
    if (stmt.macro) {
      for (const auto& name : stmt.macro->parameters) on_parameter(name);
      for (const auto& value : stmt.macro->defaults) expr(value.get());
      walk(stmt.macro->body);
    }
    walk(stmt.body);
    walk(stmt.otherwise);
    expr(stmt.filter.get());
  }

 private:
  void target(const Expr& e) {
    if (e.kind == Expr::Kind::kName) on_store(e.name);
    for (const auto& kid : e.kids) target(*kid);
  }

  void expr(const Expr* e) {
    if (!e) return;
    if (e->kind == Expr::Kind::kName) on_load(e->name);
    for (const auto& kid : e->kids) expr(kid.get());
    if (!e->args) return;
    for (const auto& arg : e->args->positional) expr(arg.get());
    for (const auto& [name, arg] : e->args->named) expr(arg.get());
    expr(e->args->star.get());
    expr(e->args->double_star.get());
  }
};

}  // namespace

std::set<std::string> find_undeclared(const Body& body, std::set<std::string> names) {
  struct Undeclared : NameWalker {
    std::set<std::string> names, found;
    void on_load(const std::string& name) override {
      if (names.count(name)) found.insert(name);
    }
    void on_store(const std::string& name) override { names.erase(name); }
  } walker;
  walker.names = std::move(names);
  walker.walk(body);
  return walker.found;
}

bool stores_name(const Stmt& loop, const std::string& name) {
  struct Stores : NameWalker {
    std::string name;
    bool found = false;
    void on_load(const std::string&) override {}
    void on_store(const std::string& stored) override { found = found || stored == name; }
    void on_parameter(const std::string&) override {}
  } walker;
  walker.name = name;
  walker.walk(loop);
  return walker.found;
}

}  // namespace strata::jinja
