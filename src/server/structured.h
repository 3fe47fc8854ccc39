// response_format: which answers a caller allows, as a filter of tokens.
#pragma once

#include <memory>

#include "runtime/constraint.h"
#include "server/json_edge.h"
#include "server/service.h"

namespace strata {

// Null for plain text. {"type": "json_object"} and {"type": "json_schema", "json_schema": {"schema": ...}}
// need service.make_constraint; what cannot be enforced is refused, never ignored.
Result<std::shared_ptr<Constraint>> read_response_format(const Service& service, const Json* format);

}  // namespace strata
