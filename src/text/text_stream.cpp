#include "text/text_stream.h"

#include <utility>

namespace strata {

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : detokenizer_(tokenizer, options.detokenize),
      matcher_(std::move(options.stops)),
      include_stop_(options.include_stop) {}

std::optional<std::string_view> TextStream::stop() const {
  return stop_ ? std::optional<std::string_view>(matcher_.stop(*stop_)) : std::nullopt;
}

bool TextStream::add(int id, std::string& text) {
  if (over_) return stopped();
  detokenizer_.add(id, held_);
  // A token that leaves a character unfinished ends inside it, so not before that character is out.
  ends_.push_back(sent_ + held_.size() + (detokenizer_.pending() ? 1 : 0));
  return advance(text, false);
}

bool TextStream::finish(std::string& text) {
  if (over_) return stopped();
  detokenizer_.finish(held_);
  return advance(text, true);
}

bool TextStream::advance(std::string& text, bool at_end) {
  while (seen_ < held_.size()) {
    if (!matcher_.add(held_[seen_++])) continue;
    stop_ = matcher_.found();
    over_ = true;
    send(include_stop_ ? seen_ : seen_ - matcher_.stop(*stop_).size(), text);
    held_.clear();
    return true;
  }
  over_ = at_end;
  send(at_end ? held_.size() : held_.size() - matcher_.held(), text);
  return false;
}

void TextStream::send(size_t end, std::string& text) {
  text.append(held_, 0, end);
  held_.erase(0, end);
  seen_ -= end;
  sent_ += end;
  while (!ends_.empty() && ends_.front() <= sent_) {
    ends_.pop_front();
    ++complete_;
  }
}

}  // namespace strata
