#include "server/conversation.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

// Text parts joined; any other kind of part is refused.
Result<std::string> joined_content(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return bad_request(path + " must be a string or an array of parts", path);
  std::string out;
  for (const Json& part : content) {
    if (part.is_string()) {
      out += part.get<std::string>();
      continue;
    }
    Fields fields(part, path + "[].");
    const auto type = fields.text("type");
    const auto text = fields.text(type == "refusal" ? "refusal" : "text");
    if (fields.failed()) return fields.error();
    const bool is_text = type == "text" || type == "input_text" || type == "output_text" || type == "refusal";
    if (!is_text || !text) return bad_request(path + " may hold parts of text only", path);
    out += *text;
  }
  return out;
}

Result<Json> normal_tool_calls(const Json& calls, const std::string& path, bool keep_text) {
  Json out = Json::array();
  for (const Json& call : calls) {
    Json copy = call;
    if (!call.is_object()) return bad_request(path + " must hold objects", path);
    Json& function = copy.contains("function") ? copy["function"] : copy;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      return bad_request(path + " must hold calls with a function's name", path);
    Json& arguments = function["arguments"];
    if (arguments.is_null()) arguments = keep_text ? Json("{}") : Json::object();
    if (arguments.is_string() && !keep_text) {
      auto parsed = parse_json(arguments.get<std::string>());
      if (parsed && parsed->is_object()) arguments = std::move(*parsed);
    }
    out.push_back(std::move(copy));
  }
  return out;
}

Result<Json> normal_message(const Json& message, const std::string& path, bool keep_text) {
  Fields fields(message, path + ".");
  const auto role = fields.text("role");
  const Json* calls = fields.array("tool_calls");
  const Json* content = fields.find("content");
  if (fields.failed()) return fields.error();
  static constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                                "assistant", "tool",      "function"};
  if (!role || std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles))
    return bad_request(path + ".role must be system, developer, user, assistant or tool", path + ".role");
  if (!content && *role != "assistant") return bad_request(path + ".content is missing", path + ".content");
  Json out = message;
  out["role"] = *role == "developer" ? "system" : *role == "function" ? "tool" : *role;
  auto text = content ? joined_content(*content, path + ".content") : Result<std::string>(std::string());
  if (!text) return tl::unexpected<RequestError>(text.error());
  out["content"] = std::move(*text);
  if (calls) {
    auto normal = normal_tool_calls(*calls, path + ".tool_calls", keep_text);
    if (!normal) return tl::unexpected<RequestError>(normal.error());
    out["tool_calls"] = std::move(*normal);
    if (calls->empty()) out.erase("tool_calls");
  } else {
    out.erase("tool_calls");
  }
  return out;
}

Result<Json> read_tools(Fields& fields) {
  const Json* tools = fields.array("tools");
  if (fields.failed()) return fields.error();
  if (!tools || tools->empty()) return Json();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}].", i));
    const Json* function = tool.object("function");
    if (tool.text("type").value_or("function") != "function") tool.fail("type", "must be \"function\"");
    if (!function) tool.fail("function", "is missing");
    if (tool.failed()) return tool.error();
    Fields inner(*function, fmt::format("tools[{}].function.", i));
    if (!inner.text("name")) inner.fail("name", "is missing");
    inner.object("parameters");
    if (inner.failed()) return inner.error();
  }
  return *tools;
}

}  // namespace

Result<Json> read_flat_tools(Fields& fields, std::string_view type, bool needs_type, const char* schema) {
  const Json* tools = fields.array("tools");
  if (fields.failed()) return fields.error();
  if (!tools || tools->empty()) return Json();
  Json out = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}].", i));
    const auto given = tool.text("type");
    const auto name = tool.text("name");
    const auto description = tool.text("description");
    const Json* parameters = tool.object(schema);
    if (given ? *given != type : needs_type)
      tool.fail("type", fmt::format("must be {}: this server runs no tools itself", type));
    if (!name) tool.fail("name", "is missing");
    if (tool.failed()) return tool.error();
    Json function{{"name", *name}};
    if (description) function["description"] = *description;
    function["parameters"] =
        parameters ? *parameters : Json{{"type", "object"}, {"properties", Json::object()}};
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

Result<ToolChoice> read_tool_choice(const Json* value, const Json& tools) {
  if (!value) return ToolChoice{};
  const std::string param = "tool_choice";
  ToolChoice choice;
  if (value->is_string()) {
    if (*value == "none")
      choice.kind = ToolChoice::Kind::kNone;
    else if (*value == "required")
      choice.kind = ToolChoice::Kind::kRequired;
    else if (*value != "auto")
      return bad_request("tool_choice must be none, auto, required or a function", param);
  } else {
    Fields fields(*value, "tool_choice.");
    const Json* function = fields.object("function");
    if (fields.failed()) return fields.error();
    Fields named(function ? *function : *value, "tool_choice.");
    const auto name = named.text("name");
    if (named.failed()) return named.error();
    if (!name) return bad_request("tool_choice.function.name is missing", param);
    choice = {ToolChoice::Kind::kNamed, *name};
    const bool known = tools.is_array() && std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
                         return tool["function"]["name"] == *name;
                       });
    if (!known)
      return bad_request(fmt::format("tool_choice names the function {:?}, which tools do not have", *name),
                         param);
  }
  if (choice.kind == ToolChoice::Kind::kRequired && !tools.is_array())
    return bad_request("tool_choice is required but there are no tools", param);
  return choice;
}

Result<Conversation> read_conversation(Fields& fields) {
  Conversation out;
  const Json* messages = fields.array("messages");
  const Json* kwargs = fields.object("chat_template_kwargs");
  out.parallel_tool_calls = fields.flag("parallel_tool_calls").value_or(true);
  out.add_generation_prompt = fields.flag("add_generation_prompt").value_or(true);
  out.continue_final_message = fields.flag("continue_final_message").value_or(false);
  if (!messages || messages->empty()) fields.fail("messages", "must be an array with at least one message");
  if (fields.failed()) return fields.error();
  out.messages = *messages;
  if (kwargs) out.template_kwargs = *kwargs;
  auto tools = read_tools(fields);
  if (!tools) return tl::unexpected<RequestError>(tools.error());
  out.tools = std::move(*tools);
  auto choice = read_tool_choice(fields.find("tool_choice"), out.tools);
  if (!choice) return tl::unexpected<RequestError>(choice.error());
  out.tool_choice = std::move(*choice);
  return out;
}

Result<Json> normal_messages(const Json& messages, bool keep_text) {
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto message = normal_message(messages[i], fmt::format("messages[{}]", i), keep_text);
    if (!message) return tl::unexpected<RequestError>(message.error());
    out.push_back(std::move(*message));
  }
  return out;
}

}  // namespace strata
