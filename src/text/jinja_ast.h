// The syntax tree of a template, with every name resolved to a slot. Immutable after parsing.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

using FilterFn = Value (*)(Interpreter&, const Value&, Args&);
using TestFn = bool (*)(Interpreter&, const Value&, Args&);

// Where a variable lives: `hops` functions outwards, slot number there.
struct Ref {
  int hops = 0;
  int slot = -1;
};

// What a name starts out as when its scope is entered (jinja2/idtracking.py).
struct Load {
  enum class From { kParameter, kUndefined, kContext, kOuter } from;
  int slot;
  Ref outer;         // of kOuter
  std::string name;  // of kContext
};

// A scope inside a function: filled on entry, cleared on exit.
using ScopeCode = std::vector<Load>;

// A piece of the template that runs with variables of its own: the template, a macro, a call block, a
// recursive loop.
struct Function {
  Function* parent = nullptr;
  int depth = 0;
  int slots = 0;
  std::map<std::pair<int, std::string>, int> slot_of;  // (scope level, name); used while resolving
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

struct Expr {
  enum class Kind {
    kConst,
    kName,
    kNamespaceRef,
    kList,
    kTuple,
    kDict,  // kDict: keys and values in turn
    kAttribute,
    kItem,
    kSlice,  // kSlice: object, start, stop, step (or null)
    kCall,
    kFilter,
    kTest,
    kNot,
    kNegate,
    kPlus,  // kFilter without kids filters a block
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kPower,
    kAnd,
    kOr,
    kConcat,
    kCompare,
    kConditional,  // kConditional: test, then, else (or null)
  };
  Kind kind;
  int line;
  int depth = 1;     // of the tree below, bounded by the parser
  std::string name;  // of names, attributes, filters, tests
  Value value;       // of kConst
  std::vector<ExprPtr> kids;
  std::vector<std::string> operators;  // of kCompare, between the kids
  std::unique_ptr<CallArgs> args;      // of kCall, kFilter, kTest
  Ref ref;                             // of kName and kNamespaceRef
  FilterFn filter = nullptr;
  TestFn test = nullptr;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// A macro, or the body of a call or generation block.
struct MacroCode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  Function function;
  ScopeCode scope;
  std::vector<int> parameter_slots;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: the body does not use it
  bool has_caller_parameter = false;
  bool uses_caller = false;
};

struct Stmt {
  enum class Kind {
    kData,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kGeneration,
    kFilterBlock,
    kWith,
    kScope,
    kBlock,
    kBreak,
    kContinue,
    kUnavailable,
  };
  Kind kind;
  int line;
  std::string text;  // kData; kUnavailable: the tag; kBlock: its name
  ExprPtr target;    // kFor, kSet, kSetBlock
  ExprPtr expr;  // kPrint, kFor's iterable, kSet, kSetBlock's and kFilterBlock's filter, kCallBlock's call
  std::vector<ExprPtr> exprs;                      // kWith: targets and values in turn
  std::vector<std::pair<ExprPtr, Body>> branches;  // kIf
  Body body, otherwise;                            // otherwise: else of kIf and kFor
  ScopeCode scope, else_scope;
  std::unique_ptr<MacroCode> macro;  // kMacro, kCallBlock, kGeneration
  Ref ref;                           // kMacro: where it is stored

  // kFor
  ExprPtr filter;  // the `if` of the loop, run in filter_function with filter_target
  ExprPtr filter_target;
  std::unique_ptr<Function> filter_function;
  ScopeCode filter_scope;
  bool recursive = false;
  std::unique_ptr<Function> function;  // recursive loops; {% block %}
  int loop_slot = -1;                  // of the variable `loop`, if the body uses it
};

struct TemplateCode {
  Body body;
  Function function;
  ScopeCode scope;
};

}  // namespace strata::jinja
