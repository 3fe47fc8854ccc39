// Expressions, from tuples down to names and literals.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_parser.h"

namespace strata::jinja {

using Kind = Expr::Kind;

// A node over its kids, refused when the tree gets too deep to walk.
ExprPtr Parser::finish(Kind kind, int line, std::vector<ExprPtr> kids, std::string name,
                       std::unique_ptr<CallArgs> args) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  node->kids = std::move(kids);
  node->args = std::move(args);
  int deepest = 0;
  const auto measure = [&deepest](const ExprPtr& kid) {
    if (kid) deepest = std::max(deepest, kid->depth);
  };
  for (const auto& kid : node->kids) measure(kid);
  if (node->args) {
    for (const auto& arg : node->args->positional) measure(arg);
    for (const auto& [key, arg] : node->args->named) measure(arg);
    measure(node->args->star);
    measure(node->args->double_star);
  }
  node->depth = deepest + 1;
  if (node->depth > kMaxExprDepth)
    throw SyntaxError(fmt::format("an expression is nested deeper than {} levels", kMaxExprDepth), line);
  return node;
}

namespace {

template <typename... Nodes>
std::vector<ExprPtr> kids(Nodes... nodes) {
  std::vector<ExprPtr> out;
  (out.push_back(std::move(nodes)), ...);
  return out;
}

bool ends_tuple(const Token& token, std::string_view end) {
  if (token.type == Tok::kVariableEnd || token.type == Tok::kBlockEnd) return true;
  if (token.type == Tok::kOperator && token.text == ")") return true;
  return !end.empty() && token.type == Tok::kName && token.text == end;
}

}  // namespace

ExprPtr Parser::parse_tuple(const TupleMode& mode) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_op(",");
    if (ends_tuple(current(), mode.end)) break;
    items.push_back(mode.names_only ? parse_primary(mode.with_namespace)
                                    : parse_expression(mode.conditional));
    if (!is_op(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!mode.parentheses) error(fmt::format("Expected an expression, got '{}'", describe(current())));
  }
  return finish(Kind::kTuple, line, std::move(items));
}

ExprPtr Parser::parse_target(const TupleMode& mode) {
  const int line = current().line;
  ExprPtr target = parse_tuple(mode);
  const auto check = [line](const auto& self, const Expr& e) -> void {
    if (e.kind == Kind::kTuple) {
      for (const auto& kid : e.kids) self(self, *kid);
    } else if (e.kind != Kind::kName && e.kind != Kind::kNamespaceRef) {
      throw SyntaxError("can't assign to this expression", line);
    }
  };
  check(check, *target);
  return target;
}

std::string Parser::parse_name_target() {
  const Token token = current();
  std::string name = expect_any_name();
  for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) throw SyntaxError(fmt::format("can't assign to '{}'", name), token.line);
  }
  return name;
}

ExprPtr Parser::parse_expression(bool conditional) { return conditional ? parse_conditional() : parse_or(); }

ExprPtr Parser::parse_conditional() {
  const Level level(*this, expr_depth_, kMaxParseDepth, "an expression is");
  int line = current().line;
  ExprPtr value = parse_or();
  while (skip_name("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_name("else") ? parse_conditional() : nullptr;
    value = finish(Kind::kConditional, line, kids(std::move(test), std::move(value), std::move(otherwise)));
    line = current().line;
  }
  return value;
}

ExprPtr Parser::parse_or() {
  int line = current().line;
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    left = finish(Kind::kOr, line, kids(std::move(left), parse_and()));
    line = current().line;
  }
  return left;
}

ExprPtr Parser::parse_and() {
  int line = current().line;
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    left = finish(Kind::kAnd, line, kids(std::move(left), parse_not()));
    line = current().line;
  }
  return left;
}

ExprPtr Parser::parse_not() {
  const int line = current().line;
  if (!is_name("not")) return parse_compare();
  const Level level(*this, expr_depth_, kMaxParseDepth, "an expression is");
  next();
  return finish(Kind::kNot, line, kids(parse_not()));
}

ExprPtr Parser::parse_compare() {
  const int line = current().line;
  std::vector<ExprPtr> operands = kids(parse_sum());
  std::vector<std::string> operators;
  while (true) {
    if (current().type == Tok::kOperator) {
      constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
      if (std::find(std::begin(kOperators), std::end(kOperators), current().text) == std::end(kOperators))
        break;
      operators.push_back(next().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (is_name("not") && look().type == Tok::kName && look().text == "in") {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(parse_sum());
  }
  if (operators.empty()) return std::move(operands.front());
  ExprPtr node = finish(Kind::kCompare, line, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

ExprPtr Parser::parse_sum() {
  int line = current().line;
  ExprPtr left = parse_concat();
  while (is_op("+") || is_op("-")) {
    const Kind kind = next().text == "+" ? Kind::kAdd : Kind::kSubtract;
    left = finish(kind, line, kids(std::move(left), parse_concat()));
    line = current().line;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  std::vector<ExprPtr> parts = kids(parse_product());
  while (skip_op("~")) parts.push_back(parse_product());
  if (parts.size() == 1) return std::move(parts.front());
  return finish(Kind::kConcat, line, std::move(parts));
}

ExprPtr Parser::parse_product() {
  int line = current().line;
  ExprPtr left = parse_power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const std::string op = next().text;
    const Kind kind = op == "*"   ? Kind::kMultiply
                      : op == "/" ? Kind::kDivide
                      : op == "%" ? Kind::kModulo
                                  : Kind::kFloorDivide;
    left = finish(kind, line, kids(std::move(left), parse_power()));
    line = current().line;
  }
  return left;
}

ExprPtr Parser::parse_power() {
  int line = current().line;
  ExprPtr left = parse_unary();
  while (skip_op("**")) {
    left = finish(Kind::kPower, line, kids(std::move(left), parse_unary()));
    line = current().line;
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Level level(*this, expr_depth_, kMaxParseDepth, "an expression is");
  const int line = current().line;
  ExprPtr node;
  if (skip_op("-")) {
    node = finish(Kind::kNegate, line, kids(parse_unary(false)));
  } else if (skip_op("+")) {
    node = finish(Kind::kPlus, line, kids(parse_unary(false)));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_expr(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const Token token = current();
  const auto constant = [&](Value value) {
    ExprPtr node = finish(Kind::kConst, token.line);
    node->value = std::move(value);
    return node;
  };
  switch (token.type) {
    case Tok::kName:
      next();
      if (token.text == "true" || token.text == "True") return constant(Value(true));
      if (token.text == "false" || token.text == "False") return constant(Value(false));
      if (token.text == "none" || token.text == "None") return constant(Value(None{}));
      if (with_namespace && skip_op(".")) {
        ExprPtr node = finish(Kind::kNamespaceRef, token.line, {}, token.text);
        node->value = Value(expect_any_name());
        return node;
      }
      return finish(Kind::kName, token.line, {}, token.text);
    case Tok::kString: {
      std::string text;
      while (current().type == Tok::kString) text += next().text;
      return constant(Value(std::move(text)));
    }
    case Tok::kInteger:
    case Tok::kFloat:
      next();
      return constant(token.number);
    case Tok::kOperator:
      if (token.text == "(") {
        const Level level(*this, expr_depth_, kMaxParseDepth, "an expression is");
        next();
        ExprPtr node = parse_tuple({.parentheses = true});
        expect_op(")");
        return node;
      }
      if (token.text == "[") return parse_list();
      if (token.text == "{") return parse_dict();
      [[fallthrough]];
    default:
      error(fmt::format("unexpected '{}'", describe(token)));
  }
}

ExprPtr Parser::parse_list() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (is_op("]")) break;
    items.push_back(parse_expression());
  }
  expect_op("]");
  return finish(Kind::kList, line, std::move(items));
}

ExprPtr Parser::parse_dict() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (is_op("}")) break;
    items.push_back(parse_expression());
    expect_op(":");
    items.push_back(parse_expression());
  }
  expect_op("}");
  return finish(Kind::kDict, line, std::move(items));
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_filter_expr(ExprPtr node) {
  while (true) {
    if (is_op("|")) {
      node = parse_filters(std::move(node), false);
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  const int line = current().line;
  if (skip_op(".")) {
    const Token attribute = next();
    if (attribute.type == Tok::kName)
      return finish(Kind::kAttribute, line, kids(std::move(node)), attribute.text);
    if (attribute.type != Tok::kInteger) throw SyntaxError("expected name or number", attribute.line);
    ExprPtr index = finish(Kind::kConst, attribute.line);
    index->value = attribute.number;
    return finish(Kind::kItem, line, kids(std::move(node), std::move(index)));
  }
  expect_op("[");
  std::vector<ExprPtr> indices;
  const auto slice_end = [this] { return is_op("]") || is_op(","); };
  while (!is_op("]")) {
    if (!indices.empty()) expect_op(",");
    ExprPtr start = is_op(":") ? nullptr : parse_expression();
    if (!is_op(":")) {
      indices.push_back(std::move(start));
      continue;
    }
    next();
    ExprPtr stop = is_op(":") || slice_end() ? nullptr : parse_expression();
    ExprPtr step;
    if (skip_op(":") && !slice_end()) step = parse_expression();
    if (!indices.empty() || !is_op("]")) error("a slice cannot be part of a tuple");
    expect_op("]");
    return finish(Kind::kSlice, line,
                  kids(std::move(node), std::move(start), std::move(stop), std::move(step)));
  }
  expect_op("]");
  ExprPtr index =
      indices.size() == 1 ? std::move(indices.front()) : finish(Kind::kTuple, line, std::move(indices));
  return finish(Kind::kItem, line, kids(std::move(node), std::move(index)));
}

std::unique_ptr<CallArgs> Parser::parse_call_args() {
  const int line = current().line;
  expect_op("(");
  auto args = std::make_unique<CallArgs>();
  const auto ensure = [line](bool ok) {
    if (!ok) throw SyntaxError("invalid syntax for function call expression", line);
  };
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      expect_op(",");
      if (is_op(")")) break;
    }
    first = false;
    if (skip_op("*")) {
      ensure(!args->star && !args->double_star);
      args->star = parse_expression();
    } else if (skip_op("**")) {
      ensure(!args->double_star);
      args->double_star = parse_expression();
    } else if (current().type == Tok::kName && look().type == Tok::kOperator && look().text == "=") {
      ensure(!args->double_star);
      std::string key = next().text;
      for (const auto& [other, value] : args->named) {
        if (other == key) error(fmt::format("keyword argument repeated: {}", key));
      }
      next();
      args->named.emplace_back(std::move(key), parse_expression());
    } else {
      ensure(!args->star && !args->double_star && args->named.empty());
      args->positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr node) {
  const int line = current().line;
  auto args = parse_call_args();
  return finish(Kind::kCall, line, kids(std::move(node)), {}, std::move(args));
}

// "|name(...)|name..."; with inline_start the first bar is left out ({% filter name %}).
ExprPtr Parser::parse_filters(ExprPtr node, bool inline_start) {
  while (is_op("|") || inline_start) {
    if (!inline_start) next();
    inline_start = false;
    const int line = current().line;
    std::string name = expect_any_name();
    while (skip_op(".")) name += "." + expect_any_name();
    auto args = is_op("(") ? parse_call_args() : std::make_unique<CallArgs>();
    std::vector<ExprPtr> input;
    if (node) input.push_back(std::move(node));
    node = finish(Kind::kFilter, line, std::move(input), std::move(name), std::move(args));
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  const int line = next().line;
  const bool negated = skip_name("not");
  std::string name = expect_any_name();
  while (skip_op(".")) name += "." + expect_any_name();
  auto args = std::make_unique<CallArgs>();
  const bool starts_argument = current().type == Tok::kName || current().type == Tok::kString ||
                               current().type == Tok::kInteger || current().type == Tok::kFloat ||
                               is_op("[") || is_op("{");
  if (is_op("(")) {
    args = parse_call_args();
  } else if (starts_argument && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) error("You cannot chain multiple tests with is");
    args->positional.push_back(parse_postfix(parse_primary()));
  }
  ExprPtr test = finish(Kind::kTest, line, kids(std::move(node)), std::move(name), std::move(args));
  return negated ? finish(Kind::kNot, line, kids(std::move(test))) : std::move(test);
}

}  // namespace strata::jinja
