// A model's chat template: turns messages and tools into the prompt, as Hugging Face transformers does.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja.h"

namespace strata {

// Immutable after construction: any number of threads may render at once.
class ChatTemplate {
 public:
  // `variables`: what every rendering sees besides the messages, usually the special tokens {"bos_token":
  // "<s>", ...}. Throws Error "chat template: line N: ...".
  explicit ChatTemplate(std::string_view source,
                        nlohmann::ordered_json variables = nlohmann::ordered_json::object());

  // Several templates by name: "default", and "tool_use" for requests with tools. Others are left alone.
  ChatTemplate(const std::map<std::string, std::string>& sources, nlohmann::ordered_json variables);

  // The template of a model folder with its special tokens: chat_template.jinja, else chat_template.json,
  // else chat_template in tokenizer_config.json (a string or a list of named ones). Absent if the folder has
  // none; throws Error naming the file.
  static std::optional<ChatTemplate> load(const std::filesystem::path& folder);

  struct Request {
    nlohmann::ordered_json messages =
        nlohmann::ordered_json::array();  // [{"role": ..., "content": ...}, ...]
    nlohmann::ordered_json tools;         // null, or an array of JSON schemas
    bool add_generation_prompt = true;
    nlohmann::ordered_json extra =
        nlohmann::ordered_json::object();  // more variables, such as enable_thinking
  };

  // The prompt. Members of a message that are null are left out, and its reasoning is there under each of the
  // names reasoning_content and thinking. What the template raises or trips over is the error, with its line.
  Result<std::string> render(const Request& request, const jinja::RenderOptions& options = {}) const;

  // The text of the template that a request with or without tools is rendered with.
  const std::string& source(bool tools = false) const { return pick(tools).source; }
  // Whether the template mentions `name`: a cheap guess at what it supports, for example enable_thinking.
  bool mentions(std::string_view name) const;

 private:
  struct Parsed {
    std::string source;
    jinja::Template code;
  };
  static Parsed parse(std::string_view source, std::string_view name);
  const Parsed& pick(bool tools) const { return tools && tool_use_ ? *tool_use_ : default_; }

  nlohmann::ordered_json variables_;
  Parsed default_;
  std::optional<Parsed> tool_use_;
};

}  // namespace strata
