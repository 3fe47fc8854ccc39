// The input of the Responses API brought into the form that chat templates read.
#pragma once

#include "server/conversation.h"

namespace strata {

// Reads instructions, input, tools and tool_choice. Errors name the field.
Result<Conversation> read_responses(Fields& fields);

}  // namespace strata
