#include "text/detokenizer.h"

#include "text/token_decoder.h"

namespace strata {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizeOptions options)
    : tokenizer_(tokenizer),
      skip_special_(options.skip_special),
      first_(options.at_start && tokenizer.decoder().first_differs()),
      lead_strip_(options.at_start ? tokenizer.decoder().lead_strip().count : 0) {}

void Detokenizer::add_bytes(std::string_view bytes, std::string& text) {
  if (lead_strip_ > 0 && !bytes.empty()) {
    const std::string_view content = tokenizer_.decoder().lead_strip().content;
    while (lead_strip_ > 0 && bytes.starts_with(content)) {
      bytes.remove_prefix(content.size());
      --lead_strip_;
    }
    if (!bytes.empty()) lead_strip_ = 0;
  }
  stream_.add(bytes, text);
}

void Detokenizer::add(int id, std::string& text) {
  if (skip_special_ && tokenizer_.is_special(id)) return;
  if (first_) {
    if (tokenizer_.id_to_token(id).empty()) return;
    first_ = false;
    add_bytes(tokenizer_.first_bytes(id), text);
  } else {
    add_bytes(tokenizer_.id_to_bytes(id), text);
  }
}

void Detokenizer::finish(std::string& text) { stream_.flush(text); }

}  // namespace strata
