// Finds tool calls in an answer while it streams, and gives their names and arguments out piece by piece.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

struct ToolDelta {
  enum class Kind : unsigned char { kContent, kCallStart, kArguments, kCallEnd };
  Kind kind = Kind::kContent;
  int call = -1;     // index of the call, but for content
  std::string text;  // content; the function's name; a piece of the arguments' JSON text
};

// One call's text between the tags, a byte at a time. Two dialects implement it.
class ToolCallBody {
 public:
  enum class Status : unsigned char { kMore, kDone, kMalformed };
  virtual ~ToolCallBody() = default;
  // Appends what the byte completes: to `name` (whole) and `arguments`.
  virtual Status add(char c, std::string& name, std::string& arguments) = 0;
  // The end came early: what the arguments still need to be said, if anything can be.
  virtual void finish(std::string& arguments) = 0;
};

struct ToolParserOptions {
  bool enabled = true;  // false: everything is content
  // Whether a parameter is a string by its tool's schema; decides how the XML dialect's values become JSON.
  // Unset or "don't know" (-1): a value that is JSON is taken as such, anything else as a string.
  std::function<int(std::string_view function, std::string_view parameter)> is_string;
};

// Understands <tool_call> with {"name": ..., "arguments": ...} inside, and with
// <function=NAME><parameter=KEY>VALUE inside. Deltas joined are the same however the text was cut. White
// space around calls belongs to nothing. What stands in the tags but is no call comes out as content. A value
// for one answer and one thread.
class ToolParser {
 public:
  explicit ToolParser(ToolParserOptions options);

  void add(std::string_view text, std::vector<ToolDelta>& out);
  // The end of the answer. Cut off by a length limit, a tag or a call without a name yet is dropped.
  void finish(bool truncated, std::vector<ToolDelta>& out);
  int calls() const { return calls_; }
  bool in_call() const { return state_ != State::kText; }

 private:
  enum class State : unsigned char { kText, kOpened, kBody, kClosing };
  void add_byte(char c, std::vector<ToolDelta>& out);
  void remember(char c);
  void add_text(char c, std::vector<ToolDelta>& out);
  void add_body(char c, std::vector<ToolDelta>& out);
  void content(std::string_view text, std::vector<ToolDelta>& out);
  void give(ToolDelta::Kind kind, std::string_view text, std::vector<ToolDelta>& out);
  void malformed(std::vector<ToolDelta>& out);
  void end_call(std::vector<ToolDelta>& out);

  ToolParserOptions options_;
  State state_ = State::kText;
  std::string held_;  // text: white space and the beginning of a tag; call: all of it until its name is out
  std::size_t tag_ = 0;  // bytes of the opening tag seen
  std::string tail_;     // the last bytes of a call
  int calls_ = 0;
  bool named_ = false;  // the current call's name is out
  bool after_call_ = false;
  std::unique_ptr<ToolCallBody> body_;
  std::string early_arguments_;  // arguments that came before the name
};

std::unique_ptr<ToolCallBody> make_json_tool_call();
std::unique_ptr<ToolCallBody> make_xml_tool_call(
    std::function<int(std::string_view function, std::string_view parameter)> is_string);

}  // namespace strata
