// The normalizer, pre-tokenizer and decoder sections of tokenizer.json.
#include <algorithm>
#include <functional>

#include "text/split_patterns.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace strata {
namespace {

SplitRegex compile(const JsonNode& node, std::string_view pattern) {
  try {
    return SplitRegex(pattern);
  } catch (const Error& error) {
    node.fail("{}", error.what());
  }
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string_view name = node.string();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail("behavior {} is not supported", name);
}

// The prepend scheme of a Metaspace step, with its older spelling add_prefix_space.
PreTokenizer::Prefix read_prefix(const JsonNode& node) {
  node.only({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string_view name = scheme->string();
    if (name == "never") return PreTokenizer::Prefix::kNever;
    if (name == "first") return PreTokenizer::Prefix::kFirst;
    if (name == "always") return PreTokenizer::Prefix::kAlways;
    scheme->fail("prepend scheme {} is not supported", name);
  }
  return node.boolean_or("add_prefix_space", true) ? PreTokenizer::Prefix::kAlways
                                                   : PreTokenizer::Prefix::kNever;
}

std::string one_char(const JsonNode& node) {
  const std::string_view text = node.string();
  if (text.empty() || utf8_length(text.front()) != text.size())
    node.fail("\"{}\" must be one character", text);
  return std::string(text);
}

void each_of(const JsonNode& node, std::string_view list, const std::function<void(const JsonNode&)>& read) {
  node.only({"type", list});
  node.at(list).each(read);
}

}  // namespace

SplitRegex read_pattern(const JsonNode& node) {
  node.only({"String", "Regex"});
  if (const auto text = node.find("String")) return compile(*text, quote_pattern(text->string()));
  const JsonNode regex = node.at("Regex");
  return compile(regex, regex.string());
}

// {"type": "Replace", "pattern", "content"}: of a normalizer or a decoder.
template <typename Steps>
void read_replace(const JsonNode& node, Steps& out) {
  node.only({"type", "pattern", "content"});
  std::string content(node.at("content").string());
  const JsonNode pattern = node.at("pattern");
  const auto text = pattern.find("String");
  if (text && !text->string().empty()) {
    out.add_replace_text(std::string(text->string()), std::move(content));
  } else {
    out.add_replace(read_pattern(pattern), std::move(content));
  }
}

void read_normalizer(const JsonNode& node, Normalizer& out) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    each_of(node, "normalizers", [&](const JsonNode& item) { read_normalizer(item, out); });
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    node.only({"type"});
    out.add_form(type == "NFC"    ? NormalForm::kNfc
                 : type == "NFD"  ? NormalForm::kNfd
                 : type == "NFKC" ? NormalForm::kNfkc
                                  : NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    node.only({"type"});
    out.add_lowercase();
  } else if (type == "Prepend") {
    node.only({"type", "prepend"});
    out.add_prepend(std::string(node.at("prepend").string()));
  } else if (type == "Replace") {
    read_replace(node, out);
  } else if (type == "Strip") {
    node.only({"type", "strip_left", "strip_right"});
    out.add_strip(node.at("strip_left").boolean(), node.at("strip_right").boolean());
  } else {
    node.fail("normalizer {} is not supported", type);
  }
}

void read_pre_tokenizer(const JsonNode& node, PreTokenizer& out) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    each_of(node, "pretokenizers", [&](const JsonNode& item) { read_pre_tokenizer(item, out); });
  } else if (type == "Split") {
    node.only({"type", "pattern", "behavior", "invert"});
    out.add_split(read_pattern(node.at("pattern")), read_behavior(node.at("behavior")),
                  node.boolean_or("invert", false));
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (node.at("add_prefix_space").boolean()) out.add_prefix_space();
    if (node.boolean_or("use_regex", true)) {
      out.add_split(SplitRegex(kGpt2Pattern), SplitBehavior::kIsolated, false);
    }
    out.add_byte_level();
  } else if (type == "Digits") {
    node.only({"type", "individual_digits"});
    out.add_split(
        SplitRegex(kDigitPattern),
        node.boolean_or("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
        false);
  } else if (type == "Punctuation") {
    node.only({"type", "behavior"});
    const auto behavior = node.find("behavior");
    out.add_split(SplitRegex(kPunctuationPattern),
                  behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated, false);
  } else if (type == "Whitespace") {
    node.only({"type"});
    out.add_split(SplitRegex(kWordPattern), SplitBehavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    node.only({"type"});
    out.add_split(SplitRegex("\\s"), SplitBehavior::kRemoved, false);
  } else if (type == "Metaspace") {
    const PreTokenizer::Prefix prefix = read_prefix(node);
    out.add_metaspace(one_char(node.at("replacement")), prefix, node.boolean_or("split", true));
  } else {
    node.fail("pre-tokenizer {} is not supported", type);
  }
}

namespace {

// The steps of a decoder in order; `fused`: a Fuse step joined the tokens, so what follows sees the whole
// text.
void read_decoder_step(const JsonNode& node, TokenDecoder& out, bool& fused) {
  const std::string_view type = node.at("type").string();
  if (type == "Sequence") {
    return each_of(node, "decoders", [&](const JsonNode& item) { read_decoder_step(item, out, fused); });
  }
  if (type == "Fuse") {
    node.only({"type"});
    fused = true;
    return;
  }
  if (type == "Strip") {
    node.only({"type", "content", "start", "stop"});
    std::string content = one_char(node.at("content"));
    const int start = node.at("start").index(), stop = node.at("stop").index();
    if (!fused) return out.add_strip(std::move(content), start, stop);
    if (stop != 0) node.fail("stripping the end of the whole text is not supported");
    if (content.size() != 1) node.fail("stripping \"{}\" from the whole text is not supported", content);
    if (out.lead_strip().count != 0) node.fail("a second strip of the whole text is not supported");
    return out.set_lead_strip({std::move(content), start});
  }
  if (fused) node.fail("decoder {} after the tokens are joined is not supported", type);
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    out.add_byte_level();
    fused = true;
  } else if (type == "ByteFallback") {
    node.only({"type"});
    out.add_byte_fallback();
  } else if (type == "Replace") {
    read_replace(node, out);
  } else if (type == "Metaspace") {
    const bool drop_first = read_prefix(node) != PreTokenizer::Prefix::kNever;
    out.add_metaspace(one_char(node.at("replacement")), drop_first);
  } else {
    node.fail("decoder {} is not supported", type);
  }
}

}  // namespace

TokenDecoder read_decoder(const JsonNode& node) {
  TokenDecoder decoder;
  bool fused = false;
  read_decoder_step(node, decoder, fused);
  return decoder;
}

}  // namespace strata
