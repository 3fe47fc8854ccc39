// Writes HTTP/1.1 heads and chunks as bytes, and reads what a request head says.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "server/http.h"

namespace strata {

std::string_view reason_phrase(int status);

// How the body of an answer ends: after Content-Length bytes, by chunks, or with the connection (HTTP/1.0
// streams).
enum class BodyFraming : unsigned char { kLength, kChunked, kUntilClose };

// Status line and headers of `response`, with the empty line. `length` is the body's size under kLength.
std::string response_head(const HttpResponse& response, BodyFraming framing, std::size_t length,
                          bool keep_alive);

// Appends `data` as one chunk; nothing when it is empty (an empty chunk would end the body).
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string lower_case(std::string_view text);
// Splits a target into path and query and decodes %XX of the path; false when it is not a path.
bool split_target(std::string_view target, std::string& path, std::string& query);

}  // namespace strata
