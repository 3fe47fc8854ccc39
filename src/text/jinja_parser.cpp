// Statements: everything between {% and %}.
#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::jinja {
namespace {

StmtPtr make(Stmt::Kind kind, int line) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

}  // namespace

std::string describe(const Token& token) {
  switch (token.type) {
    case Tok::kData:
      return "template data / text";
    case Tok::kVariableBegin:
      return "begin of print statement";
    case Tok::kVariableEnd:
      return "end of print statement";
    case Tok::kBlockBegin:
      return "begin of statement block";
    case Tok::kBlockEnd:
      return "end of statement block";
    case Tok::kString:
      return "string";
    case Tok::kInteger:
      return "integer";
    case Tok::kFloat:
      return "float";
    case Tok::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

Parser::Level::Level(const Parser& parser, int& depth, int limit, const char* what) : depth_(depth) {
  if (depth_ >= limit) parser.error(fmt::format("{} nested deeper than {} levels", what, limit));
  ++depth_;
}

Token Parser::next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

void Parser::unexpected(std::string_view expected) const {
  if (current().type == Tok::kEnd) error(fmt::format("unexpected end of template, expected '{}'", expected));
  error(fmt::format("expected token '{}', got '{}'", expected, describe(current())));
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(op);
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(name);
}

std::string Parser::expect_any_name() {
  if (current().type != Tok::kName) unexpected("name");
  return next().text;
}

void Parser::expect(Tok type, std::string_view what) {
  if (current().type != type) unexpected(what);
  next();
}

Body Parser::parse() { return parse_until({}); }

// Everything up to, not including, a tag of `end_tags` (whose name is then the current token).
Body Parser::parse_until(std::initializer_list<std::string_view> end_tags) {
  Body body;
  while (current().type != Tok::kEnd) {
    const int line = current().line;
    if (current().type == Tok::kData) {
      body.push_back(make(Stmt::Kind::kData, line));
      body.back()->text = next().text;
    } else if (current().type == Tok::kVariableBegin) {
      next();
      auto stmt = make(Stmt::Kind::kPrint, line);
      stmt->expr = parse_tuple({});
      body.push_back(std::move(stmt));
      expect(Tok::kVariableEnd, "end of print statement");
    } else {
      expect(Tok::kBlockBegin, "begin of statement block");
      if (std::any_of(end_tags.begin(), end_tags.end(), [this](auto tag) { return is_name(tag); }))
        return body;
      parse_statement(body);
      expect(Tok::kBlockEnd, "end of statement block");
    }
  }
  if (end_tags.size() > 0) {
    error(fmt::format(
        "Unexpected end of template. Jinja was looking for the following tags: '{}'. The innermost block "
        "that needs to be closed is '{}'.",
        fmt::join(end_tags, "' or '"), open_tags_.empty() ? "" : open_tags_.back()));
  }
  return body;
}

Body Parser::parse_statements(std::initializer_list<std::string_view> end_tags, bool drop_end) {
  skip_op(":");  // as in Python
  expect(Tok::kBlockEnd, "end of statement block");
  const Level level(*this, statement_depth_, kMaxStatementDepth, "statements");
  Body body = parse_until(end_tags);
  if (drop_end) next();
  return body;
}

void Parser::unknown_tag(const std::string& name, int line) const {
  std::string message = fmt::format("Encountered unknown tag '{}'.", name);
  if (!open_tags_.empty()) {
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_tags_.back());
  }
  throw SyntaxError(message, line);
}

void Parser::parse_statement(Body& out) {
  if (current().type != Tok::kName) error("tag name expected");
  const std::string tag = current().text;
  const int line = current().line;
  open_tags_.push_back(tag);
  if (tag == "print") {
    parse_print(out);
  } else if (tag == "for") {
    out.push_back(parse_for());
  } else if (tag == "if") {
    out.push_back(parse_if());
  } else if (tag == "set") {
    out.push_back(parse_set());
  } else if (tag == "macro") {
    out.push_back(parse_macro());
  } else if (tag == "call") {
    out.push_back(parse_call_block());
  } else if (tag == "filter") {
    out.push_back(parse_filter_block());
  } else if (tag == "with") {
    out.push_back(parse_with());
  } else if (tag == "block") {
    out.push_back(parse_block());
  } else if (tag == "generation") {
    out.push_back(parse_generation());
  } else if (tag == "autoescape") {
    out.push_back(parse_autoescape());
  } else if (tag == "break" || tag == "continue") {
    out.push_back(parse_loop_control());
  } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    out.push_back(parse_unavailable());
  } else {
    open_tags_.pop_back();
    unknown_tag(tag, line);
  }
  open_tags_.pop_back();
}

StmtPtr Parser::parse_for() {
  auto stmt = make(Stmt::Kind::kFor, next().line);
  stmt->target = parse_target({.names_only = true, .end = "in"});
  expect_name("in");
  stmt->expr = parse_tuple({.conditional = false, .end = "recursive"});
  if (skip_name("if")) stmt->filter = parse_expression();
  stmt->recursive = skip_name("recursive");
  ++loop_depth_;
  stmt->body = parse_statements({"endfor", "else"});
  --loop_depth_;
  if (next().text == "else") stmt->otherwise = parse_statements({"endfor"}, true);
  return stmt;
}

StmtPtr Parser::parse_if() {
  auto stmt = make(Stmt::Kind::kIf, current().line);
  while (true) {
    next();  // if, elif
    auto test = parse_tuple({.conditional = false});
    auto body = parse_statements({"elif", "else", "endif"});
    stmt->branches.emplace_back(std::move(test), std::move(body));
    if (is_name("elif")) continue;
    if (next().text == "else") stmt->otherwise = parse_statements({"endif"}, true);
    return stmt;
  }
}

StmtPtr Parser::parse_set() {
  const int line = next().line;
  auto target = parse_target({.names_only = true, .with_namespace = true});
  auto stmt = make(is_op("=") ? Stmt::Kind::kSet : Stmt::Kind::kSetBlock, line);
  stmt->target = std::move(target);
  if (skip_op("=")) {
    stmt->expr = parse_tuple({});
  } else {
    stmt->expr = parse_filters(nullptr, false);
    stmt->body = parse_statements({"endset"}, true);
  }
  return stmt;
}

StmtPtr Parser::parse_with() {
  auto stmt = make(Stmt::Kind::kWith, next().line);
  while (current().type != Tok::kBlockEnd) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(parse_target({.names_only = true}));
    expect_op("=");
    stmt->exprs.push_back(parse_expression());
  }
  stmt->body = parse_statements({"endwith"}, true);
  return stmt;
}

StmtPtr Parser::parse_block() {
  auto stmt = make(Stmt::Kind::kBlock, next().line);
  stmt->text = expect_any_name();
  skip_name("scoped");
  const bool required = skip_name("required");
  if (is_op("-"))
    error("Block names in Jinja have to be valid Python identifiers and may not contain hyphens");
  stmt->body = function_body("endblock");
  if (required) error("required blocks need template inheritance, which chat templates do not have");
  skip_name(stmt->text);
  return stmt;
}

// A body that is a function of its own: break and continue do not reach loops around it.
Body Parser::function_body(std::string_view end_tag) {
  const int loops = std::exchange(loop_depth_, 0);
  Body body = parse_statements({end_tag}, true);
  loop_depth_ = loops;
  return body;
}

void Parser::parse_signature(MacroCode& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.parameters.empty()) expect_op(",");
    std::string name = parse_name_target();
    if (std::count(macro.parameters.begin(), macro.parameters.end(), name)) {
      error(fmt::format("duplicate argument '{}'", name));
    }
    if (skip_op("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      error("non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(name));
  }
  expect_op(")");
}

StmtPtr Parser::parse_macro() {
  auto stmt = make(Stmt::Kind::kMacro, next().line);
  stmt->macro = std::make_unique<MacroCode>();
  stmt->macro->name = parse_name_target();
  parse_signature(*stmt->macro);
  stmt->macro->body = function_body("endmacro");
  return stmt;
}

StmtPtr Parser::parse_call_block() {
  auto stmt = make(Stmt::Kind::kCallBlock, next().line);
  stmt->macro = std::make_unique<MacroCode>();
  if (is_op("(")) parse_signature(*stmt->macro);
  stmt->expr = parse_expression();
  if (stmt->expr->kind != Expr::Kind::kCall) throw SyntaxError("expected call", stmt->line);
  stmt->macro->body = function_body("endcall");
  return stmt;
}

StmtPtr Parser::parse_generation() {
  auto stmt = make(Stmt::Kind::kGeneration, next().line);
  stmt->macro = std::make_unique<MacroCode>();
  stmt->macro->body = function_body("endgeneration");
  return stmt;
}

StmtPtr Parser::parse_filter_block() {
  auto stmt = make(Stmt::Kind::kFilterBlock, next().line);
  stmt->expr = parse_filters(nullptr, true);
  stmt->body = parse_statements({"endfilter"}, true);
  return stmt;
}

StmtPtr Parser::parse_autoescape() {
  auto stmt = make(Stmt::Kind::kScope, next().line);
  if (!skip_name("false") && !skip_name("False"))
    error("a chat template's text is never escaped: autoescape must be false");
  stmt->body = parse_statements({"endautoescape"}, true);
  return stmt;
}

StmtPtr Parser::parse_loop_control() {
  const Token token = next();
  if (loop_depth_ == 0) throw SyntaxError(fmt::format("'{}' outside loop", token.text), token.line);
  return make(token.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, token.line);
}

// {% include %} and its like parse, so that a branch never taken does no harm, and fail when they run.
StmtPtr Parser::parse_unavailable() {
  auto stmt = make(Stmt::Kind::kUnavailable, current().line);
  stmt->text = next().text;
  stmt->expr = parse_expression();
  while (current().type != Tok::kBlockEnd) {
    if (current().type != Tok::kName && !is_op(",")) unexpected("end of statement block");
    next();
  }
  return stmt;
}

void Parser::parse_print(Body& out) {
  const int line = next().line;
  for (bool first = true; current().type != Tok::kBlockEnd; first = false) {
    if (!first) expect_op(",");
    out.push_back(make(Stmt::Kind::kPrint, line));
    out.back()->expr = parse_expression();
  }
}

}  // namespace strata::jinja
