// Any answer through the thinking and tool-call parsers, whole and cut in two: the same parts come out.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/reasoning_parser.h"
#include "text/tool_parser.h"

namespace {

std::string parse(std::string_view text, std::size_t cut, bool open, bool truncated) {
  strata::ReasoningParser thinking(open);
  strata::ToolParser tools({true, [](std::string_view, std::string_view parameter) {
                              return parameter.size() % 3 == 0 ? 1 : -1;
                            }});
  std::string reasoning, said;
  const auto take = [&](std::string_view content, bool end) {
    std::vector<strata::ToolDelta> deltas;
    tools.add(content, deltas);
    if (end) tools.finish(truncated, deltas);
    for (const auto& d : deltas) {
      const bool joins =
          d.kind == strata::ToolDelta::Kind::kContent || d.kind == strata::ToolDelta::Kind::kArguments;
      const std::string mark = std::string("\x01") + static_cast<char>('a' + static_cast<int>(d.kind));
      if (!joins || said.rfind('\x01') == std::string::npos || said.substr(said.rfind('\x01'), 2) != mark)
        said += mark;
      said += d.text;
    }
  };
  for (const auto piece : {text.substr(0, cut), text.substr(cut)}) {
    std::string content;
    thinking.add(piece, reasoning, content);
    take(content, false);
  }
  std::string content;
  thinking.finish(truncated, reasoning, content);
  take(content, true);
  return reasoning + "\x02" + said;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (text.find_first_of("\x01\x02") != std::string_view::npos) return 0;
  const bool open = data[0] & 1, truncated = data[0] & 2;
  if (parse(text, 0, open, truncated) !=
      parse(text, text.empty() ? 0 : data[1] % text.size(), open, truncated))
    std::abort();
  return 0;
}
