// A tool call written as {"name": "...", "arguments": {...}}: name and arguments as they arrive.
#include <nlohmann/json.hpp>

#include "text/tool_parser.h"

namespace strata {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Follows the object's outline only: strings, brackets and the outer keys. What is inside the arguments is
// passed on as it stands.
class JsonToolCall final : public ToolCallBody {
 public:
  Status add(char c, std::string& name, std::string& arguments) override {
    switch (state_) {
      case State::kBegin:
        state_ = State::kKey;
        return c == '{' ? Status::kMore : Status::kMalformed;
      case State::kKey:
        if (is_space(c) || c == ',') return Status::kMore;
        if (c == '}') return done(arguments);
        if (c != '"') return Status::kMalformed;
        state_ = State::kInKey;
        token_ = c;
        return Status::kMore;
      case State::kInKey:
        if (!in_string(c)) return Status::kMore;
        state_ = State::kColon;
        key_ = text_of(token_);
        return Status::kMore;
      case State::kColon:
        if (is_space(c)) return Status::kMore;
        state_ = State::kValue;
        return c == ':' ? Status::kMore : Status::kMalformed;
      case State::kValue:
        if (is_space(c)) return Status::kMore;
        token_.clear();
        depth_ = 0;
        kind_ = c == '"' ? Value::kString : c == '{' || c == '[' ? Value::kNested : Value::kScalar;
        state_ = State::kInValue;
        if (kind_ == Value::kScalar && (c == ',' || c == '}' || c == '<')) return Status::kMalformed;
        if (kind_ == Value::kString) {
          token_ = c;
          return Status::kMore;
        }
        return in_value(c, name, arguments);
      case State::kInValue:
        return in_value(c, name, arguments);
    }
    return Status::kMalformed;
  }

  void finish(std::string& arguments) override {
    if (!said_arguments_) arguments += "{}";
  }

 private:
  enum class State : unsigned char { kBegin, kKey, kInKey, kColon, kValue, kInValue };
  enum class Value : unsigned char { kString, kNested, kScalar };

  bool is_arguments() const { return key_ == "arguments" || key_ == "parameters"; }

  // Adds a byte of a string to token_; true when it was the closing quote.
  bool in_string(char c) {
    token_ += c;
    if (std::exchange(escaped_, false)) return false;
    if (c == '\\') escaped_ = true;
    return c == '"';
  }

  static std::string text_of(const std::string& literal) {
    const auto json = nlohmann::json::parse(literal, nullptr, false);
    return json.is_string() ? json.get<std::string>() : std::string();
  }

  Status in_value(char c, std::string& name, std::string& arguments) {
    if (kind_ == Value::kString) {
      if (!in_string(c)) return Status::kMore;
      state_ = State::kKey;
      const std::string text = text_of(token_);
      if (key_ == "name") {
        if (text.empty()) return Status::kMalformed;
        name = text;
      }
      if (is_arguments()) say(text, arguments);
      return Status::kMore;
    }
    if (kind_ == Value::kScalar) {
      if (c != ',' && c != '}' && !is_space(c)) {
        token_ += c;
        return c == '<' ? Status::kMalformed : Status::kMore;
      }
      if (key_ == "name") return Status::kMalformed;
      if (is_arguments() && token_ != "null") say(token_, arguments);
      state_ = State::kKey;
      return c == '}' ? done(arguments) : Status::kMore;
    }
    if (inside_string_) {
      if (in_string(c)) inside_string_ = false;
      token_.clear();
    } else if (c == '"') {
      inside_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
    } else if (c == '<') {  // outside a string nothing in JSON begins so: the closing tag came too early
      return Status::kMalformed;
    }
    if (is_arguments()) say({&c, 1}, arguments);
    if (depth_ == 0) state_ = State::kKey;
    return Status::kMore;
  }

  void say(std::string_view text, std::string& arguments) {
    arguments += text;
    said_arguments_ = said_arguments_ || !text.empty();
  }

  Status done(std::string& arguments) {
    finish(arguments);
    return Status::kDone;
  }

  State state_ = State::kBegin;
  Value kind_ = Value::kScalar;
  std::string token_, key_;
  bool escaped_ = false, inside_string_ = false, said_arguments_ = false;
  int depth_ = 0;
};

}  // namespace

std::unique_ptr<ToolCallBody> make_json_tool_call() { return std::make_unique<JsonToolCall>(); }

}  // namespace strata
