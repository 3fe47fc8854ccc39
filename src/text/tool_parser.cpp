#include "text/tool_parser.h"

#include <utility>

namespace strata {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

ToolParser::ToolParser(ToolParserOptions options) : options_(std::move(options)) {}

void ToolParser::add(std::string_view text, std::vector<ToolDelta>& out) {
  if (!options_.enabled) return content(text, out);
  for (const char c : text) add_byte(c, out);
}

void ToolParser::add_byte(char c, std::vector<ToolDelta>& out) {
  switch (state_) {
    case State::kText:
      return add_text(c, out);
    case State::kOpened:  // the first byte decides the dialect
      held_ += c;
      if (is_space(c)) return;
      if (c == '{') body_ = make_json_tool_call();
      if (c == '<') body_ = make_xml_tool_call(options_.is_string);
      if (!body_) return malformed(out);
      state_ = State::kBody;
      held_.pop_back();
      return add_body(c, out);
    case State::kBody:
      return add_body(c, out);
    case State::kClosing:  // whatever stands between the call and its closing tag is dropped
      remember(c);
      if (tail_ != kClose) return;
      state_ = State::kText;
      after_call_ = true;
  }
}

// The last bytes, as many as the closing tag has.
void ToolParser::remember(char c) {
  if (tail_.size() == kClose.size()) tail_.erase(0, 1);
  tail_ += c;
}

void ToolParser::add_text(char c, std::vector<ToolDelta>& out) {
  if (c == kOpen[tag_]) {
    held_ += c;
    if (++tag_ < kOpen.size()) return;
    tag_ = 0;
    state_ = State::kOpened;
    named_ = false;
    tail_.clear();
    early_arguments_.clear();
    return;
  }
  if (tag_ > 0) {
    tag_ = 0;
    content(std::exchange(held_, {}), out);
    return add_text(c, out);
  }
  held_ += c;
  if (!is_space(c)) content(std::exchange(held_, {}), out);
}

void ToolParser::add_body(char c, std::vector<ToolDelta>& out) {
  if (!named_) held_ += c;
  remember(c);
  std::string name, arguments;
  const auto status = body_->add(c, name, arguments);
  if (!name.empty()) {
    named_ = true;
    held_.clear();
    give(ToolDelta::Kind::kCallStart, name, out);
    give(ToolDelta::Kind::kArguments, std::exchange(early_arguments_, {}), out);
  }
  if (named_) give(ToolDelta::Kind::kArguments, arguments, out);
  if (!named_) early_arguments_ += arguments;
  if (status == ToolCallBody::Status::kMore) return;
  if (!named_) return malformed(out);
  end_call(out);
  state_ = State::kClosing;
}

// What was taken for a call is text after all.
void ToolParser::malformed(std::vector<ToolDelta>& out) {
  body_.reset();
  state_ = State::kText;
  content(std::exchange(held_, {}), out);
}

void ToolParser::end_call(std::vector<ToolDelta>& out) {
  body_.reset();
  give(ToolDelta::Kind::kCallEnd, {}, out);
  ++calls_;
}

void ToolParser::content(std::string_view text, std::vector<ToolDelta>& out) {
  if (after_call_) {  // white space after a call belongs to nothing
    const auto first = text.find_first_not_of(" \n\t\r");
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    after_call_ = false;
  }
  give(ToolDelta::Kind::kContent, text, out);
}

void ToolParser::give(ToolDelta::Kind kind, std::string_view text, std::vector<ToolDelta>& out) {
  const bool appendable = kind == ToolDelta::Kind::kContent || kind == ToolDelta::Kind::kArguments;
  if (appendable && text.empty()) return;
  if (appendable && !out.empty() && out.back().kind == kind) {
    out.back().text += text;
    return;
  }
  out.push_back({kind, kind == ToolDelta::Kind::kContent ? -1 : calls_, std::string(text)});
}

void ToolParser::finish(bool truncated, std::vector<ToolDelta>& out) {
  switch (state_) {
    case State::kText:
      if (truncated && tag_ > 0) held_.clear();
      content(held_, out);
      break;
    case State::kOpened:
      if (!truncated) content(held_, out);
      break;
    case State::kBody:
      if (named_) {
        std::string arguments;
        if (!truncated) body_->finish(arguments);
        give(ToolDelta::Kind::kArguments, arguments, out);
        end_call(out);
      } else if (!truncated) {
        content(held_, out);
      }
      break;
    case State::kClosing:
      break;
  }
  held_.clear();
  tag_ = 0;
  state_ = State::kText;
}

}  // namespace strata
