// The pieces of JSON text as nodes of a grammar: strings, white space, and text before JSON begins.
#pragma once

#include <string_view>

#include "text/grammar.h"

namespace strata {

// Each takes the node that follows and gives the node to enter.

// The characters of `set`, one of them, as a string has it: escaped only where it must be.
int json_char(GrammarBuilder& builder, const CharSet& set, int next);
// A string with its quotes, of min to max characters (code points), with any escapes; uses the rule's
// counter.
int json_string(GrammarBuilder& builder, int min, int max, int next);
// A string with its quotes that the automaton accepts, of at most max characters, escaped only where it must
// be; uses the rule's counter. `open`: the first quote is already there.
int json_string(GrammarBuilder& builder, const CharDfa& dfa, int max, int next, bool open = false);

// A line end and up to 32 spaces or tabs; defines a rule of its own.
int declare_indent(GrammarBuilder& builder);
// Nothing, a space, or a line end with its indent.
int white_space(GrammarBuilder& builder, int indent, int next);

// Any bytes up to and with the first `marker`, a text in which no proper beginning repeats inside (as
// "</think>").
int until(GrammarBuilder& builder, std::string_view marker, int next);
// Any bytes; the text may end everywhere.
int anything(GrammarBuilder& builder);

}  // namespace strata
