// Builds the syntax tree from tokens, as jinja2/parser.py does.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace strata::jinja {

constexpr int kMaxExprDepth = 200;      // levels of an expression's tree
constexpr int kMaxParseDepth = 500;     // levels of the parser's recursion; a parenthesis takes three
constexpr int kMaxStatementDepth = 60;  // blocks within blocks

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}
  // The whole template, names not resolved yet. Throws SyntaxError.
  Body parse();

 private:
  // jinja_parser.cpp: statements
  Body parse_until(std::initializer_list<std::string_view> end_tags);
  Body parse_statements(std::initializer_list<std::string_view> end_tags, bool drop_end = false);
  void parse_statement(Body& out);
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_set();
  StmtPtr parse_with();
  StmtPtr parse_block();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_generation();
  StmtPtr parse_autoescape();
  StmtPtr parse_loop_control();
  StmtPtr parse_unavailable();
  void parse_print(Body& out);
  void parse_signature(MacroCode& macro);
  Body function_body(std::string_view end_tag);
  [[noreturn]] void unknown_tag(const std::string& name, int line) const;

  // jinja_parser_expr.cpp: expressions
  struct TupleMode {
    bool names_only = false;      // assignment targets
    bool with_namespace = false;  // "ns.name" is allowed as a target
    bool conditional = true;      // "a if b else c" is allowed
    bool parentheses = false;     // "()" is allowed
    std::string_view end = {};    // a name that ends the tuple
  };
  ExprPtr parse_tuple(const TupleMode& mode);
  ExprPtr parse_target(const TupleMode& mode);
  std::string parse_name_target();
  ExprPtr parse_expression(bool conditional = true);
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filter_expr(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filters(ExprPtr node, bool inline_start);
  ExprPtr parse_test(ExprPtr node);
  std::unique_ptr<CallArgs> parse_call_args();
  ExprPtr finish(Expr::Kind kind, int line, std::vector<ExprPtr> kids = {}, std::string name = {},
                 std::unique_ptr<CallArgs> args = nullptr) const;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next();
  bool is_name(std::string_view name) const { return current().type == Tok::kName && current().text == name; }
  bool is_op(std::string_view op) const { return current().type == Tok::kOperator && current().text == op; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  void expect(Tok type, std::string_view what);
  [[noreturn]] void error(const std::string& message) const { throw SyntaxError(message, current().line); }
  [[noreturn]] void unexpected(std::string_view expected) const;

  // One level of recursion, of expressions or statements.
  class Level {
   public:
    Level(const Parser& parser, int& depth, int limit, const char* what);
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int expr_depth_ = 0;
  int statement_depth_ = 0;
  int loop_depth_ = 0;  // loops around here within the same function, for break and continue
  std::vector<std::string> open_tags_;
};

std::string describe(const Token& token);

}  // namespace strata::jinja
