// JSON schemas as grammars: docs/structured_output.md says which, and how.
#pragma once

#include "base/result.h"
#include "text/answer_frame.h"
#include "text/grammar.h"
#include "text/schema_reader.h"

namespace strata {

// The grammar of the answers that are a frame around one JSON text the schema allows. Values are a subset of
// what the schema allows: properties come in the schema's order, white space is bounded. An error names the
// place and what about it is not supported, or says that the schema allows no value.
Result<Grammar> compile_schema(const Json& schema, const AnswerFrame& frame = {});

}  // namespace strata
