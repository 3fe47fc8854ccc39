// The chat template a model folder carries.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace strata {

// The Jinja source: `folder`/chat_template.jinja, else `chat_template` of chat_template.json or
// tokenizer_config.json (there a string, or a list of {name, template} of which "default" is taken). Nothing
// when there is none; throws Error when a file is malformed.
std::optional<std::string> load_chat_template(const std::filesystem::path& folder);

}  // namespace strata
