#include "text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace strata {
namespace {

// Lead byte of U+0300, the first combining mark. Characters below are composed already and begin a segment:
// they may change only with marks that follow them, never with what comes before.
constexpr uint8_t kFirstMarkLead = 0xCC;

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  switch (form) {
    case NormalForm::kNfc:
      options |= UTF8PROC_COMPOSE;
      break;
    case NormalForm::kNfd:
      options |= UTF8PROC_DECOMPOSE;
      break;
    case NormalForm::kNfkc:
      options |= UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
      break;
    case NormalForm::kNfkd:
      options |= UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
      break;
  }
  return static_cast<utf8proc_option_t>(options);
}

void append_form(NormalForm form, std::string_view text, std::string& out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options_of(form));
  STRATA_CHECK(length >= 0, "normalisation failed: {}", utf8proc_errmsg(length));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
}

// NFC of the segments that hold a character from U+0300 on; the rest is copied.
std::string_view compose(std::string_view text, std::string& out) {
  const auto is_high = [&text](size_t i) { return static_cast<uint8_t>(text[i]) >= kFirstMarkLead; };
  const auto is_lead = [&text](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xC0) != 0x80; };
  out.clear();
  size_t copied = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_high(at)) continue;
    size_t begin = at;  // of the character before, with which a mark may combine
    while (begin > copied && !is_lead(--begin)) {
    }
    while (at < text.size() && (is_high(at) || !is_lead(at))) ++at;
    out += text.substr(copied, begin - copied);
    append_form(NormalForm::kNfc, text.substr(begin, at - begin), out);
    copied = at;
  }
  if (copied == 0) return text;
  out += text.substr(copied);
  return out;
}

}  // namespace

std::string_view Normalizer::run(NormalForm form, std::string_view text, std::string& out) {
  if (is_ascii(text)) return text;
  if (form == NormalForm::kNfc) return compose(text, out);
  out.clear();
  append_form(form, text, out);
  return out;
}

std::string_view Normalizer::run(const Lowercase&, std::string_view text, std::string& out) {
  out.clear();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char(text, at);
    append_lowercase(out, c.value);
    at += c.length;
  }
  return out;
}

std::string_view Normalizer::run(const Prepend& step, std::string_view text, std::string& out) {
  if (text.empty()) return text;
  out.assign(step.text);
  out += text;
  return out;
}

std::string_view Normalizer::run(const Replace& step, std::string_view text, std::string& out) {
  SplitRegex::Matcher matcher(step.pattern);
  matcher.reset(text);
  out.clear();
  size_t begin = 0, end = 0, copied = 0;
  while (matcher.next(begin, end)) {
    out += text.substr(copied, begin - copied);
    out += step.content;
    copied = end;
  }
  if (copied == 0 && out.empty()) return text;
  out += text.substr(copied);
  return out;
}

std::string_view Normalizer::run(const ReplaceText& step, std::string_view text, std::string& out) {
  size_t found = text.find(step.text);
  if (found == std::string_view::npos) return text;
  out.clear();
  size_t copied = 0;
  for (; found != std::string_view::npos; found = text.find(step.text, copied)) {
    out += text.substr(copied, found - copied);
    out += step.content;
    copied = found + step.text.size();
  }
  out += text.substr(copied);
  return out;
}

std::string_view Normalizer::run(const Strip& step, std::string_view text, std::string&) {
  if (step.left) text.remove_prefix(leading_white_space(text));
  if (step.right) text.remove_suffix(trailing_white_space(text));
  return text;
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string next;
  for (const Step& step : steps_) {
    const std::string_view result =
        std::visit([&](const auto& s) -> std::string_view { return run(s, text, next); }, step);
    if (result.data() == next.data() && !next.empty()) {
      storage.swap(next);
      text = storage;
    } else {
      text = result;
    }
  }
  return text;
}

}  // namespace strata
