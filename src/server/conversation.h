// A conversation as chat templates read it, checked and tidied from OpenAI's JSON form.
#pragma once

#include <string>
#include <string_view>

#include "server/json_edge.h"

namespace strata {

struct ToolChoice {
  enum class Kind : unsigned char { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;
};

// A conversation in the form that chat templates read. The other APIs are brought into it.
struct Conversation {
  Json messages = Json::array();
  Json tools;  // array of {"type": "function", "function": {...}}, or null
  ToolChoice tool_choice;
  bool parallel_tool_calls = true;
  Json template_kwargs;  // object or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// Reads messages, tools, tool_choice and what belongs to them. Errors name the field.
Result<Conversation> read_conversation(Fields& fields);
// `tools` of the APIs that do not nest the function: {"type", "name", "description", <schema>} with this type
// (which may be left out unless it `needs_type`), brought into the nested form; null when there are none.
Result<Json> read_flat_tools(Fields& fields, std::string_view type, bool needs_type, const char* schema);
Result<ToolChoice> read_tool_choice(const Json* value, const Json& tools);
// Checks and tidies the messages: roles, contents of text parts joined, arguments of tool calls as text
// (`keep_text`) or as the objects that the text spells.
Result<Json> normal_messages(const Json& messages, bool keep_text);

}  // namespace strata
