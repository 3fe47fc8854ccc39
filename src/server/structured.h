// response_format: which answers a caller allows, as a filter of tokens.
#pragma once

#include <memory>
#include <string>

#include "runtime/constraint.h"
#include "server/chat_prompt.h"
#include "server/json_edge.h"
#include "server/service.h"

namespace strata {

// The maker of constraints for a vocabulary. It keeps the grammars used last, so that asking again with the
// same schema costs neither their making nor their masks. For one thread; its constraints may be used on
// another.
ConstraintMaker json_constraints(std::shared_ptr<const Tokenizer> tokenizer);

// Null for plain text. {"type": "json_object"} and {"type": "json_schema", "json_schema": {"schema": ...}}
// need service.make_constraint; what cannot be enforced is refused, never ignored. `path` names the field.
Result<std::shared_ptr<Constraint>> read_response_format(const Service& service, const Json* format,
                                                         const std::string& path,
                                                         const AnswerFrame& frame = {});

// The same for the answer to a conversation. An answer that the caller makes a tool call has no format.
Result<std::shared_ptr<Constraint>> answer_constraint(const Service& service,
                                                      const Conversation& conversation,
                                                      const ChatPrompt& prompt, const Json* format,
                                                      const std::string& path);

}  // namespace strata
