// Gives every name of a template its slot, with the scoping rules of Jinja's compiler.
#pragma once

#include "text/jinja_ast.h"

namespace strata::jinja {

// Fills refs, scopes, filters and tests of `code`, whose body has been parsed. Throws SyntaxError.
void resolve(TemplateCode& code);

}  // namespace strata::jinja
