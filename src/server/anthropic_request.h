// Anthropic's messages brought into the form that chat templates read.
#pragma once

#include "server/conversation.h"

namespace strata {

// Reads system, messages, tools, tool_choice and thinking. Errors name the field.
Result<Conversation> read_anthropic(Fields& fields);

}  // namespace strata
