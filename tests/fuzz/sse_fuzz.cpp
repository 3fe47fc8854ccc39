// Any text through the event and chunk writers and back by the rules of their specifications: the same lines
// come out.
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http_wire.h"
#include "server/sse_event.h"

namespace {

// WHATWG HTML 9.2.6, for one event with data lines only.
std::string read_event(std::string_view text) {
  std::string data;
  bool first = true;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) std::abort();
    const auto line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line.empty()) {
      if (!text.empty()) std::abort();  // an empty line ends the event, and there is only one
      return data;
    }
    if (!line.starts_with("data: ") || line.find('\r') != std::string_view::npos) std::abort();
    if (!first) data += '\n';
    data += line.substr(6);
    first = false;
  }
  std::abort();
}

std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (read_event(strata::sse_event(text)) != with_plain_line_ends(text)) std::abort();
  std::string chunk;
  strata::append_chunk(chunk, text);
  if (!text.empty() && (std::stoul(chunk, nullptr, 16) != size || chunk.find(text) == std::string::npos))
    std::abort();
  std::string path, query;
  if (strata::split_target(text, path, query) && (path.empty() || path.size() + query.size() > size))
    std::abort();
  return 0;
}
