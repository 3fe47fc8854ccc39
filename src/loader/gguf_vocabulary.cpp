#include "loader/gguf_vocabulary.h"

#include "base/error.h"
#include "loader/gguf.h"
#include "loader/gguf_config.h"

namespace strata {

GgufVocabulary gguf_vocabulary(const GgufMetadata& m) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  GgufVocabulary v;
  v.model = m.get_text(key("model"));
  v.pre = m.get_text(key("pre"), "default");
  for (const std::string_view t : m.get_texts(key("tokens"))) v.tokens.emplace_back(t);
  const std::size_t count = v.tokens.size();
  const auto check = [&](const char* name, std::size_t found) {
    if (found != count)
      throw Error("{}: {} has {} entries for {} tokens", m.origin(), key(name), found, count);
  };
  if (m.has(key("token_type"))) {
    for (const std::int64_t t : m.get_ints(key("token_type"))) {
      if (t < 1 || t > 6) throw Error("{}: {} holds {}", m.origin(), key("token_type"), t);
      v.types.push_back(static_cast<int>(t));
    }
    check("token_type", v.types.size());
  }
  if (m.has(key("scores"))) {
    for (const double s : m.get_floats(key("scores"))) v.scores.push_back(static_cast<float>(s));
    check("scores", v.scores.size());
  }
  if (m.has(key("merges"))) {
    for (const std::string_view t : m.get_texts(key("merges"))) v.merges.emplace_back(t);
  }
  const auto id = [&](const char* name) -> std::optional<int> {
    if (!m.has(key(name))) return std::nullopt;
    const std::int64_t value = m.get_int(key(name));
    if (value == -1 || value == 0xffffffff) return std::nullopt;  // how files write none
    if (value < 0 || value >= static_cast<std::int64_t>(count))
      throw Error("{}: {} is {} of {} tokens", m.origin(), key(name), value, count);
    return static_cast<int>(value);
  };
  v.bos = id("bos_token_id");
  v.eos = id("eos_token_id");
  if (m.has(key("add_bos_token"))) v.add_bos = m.get_bool(key("add_bos_token"));
  if (m.has(key("add_eos_token"))) v.add_eos = m.get_bool(key("add_eos_token"));
  if (m.has(key("add_space_prefix"))) v.add_space_prefix = m.get_bool(key("add_space_prefix"));
  if (m.has(key("precompiled_charsmap"))) v.has_charsmap = !m.get_ints(key("precompiled_charsmap")).empty();
  v.end_tokens = gguf_end_tokens(m);
  if (m.has("tokenizer.chat_template")) v.chat_template = m.get_text("tokenizer.chat_template");
  return v;
}

GgufVocabulary load_gguf_vocabulary(const std::filesystem::path& file) {
  const std::filesystem::path first = gguf_parts(file).front();
  const MappedFile mapped(first);
  return gguf_vocabulary(parse_gguf(mapped.bytes(), first.string()).metadata);
}

}  // namespace strata
