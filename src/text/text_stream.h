// The text of a generation as it is sent out: detokenized, and cut at the first stop string.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace strata {

struct TextStreamOptions {
  DetokenizeOptions detokenize;
  std::vector<std::string> stops;
  bool include_stop = false;  // the stop string itself is part of the text
};

// Text goes out as early as no stop string can begin in it, so a stop string of many tokens neither shows nor
// takes anything else away; the texts appended by all calls together are the same however tokens divide them.
// For one generation and one thread; must not outlive the tokenizer.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, TextStreamOptions options);

  // Takes the next token and appends the text that is now safe to `text`. Returns true when a stop string is
  // complete: the generation is over, later calls add nothing.
  bool add(int id, std::string& text);
  // The generation ended for another reason: appends all that was held back. True if even so a stop string
  // turned up (in the U+FFFD of a character that never got complete).
  bool finish(std::string& text);

  bool stopped() const { return stop_.has_value(); }
  // The stop string that was found, if one was.
  std::optional<std::string_view> stop() const;
  // How many of the tokens, from the first, lie entirely in the text appended so far: their logprobs may be
  // sent. After the end it is the count for usage and logprobs: a token of which a stop string took a part
  // does not count.
  size_t complete_tokens() const { return complete_; }

 private:
  // Looks for stops in what the detokenizer added behind `seen_` and moves on what is safe.
  bool advance(std::string& text, bool at_end);
  void send(size_t end, std::string& text);

  Detokenizer detokenizer_;
  StopMatcher matcher_;
  bool include_stop_;
  std::string held_;         // text not sent yet; begins at byte sent_ of the whole text
  size_t seen_ = 0;          // bytes of held_ that the matcher has read
  size_t sent_ = 0;          // bytes sent
  std::deque<size_t> ends_;  // where the tokens that are not complete end in the whole text
  size_t complete_ = 0;
  std::optional<size_t> stop_;  // index of the stop string that was found
  bool over_ = false;
};

}  // namespace strata
