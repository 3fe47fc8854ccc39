#include "loader/chat_template.h"

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "loader/json.h"

namespace strata {
namespace {

std::optional<std::string> template_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_array()) return value.as_string();
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i].get_string("name") == "default") return value[i].get_string("template");
  }
  throw Error("{}: no template is named \"default\"", value.where());
}

}  // namespace

std::optional<std::string> load_chat_template(const std::filesystem::path& folder) {
  if (const auto file = folder / "chat_template.jinja"; std::filesystem::exists(file)) {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in || !text) throw Error("{}: cannot be read", file.string());
    return text.str();
  }
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const auto file = folder / name;
    if (!std::filesystem::exists(file)) continue;
    if (auto found = template_of(Json::load(file).get("chat_template"))) return found;
  }
  return std::nullopt;
}

}  // namespace strata
