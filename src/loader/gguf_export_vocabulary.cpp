// tokenizer.json as GGUF's keys.
#include <map>

#include "base/error.h"
#include "loader/chat_template.h"
#include "loader/gguf_export_metadata.h"

namespace strata {
namespace {

constexpr std::int64_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

// GGUF names the way words are cut; told apart by what only one of the patterns has.
std::string_view split_name(const Json& pre_tokenizer) {
  const std::string text = pre_tokenizer.dump();
  if (text.find("ByteLevel") == std::string::npos) throw Error("{}: only byte-level BPE can be written to GGUF", pre_tokenizer.where());
  if (text.find("\\\\p{N}{1,3}") != std::string::npos) return text.find("\\\\p{Lu}") != std::string::npos ? "gpt-4o" : "llama-bpe";
  if (text.find("[\\\\p{L}\\\\p{M}]") != std::string::npos) return "qwen35";
  if (text.find("|\\\\p{N}|") != std::string::npos) return text.find("\\\\p{Lu}") != std::string::npos ? "tekken" : "qwen2";
  if (text.find("\"Split\"") != std::string::npos) throw Error("{}: GGUF has no name here for this way of cutting words", pre_tokenizer.where());
  return text.find("Digits") != std::string::npos ? "smollm" : "gpt-2";
}

struct Tokens {
  std::vector<std::string> texts;
  GgufInts types;

  void put(std::size_t id, const std::string& text, std::int64_t type, const Json& from) {
    if (id >= texts.size()) throw Error("{}: token {} is beyond the {} rows of the embedding table", from.where(), id, texts.size());
    texts[id] = text;
    types[id] = type;
  }
};

// A special token of tokenizer_config.json: a text, or an object with its content.
std::optional<std::string> special(const Json& config, const char* key) {
  const Json value = config.get(key);
  if (value.is_null()) return std::nullopt;
  return value.is_object() ? value.get_string("content") : value.as_string();
}

}  // namespace

bool set_gguf_vocabulary(GgufWriter& to, const std::filesystem::path& folder, const ModelConfig& config, std::int64_t vocab) {
  const auto file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    to.set("tokenizer.ggml.model", std::string_view("none"));
    return false;
  }
  const Json root = Json::load(file), model = root.at("model");
  if (model.get_string("type", "BPE") != "BPE") throw Error("{}: only byte-level BPE can be written to GGUF", model.where());

  Tokens tokens;
  for (std::int64_t i = 0; i < vocab; ++i) tokens.texts.push_back(fmt::format("[PAD{}]", i));
  tokens.types.assign(tokens.texts.size(), kUnused);
  const Json ids = model.at("vocab");
  for (const std::string& text : ids.keys()) tokens.put(static_cast<std::size_t>(ids.get_int64(text)), text, kNormal, ids);
  const Json added = root.get("added_tokens");
  for (std::size_t i = 0; !added.is_null() && i < added.size(); ++i) {
    const Json token = added[i];
    tokens.put(static_cast<std::size_t>(token.get_int64("id")), token.get_string("content"),
               token.get_bool("special", false) ? kControl : kUserDefined, token);
  }

  std::vector<std::string> merges;
  const Json list = model.at("merges");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json merge = list[i];
    merges.push_back(merge.is_string() ? merge.as_string() : merge[0].as_string() + " " + merge[1].as_string());
  }

  to.set("tokenizer.ggml.model", std::string_view("gpt2"));
  to.set("tokenizer.ggml.pre", split_name(root.at("pre_tokenizer")));
  to.set("tokenizer.ggml.tokens", GgufTexts(tokens.texts.begin(), tokens.texts.end()));
  to.set("tokenizer.ggml.token_type", tokens.types);
  to.set("tokenizer.ggml.merges", GgufTexts(merges.begin(), merges.end()));

  std::map<std::string_view, std::int64_t> id_of;
  for (std::size_t i = 0; i < tokens.texts.size(); ++i) id_of.emplace(tokens.texts[i], static_cast<std::int64_t>(i));
  const auto config_file = folder / "tokenizer_config.json";
  const Json tokenizer_config = std::filesystem::exists(config_file) ? Json::load(config_file) : Json::parse("{}", config_file.string());
  const auto set_id = [&](const char* key, const std::optional<std::string>& text) {
    if (!text) return;
    if (const auto it = id_of.find(*text); it != id_of.end()) to.set(key, it->second);
  };
  set_id("tokenizer.ggml.bos_token_id", special(tokenizer_config, "bos_token"));
  set_id("tokenizer.ggml.padding_token_id", special(tokenizer_config, "pad_token"));
  if (!config.end_tokens().empty()) {
    to.set("tokenizer.ggml.eos_token_id", std::int64_t{config.end_tokens().front()});
  } else {
    set_id("tokenizer.ggml.eos_token_id", special(tokenizer_config, "eos_token"));
  }
  to.set("tokenizer.ggml.add_bos_token", tokenizer_config.get_bool("add_bos_token", false));
  if (const auto text = load_chat_template(folder)) to.set("tokenizer.chat_template", std::string_view(*text));
  return true;
}

}  // namespace strata
