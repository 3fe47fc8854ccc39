#include "text/token_decoder.h"

#include <algorithm>
#include <charconv>

#include "text/byte_level.h"
#include "text/normalizer.h"

namespace strata {
namespace {

// The value of <0xXX>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  const char* end = token.data() + 5;
  const auto result = std::from_chars(token.data() + 3, end, value, 16);
  return result.ec == std::errc{} && result.ptr == end ? value : -1;
}

std::string replaced(std::string_view token, std::string_view text, std::string_view content) {
  Normalizer normalizer;
  normalizer.add_replace_text(std::string(text), std::string(content));
  std::string storage;
  return std::string(normalizer.apply(token, storage));
}

std::string replaced(std::string_view token, const SplitRegex& pattern, std::string_view content) {
  Normalizer normalizer;
  normalizer.add_replace(pattern, std::string(content));
  std::string storage;
  return std::string(normalizer.apply(token, storage));
}

std::string_view stripped(std::string_view token, std::string_view content, int start, int stop) {
  for (int i = 0; i < start && token.starts_with(content); ++i) token.remove_prefix(content.size());
  for (int i = 0; i < stop && token.ends_with(content); ++i) token.remove_suffix(content.size());
  return token;
}

}  // namespace

std::string TokenDecoder::bytes(std::string_view token, bool first) const {
  std::string text(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return byte_level_bytes(text);
    if (std::holds_alternative<ByteFallback>(step)) {
      if (const int byte = fallback_byte(text); byte >= 0) return std::string(1, static_cast<char>(byte));
    } else if (const auto* replace_text = std::get_if<ReplaceText>(&step)) {
      text = replaced(text, replace_text->text, replace_text->content);
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      text = replaced(text, replace->pattern, replace->content);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      text = replaced(text, metaspace->mark, first && metaspace->drop_first ? "" : " ");
    } else if (const auto* strip = std::get_if<Strip>(&step)) {
      text = stripped(text, strip->content, strip->start, strip->stop);
    }
  }
  return text;
}

bool TokenDecoder::first_differs() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    return metaspace != nullptr && metaspace->drop_first;
  });
}

}  // namespace strata
