// From a conversation to the prompt's tokens and what they imply for reading the answer.
#pragma once

#include <string>
#include <vector>

#include "server/choice_output.h"
#include "server/conversation.h"
#include "server/service.h"

namespace strata {

struct ChatPrompt {
  std::vector<int> tokens;
  bool thinking_open = false;
  bool thought = false;  // it ends with a closed think block
  std::string forced;    // the beginning of a tool call that the prompt ends with
};

Result<ChatPrompt> build_prompt(const Service& service, const Conversation& conversation);

// What may stand around the JSON text of the answer to this prompt.
AnswerFrame answer_frame(const Service& service, const Conversation& conversation, const ChatPrompt& prompt);

// How to read the answer to this prompt.
OutputOptions output_options(const Service& service, const Conversation& conversation,
                             const ChatPrompt& prompt);

}  // namespace strata
