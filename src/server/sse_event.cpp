#include "server/sse_event.h"

namespace strata {

std::string sse_event(std::string_view data, std::string_view event) {
  std::string out;
  if (!event.empty()) ((out += "event: ") += event) += '\n';
  for (;;) {
    const auto line = data.substr(0, data.find_first_of("\r\n"));
    ((out += "data: ") += line) += '\n';
    if (line.size() == data.size()) break;
    const bool both =
        data[line.size()] == '\r' && line.size() + 1 < data.size() && data[line.size() + 1] == '\n';
    data.remove_prefix(line.size() + (both ? 2 : 1));
  }
  return out += '\n';
}

}  // namespace strata
