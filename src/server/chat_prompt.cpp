#include "server/chat_prompt.h"

#include <map>

namespace strata {
namespace {

// By tool and parameter: 1 = a string by the schema, 0 = something else.
std::function<int(std::string_view, std::string_view)> string_parameters(const Json& tools) {
  std::map<std::string, std::map<std::string, int>> kinds;
  for (const Json& tool : tools) {
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const auto properties = function["parameters"].find("properties");
    if (properties == function["parameters"].end() || !properties->is_object()) continue;
    for (const auto& [name, schema] : properties->items())
      if (schema.is_object() && schema.contains("type") && schema["type"].is_string())
        kinds[function["name"].get<std::string>()][name] = schema["type"] == "string" ? 1 : 0;
  }
  return [kinds = std::move(kinds)](std::string_view function, std::string_view parameter) {
    const auto tool = kinds.find(std::string(function));
    if (tool == kinds.end()) return -1;
    const auto kind = tool->second.find(std::string(parameter));
    return kind == tool->second.end() ? -1 : kind->second;
  };
}

// The beginning of a call in the dialect that the template teaches.
std::string forced_call(const ToolChoice& choice, std::string_view template_source) {
  const bool xml = template_source.find("<function=") != std::string_view::npos;
  switch (choice.kind) {
    case ToolChoice::Kind::kRequired:
      return xml ? "<tool_call>\n<function=" : "<tool_call>\n{\"name\":";
    case ToolChoice::Kind::kNamed:
      return xml ? "<tool_call>\n<function=" + choice.name + ">\n"
                 : "<tool_call>\n{\"name\": " + dump(choice.name) + ", \"arguments\":";
    default:
      return {};
  }
}

}  // namespace

Result<ChatPrompt> build_prompt(const Service& service, const Conversation& conversation) {
  if (!service.chat_template)
    return bad_request("this model has no chat template; use /v1/completions", "messages");
  // A template that tells text from objects is given the text as the model wrote it, which the prefix cache
  // knows.
  auto messages =
      normal_messages(conversation.messages, service.chat_template->mentions("arguments is string"));
  if (!messages) return tl::unexpected<RequestError>(messages.error());
  std::string last;
  if (conversation.continue_final_message) {
    last = messages->back()["content"].get<std::string>();
    if (messages->back()["role"] != "assistant" || last.empty())
      return bad_request("continue_final_message needs a last message by the assistant",
                         "continue_final_message");
  }
  const bool tools = conversation.tool_choice.kind != ToolChoice::Kind::kNone;
  ChatTemplate::Request request;
  request.messages = std::move(*messages);
  if (tools) request.tools = conversation.tools;
  if (conversation.template_kwargs.is_object()) request.extra = conversation.template_kwargs;
  request.add_generation_prompt = conversation.add_generation_prompt && last.empty();
  auto text = service.chat_template->render(request);
  if (!text)
    return bad_request("the chat template refuses this conversation: " + text.error().message, "messages");
  if (!last.empty()) {  // cut what the template puts after the message
    const auto at = text->rfind(last);
    if (at == std::string::npos)
      return bad_request("the chat template changes the last message", "continue_final_message");
    text->resize(at + last.size());
  }
  ChatPrompt prompt;
  prompt.thinking_open = ReasoningParser::prompt_is_open(*text);
  prompt.thought = ReasoningParser::prompt_is_closed(*text);
  prompt.forced = forced_call(conversation.tool_choice, service.chat_template->source(true));
  if (prompt.thinking_open && !prompt.forced.empty()) *text += "\n</think>\n\n";
  prompt.tokens =
      service.tokenizer->encode(*text + prompt.forced, {.add_special = false, .parse_special = true});
  if (prompt.tokens.empty()) return bad_request("the prompt is empty", "messages");
  return prompt;
}

AnswerFrame answer_frame(const Service& service, const Conversation& conversation, const ChatPrompt& prompt) {
  AnswerFrame out;
  const bool thinks = service.tokenizer->token_to_id("<think>") || service.chat_template->mentions("<think>");
  if (prompt.thinking_open)
    out.thinking = AnswerFrame::Thinking::kOpen;
  else if (thinks && !prompt.thought)
    out.thinking = AnswerFrame::Thinking::kAllowed;
  out.tool_calls = conversation.tools.is_array() && conversation.tool_choice.kind == ToolChoice::Kind::kAuto;
  return out;
}

OutputOptions output_options(const Service& service, const Conversation& conversation,
                             const ChatPrompt& prompt) {
  OutputOptions out;
  out.end_tokens = service.generator->info().end_tokens;
  out.parse = true;
  out.thinking_open = prompt.thinking_open && prompt.forced.empty();
  out.forced = prompt.forced;
  out.tools.enabled =
      conversation.tools.is_array() && conversation.tool_choice.kind != ToolChoice::Kind::kNone;
  if (out.tools.enabled) out.tools.is_string = string_parameters(conversation.tools);
  if (!conversation.parallel_tool_calls || conversation.tool_choice.kind == ToolChoice::Kind::kNamed)
    out.max_calls = 1;
  return out;
}

}  // namespace strata
