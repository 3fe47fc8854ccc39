#include "server/responses_request.h"

#include <fmt/format.h>

namespace strata {
namespace {

// Items in a row that the assistant made (reasoning, message, calls) are one message.
class InputReader {
 public:
  explicit InputReader(Json& messages) : messages_(messages) {}

  std::optional<RequestError> read(const Json& item, const std::string& path) {
    Fields fields(item, path + ".");
    const std::string type = fields.text("type").value_or("message");
    if (fields.failed()) return fields.error().value();
    if (type == "message") return read_message(item, fields);
    if (type == "function_call") return read_call(fields);
    if (type == "function_call_output") return read_output(fields);
    if (type == "reasoning") return read_reasoning(fields);
    return RequestError{
        fmt::format("{}.type: items of type {:?} are not supported", path, type.substr(0, 40)),
        path + ".type"};
  }

 private:
  std::optional<RequestError> read_message(const Json& item, Fields& fields) {
    const auto role = fields.text("role");
    const Json* content = fields.find("content");
    if (!role) fields.fail("role", "is missing");
    if (!content) fields.fail("content", "is missing");
    if (fields.failed()) return fields.error().value();
    if (*role != "assistant") {
      messages_.push_back({{"role", *role}, {"content", item["content"]}});
      return std::nullopt;
    }
    Json& last = assistant();
    if (last["content"] != "") messages_.push_back({{"role", "assistant"}, {"content", ""}});
    messages_.back()["content"] = *content;
    return std::nullopt;
  }

  std::optional<RequestError> read_call(Fields& fields) {
    const auto name = fields.text("name");
    const auto arguments = fields.text("arguments");
    const auto id = fields.text("call_id");
    if (!name) fields.fail("name", "is missing");
    if (fields.failed()) return fields.error().value();
    Json& last = assistant();
    if (!last.contains("tool_calls")) last["tool_calls"] = Json::array();
    last["tool_calls"].push_back({{"id", id.value_or("")},
                                  {"type", "function"},
                                  {"function", {{"name", *name}, {"arguments", arguments.value_or("{}")}}}});
    return std::nullopt;
  }

  std::optional<RequestError> read_output(Fields& fields) {
    const Json* output = fields.find("output");
    const auto id = fields.text("call_id");
    if (!output) fields.fail("output", "is missing");
    if (fields.failed()) return fields.error().value();
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id.value_or("")}, {"content", *output}});
    return std::nullopt;
  }

  std::optional<RequestError> read_reasoning(Fields& fields) {
    std::string text;
    const Json* content = fields.array("content");
    if (fields.failed()) return fields.error().value();
    if (content)
      for (const Json& part : *content)
        text += Fields(part, fields.path() + "content[].").text("text").value_or("");
    messages_.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
    return std::nullopt;
  }

  Json& assistant() {
    if (messages_.empty() || messages_.back()["role"] != "assistant")
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
  }

  Json& messages_;
};

}  // namespace

Result<Conversation> read_responses(Fields& fields) {
  Conversation out;
  for (const char* name : {"previous_response_id", "conversation"})
    if (fields.find(name))
      fields.fail(name,
                  "is not supported: this server stores no responses; send the whole conversation as input");
  if (fields.flag("background").value_or(false)) fields.fail("background", "is not supported");
  const auto instructions = fields.text("instructions");
  const Json* kwargs = fields.object("chat_template_kwargs");
  const Json* input = fields.find("input");
  out.parallel_tool_calls = fields.flag("parallel_tool_calls").value_or(true);
  if (!input || (!input->is_string() && !input->is_array()) || input->empty() || *input == "")
    fields.fail("input", "must be a string or an array of items");
  if (fields.failed()) return fields.error();
  if (instructions && !instructions->empty())
    out.messages.push_back({{"role", "system"}, {"content", *instructions}});
  if (input->is_string()) {
    out.messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    InputReader reader(out.messages);
    for (std::size_t i = 0; i < input->size(); ++i)
      if (auto error = reader.read((*input)[i], fmt::format("input[{}]", i)))
        return tl::unexpected<RequestError>(std::move(*error));
  }
  auto tools = read_flat_tools(fields, "function", true, "parameters");
  if (!tools) return tl::unexpected<RequestError>(tools.error());
  out.tools = std::move(*tools);
  auto choice = read_tool_choice(fields.find("tool_choice"), out.tools);
  if (!choice) return tl::unexpected<RequestError>(choice.error());
  out.tool_choice = std::move(*choice);
  if (kwargs) out.template_kwargs = *kwargs;
  return out;
}

}  // namespace strata
