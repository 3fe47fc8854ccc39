// Chat templates: finding them in a model folder, and the variables they see.
#include "text/chat_template.h"

#include <fstream>
#include <iterator>

#include "base/error.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

// The names a message's reasoning may come under; the first is the one templates read.
constexpr const char* kReasoningNames[] = {"reasoning_content", "thinking", "reasoning"};

constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  if (!text) return Json::object();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) throw Error("{}: not a JSON object", path.string());
  return json;
}

// A token is its text, or an object that has it as content.
void add_tokens(Json& variables, const Json& config) {
  const auto text_of = [](const Json& token) {
    return token.is_object() && token.contains("content") ? token["content"] : token;
  };
  for (const char* name : kTokenNames) {
    if (!config.contains(name)) continue;
    if (const Json text = text_of(config[name]); text.is_string()) variables[name] = text;
  }
  if (config.contains("extra_special_tokens") && config["extra_special_tokens"].is_object()) {
    for (const auto& [name, token] : config["extra_special_tokens"].items()) {
      if (const Json text = text_of(token); text.is_string()) variables[name] = text;
    }
  }
}

std::map<std::string, std::string> sources_of(const Json& chat_template, const std::filesystem::path& file) {
  std::map<std::string, std::string> sources;
  if (chat_template.is_string()) {
    sources["default"] = chat_template.get<std::string>();
  } else if (chat_template.is_array()) {
    for (const auto& entry : chat_template) {
      if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
          !entry["name"].is_string() || !entry["template"].is_string()) {
        throw Error("{}: an entry of chat_template has no name or template", file.string());
      }
      sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
    }
  } else if (!chat_template.is_null()) {
    throw Error("{}: chat_template is neither text nor a list", file.string());
  }
  return sources;
}

Json prepare_message(const Json& message) {
  Json out = Json::object();
  const Json* reasoning = nullptr;
  for (const char* name : kReasoningNames) {
    if (!reasoning && message.contains(name) && !message[name].is_null()) reasoning = &message[name];
  }
  if (reasoning) out["thinking"] = *reasoning;
  for (const auto& [name, value] : message.items()) {
    if (!value.is_null()) out[name] = value;
  }
  if (reasoning) out["reasoning_content"] = *reasoning;
  return out;
}

const std::string& default_source(const std::map<std::string, std::string>& sources) {
  const auto it = sources.find("default");
  if (it == sources.end()) throw Error("chat template: there are several and none is named default");
  return it->second;
}

}  // namespace

ChatTemplate::Parsed ChatTemplate::parse(std::string_view source, std::string_view name) {
  try {
    return {std::string(source), jinja::Template::parse(source)};
  } catch (const Error& error) {
    throw Error("chat template{}{}: {}", name == "default" ? "" : " ", name == "default" ? "" : name,
                error.what());
  }
}

ChatTemplate::ChatTemplate(std::string_view source, Json variables)
    : variables_(std::move(variables)), default_(parse(source, "default")) {}

ChatTemplate::ChatTemplate(const std::map<std::string, std::string>& sources, Json variables)
    : variables_(std::move(variables)), default_(parse(default_source(sources), "default")) {
  if (const auto it = sources.find("tool_use"); it != sources.end())
    tool_use_ = parse(it->second, "tool_use");
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  const auto config_file = folder / "tokenizer_config.json";
  const Json config = read_json(config_file);
  Json variables = Json::object();
  add_tokens(variables, read_json(folder / "special_tokens_map.json"));
  add_tokens(variables, config);

  std::map<std::string, std::string> sources;
  std::filesystem::path file = folder / "chat_template.jinja";
  if (const auto text = read_file(file)) {
    sources["default"] = *text;
  } else {
    for (const auto& candidate : {folder / "chat_template.json", config_file}) {
      const Json json = candidate == config_file ? config : read_json(candidate);
      if (!sources.empty() || !json.contains("chat_template")) continue;
      file = candidate;
      sources = sources_of(json["chat_template"], file);
    }
  }
  if (sources.empty()) return std::nullopt;
  try {
    return ChatTemplate(sources, std::move(variables));
  } catch (const Error& error) {
    throw Error("{}: {}", file.string(), error.what());
  }
}

Result<std::string> ChatTemplate::render(const Request& request, const jinja::RenderOptions& options) const {
  if (!request.messages.is_array()) return bad_request("messages must be an array", "messages");
  Json context = Json::object();
  context["messages"] = Json::array();
  for (const auto& message : request.messages) {
    if (!message.is_object()) return bad_request("a message must be an object", "messages");
    context["messages"].push_back(prepare_message(message));
  }
  context["tools"] = request.tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = request.add_generation_prompt;
  if (variables_.is_object()) context.update(variables_);
  if (request.extra.is_object()) context.update(request.extra);

  auto text = pick(!request.tools.is_null()).code.render(context, options);
  if (!text) return bad_request("chat template: " + text.error().message, "messages");
  return text;
}

bool ChatTemplate::mentions(std::string_view name) const {
  return default_.source.find(name) != std::string::npos ||
         (tool_use_ && tool_use_->source.find(name) != std::string::npos);
}

}  // namespace strata
