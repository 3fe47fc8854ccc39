// A tool call written as <function=NAME><parameter=KEY>VALUE</parameter>...</function>: its arguments as
// JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/tool_parser.h"

namespace strata {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kEndParameter = "\n</parameter>";
constexpr std::string_view kEndParameterInline = "</parameter>";
constexpr std::string_view kEndFunction = "</function>";

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Escapes byte by byte, so that a character may arrive in parts.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
}

// A value is what stands between the tags less one line break at either side, as these models' templates
// write it.
class XmlToolCall final : public ToolCallBody {
 public:
  explicit XmlToolCall(std::function<int(std::string_view, std::string_view)> is_string)
      : is_string_(std::move(is_string)) {}

  Status add(char c, std::string& name, std::string& arguments) override {
    switch (state_) {
      case State::kBegin:
        token_ += c;
        if (!kFunction.starts_with(token_)) return Status::kMalformed;
        if (token_ == kFunction) next(State::kName);
        return Status::kMore;
      case State::kName:
        if (c != '>') {
          token_ += c;
          return is_space(c) || c == '<' ? Status::kMalformed : Status::kMore;
        }
        if (token_.empty()) return Status::kMalformed;
        name = function_ = token_;
        arguments += '{';
        next(State::kBetween);
        return Status::kMore;
      case State::kBetween:
        if (token_.empty() && is_space(c)) return Status::kMore;
        token_ += c;
        if (token_ == kParameter) next(State::kKey);
        if (token_ == kEndFunction) {
          arguments += '}';
          return Status::kDone;
        }
        return kParameter.starts_with(token_) || kEndFunction.starts_with(token_) ? Status::kMore
                                                                                  : malformed(arguments);
      case State::kKey:
        if (c != '>') {
          token_ += c;
          return Status::kMore;
        }
        begin_value(arguments);
        return Status::kMore;
      case State::kValue:
        value_byte(c, arguments);
        return Status::kMore;
    }
    return Status::kMalformed;
  }

  void finish(std::string& arguments) override {
    if (state_ == State::kValue) end_value(arguments);
    if (state_ != State::kBegin && state_ != State::kName) arguments += '}';
  }

 private:
  enum class State : unsigned char { kBegin, kName, kBetween, kKey, kValue };

  void next(State state) {
    state_ = state;
    token_.clear();
  }
  Status malformed(std::string& arguments) {
    arguments += '}';
    return Status::kMalformed;
  }

  void begin_value(std::string& arguments) {
    if (parameters_++ > 0) arguments += ", ";
    arguments += '"';
    append_escaped(arguments, token_);
    arguments += "\": ";
    string_ = is_string_ ? is_string_(function_, token_) : -1;
    if (string_ == 1) arguments += '"';
    next(State::kValue);
    value_.clear();
    first_ = true;
  }

  // Keeps what may be the closing tag in token_; the rest is the value.
  void value_byte(char c, std::string& arguments) {
    if (std::exchange(first_, false) && c == '\n') return;
    token_ += c;
    while (!token_.empty() && !kEndParameter.starts_with(token_) &&
           !kEndParameterInline.starts_with(token_)) {
      say_value(token_.substr(0, 1), arguments);
      token_.erase(0, 1);
    }
    if (token_ != kEndParameter && token_ != kEndParameterInline) return;
    token_.clear();
    end_value(arguments);
    next(State::kBetween);
  }

  void say_value(std::string_view text, std::string& arguments) {
    if (string_ == 1) return append_escaped(arguments, text);
    value_ += text;
  }

  void end_value(std::string& arguments) {
    say_value(token_, arguments);
    token_.clear();
    if (string_ == 1) {
      arguments += '"';
    } else if (nlohmann::json::accept(value_)) {
      arguments += value_;
    } else {
      arguments += '"';
      append_escaped(arguments, value_);
      arguments += '"';
    }
  }

  std::function<int(std::string_view, std::string_view)> is_string_;
  State state_ = State::kBegin;
  std::string token_, function_, value_;
  int parameters_ = 0, string_ = -1;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<ToolCallBody> make_xml_tool_call(
    std::function<int(std::string_view, std::string_view)> is_string) {
  return std::make_unique<XmlToolCall>(std::move(is_string));
}

}  // namespace strata
