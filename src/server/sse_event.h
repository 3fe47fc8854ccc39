// The text of a server-sent event (WHATWG HTML, section 9.2).
#pragma once

#include <string>
#include <string_view>

namespace strata {

// One event. The data may hold line breaks of any kind: every line gets its "data: ".
std::string sse_event(std::string_view data, std::string_view event = {});

}  // namespace strata
