// Cuts a template into tokens, with Jinja's white space rules applied (trim_blocks and lstrip_blocks on).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace strata::jinja {

// Text of an error in the template itself, before the file is named. Thrown by the lexer, parser and
// resolver.
struct SyntaxError : std::runtime_error {
  SyntaxError(const std::string& message, int at) : std::runtime_error(message), line(at) {}
  int line;
};

enum class Tok {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  Tok type = Tok::kEnd;
  int line = 1;
  std::string text;  // data, name, decoded string, or the operator itself
  Value number;      // of kInteger and kFloat
};

// Ends with a kEnd token. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace strata::jinja
