// Token ids to text, one token at a time.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace strata {

struct DetokenizeOptions {
  bool skip_special = true;  // special tokens add no text
  // The tokens start a text, where SentencePiece tokenizers drop a leading space; false to go on after a
  // text.
  bool at_start = true;
};

// Feeds out valid UTF-8 as soon as whole characters are there: the concatenation of what it appends is the
// same however tokens divide the bytes. Bytes that are no character become U+FFFD, one for each maximal
// ill-formed part. For one text and one thread; must not outlive the tokenizer.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizeOptions options = {});

  // Appends to `text` what the token completes. An id that does not exist adds nothing.
  void add(int id, std::string& text);
  // The end: appends what was held back.
  void finish(std::string& text);
  // Whether part of a character is held back.
  bool pending() const { return stream_.pending(); }

 private:
  void add_bytes(std::string_view bytes, std::string& text);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  bool first_;      // no token has added to the text yet
  int lead_strip_;  // characters that may still be dropped at the start
  Utf8Stream stream_;
};

}  // namespace strata
