#include "server/anthropic_request.h"

#include <fmt/format.h>

namespace strata {
namespace {

// Text blocks joined; a string is itself.
Result<std::string> text_of(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return bad_request(path + " must be a string or an array of blocks", path);
  std::string out;
  for (const Json& block : content) {
    Fields fields(block, path + "[].");
    const auto text = fields.text("text");
    if (fields.failed()) return fields.error();
    if (fields.text("type") != "text" || !text) return bad_request(path + " may hold text blocks only", path);
    out += *text;
  }
  return out;
}

// One message becomes one of the assistant, or the results of tools followed by the user's text.
class MessageReader {
 public:
  MessageReader(const std::string& path, bool assistant, Json& out)
      : path_(path), assistant_(assistant), out_(out) {}

  std::optional<RequestError> read(const Json& content) {
    if (content.is_string()) {
      text_ = content.get<std::string>();
    } else if (content.is_array()) {
      for (const Json& block : content)
        if (auto error = read_block(block)) return error;
    } else {
      return RequestError{path_ + ".content must be a string or an array of blocks", path_ + ".content"};
    }
    if (!assistant_ && (!text_.empty() || !results_)) out_.push_back({{"role", "user"}, {"content", text_}});
    if (assistant_) {
      Json message{{"role", "assistant"}, {"content", text_}};
      if (!thinking_.empty()) message["reasoning_content"] = thinking_;
      if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
      out_.push_back(std::move(message));
    }
    return std::nullopt;
  }

 private:
  std::optional<RequestError> read_block(const Json& block) {
    Fields fields(block, path_ + ".content[].");
    const std::string type = fields.text("type").value_or("");
    if (type == "text") {
      text_ += fields.text("text").value_or("");
    } else if (assistant_ && type == "thinking") {
      thinking_ += fields.text("thinking").value_or("");
    } else if (assistant_ && type == "redacted_thinking") {
      // nothing to show
    } else if (assistant_ && type == "tool_use") {
      const auto name = fields.text("name");
      const Json* input = fields.object("input");
      if (!name) fields.fail("name", "is missing");
      if (!fields.failed())
        calls_.push_back({{"id", fields.text("id").value_or("")},
                          {"type", "function"},
                          {"function", {{"name", *name}, {"arguments", input ? *input : Json::object()}}}});
    } else if (!assistant_ && type == "tool_result") {
      const Json* content = fields.find("content");
      auto text =
          content ? text_of(*content, path_ + ".content[].content") : Result<std::string>(std::string());
      if (!text) return text.error();
      out_.push_back(
          {{"role", "tool"}, {"tool_call_id", fields.text("tool_use_id").value_or("")}, {"content", *text}});
      results_ = true;
    } else {
      return RequestError{
          fmt::format("{}.content: blocks of type {:?} are not supported here", path_, type.substr(0, 40)),
          path_ + ".content"};
    }
    if (fields.failed()) return fields.error().value();
    return std::nullopt;
  }

  const std::string& path_;
  const bool assistant_;
  Json& out_;
  std::string text_, thinking_;
  Json calls_ = Json::array();
  bool results_ = false;
};

Result<ToolChoice> read_choice(Fields& fields, const Json& tools, bool& parallel) {
  const Json* value = fields.object("tool_choice");
  if (fields.failed()) return fields.error();
  if (!value) return ToolChoice{};
  Fields choice(*value, "tool_choice.");
  const std::string type = choice.text("type").value_or("");
  const auto name = choice.text("name");
  parallel = !choice.flag("disable_parallel_tool_use").value_or(false);
  if (choice.failed()) return choice.error();
  if (type == "auto") return ToolChoice{};
  if (type == "tool") {
    const Json named{{"type", "function"}, {"function", {{"name", name.value_or("")}}}};
    return read_tool_choice(&named, tools);
  }
  const Json word = type == "any" ? "required" : type;
  if (type == "any" || type == "none") return read_tool_choice(&word, tools);
  return bad_request("tool_choice.type must be auto, any, tool or none", "tool_choice.type");
}

}  // namespace

Result<Conversation> read_anthropic(Fields& fields) {
  Conversation out;
  const Json* messages = fields.array("messages");
  if (!messages || messages->empty()) fields.fail("messages", "must be an array with at least one message");
  const Json* thinking = fields.object("thinking");
  const Json* kwargs = fields.object("chat_template_kwargs");
  if (fields.failed()) return fields.error();
  if (const Json* system = fields.find("system")) {
    auto text = text_of(*system, "system");
    if (!text) return tl::unexpected<RequestError>(text.error());
    if (!text->empty()) out.messages.push_back({{"role", "system"}, {"content", *text}});
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    Fields message((*messages)[i], path + ".");
    const auto role = message.text("role");
    const Json* content = message.find("content");
    if (role != "user" && role != "assistant") message.fail("role", "must be user or assistant");
    if (!content) message.fail("content", "is missing");
    if (message.failed()) return message.error();
    if (auto error = MessageReader(path, role == "assistant", out.messages).read(*content))
      return tl::unexpected<RequestError>(std::move(*error));
  }
  const Json& last = out.messages.back();
  out.continue_final_message =
      last["role"] == "assistant" && last["content"] != "" && !last.contains("tool_calls");
  auto tools = read_flat_tools(fields, "custom", false, "input_schema");
  if (!tools) return tl::unexpected<RequestError>(tools.error());
  out.tools = std::move(*tools);
  auto choice = read_choice(fields, out.tools, out.parallel_tool_calls);
  if (!choice) return tl::unexpected<RequestError>(choice.error());
  out.tool_choice = std::move(*choice);
  if (kwargs) out.template_kwargs = *kwargs;
  if (thinking) {
    Fields wanted(*thinking, "thinking.");
    const auto type = wanted.text("type");
    if (wanted.failed()) return wanted.error();
    if (out.template_kwargs.is_null()) out.template_kwargs = Json::object();
    out.template_kwargs["enable_thinking"] = type != "disabled";
  }
  return out;
}

}  // namespace strata
