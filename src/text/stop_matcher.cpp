#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace strata {
namespace {

std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> border(text.size() + 1, 0);
  for (size_t n = 2; n <= text.size(); ++n) {
    size_t length = border[n - 1];
    while (length > 0 && text[length] != text[n - 1]) length = border[length];
    border[n] = text[length] == text[n - 1] ? length + 1 : 0;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({std::move(stop), std::move(border)});
  }
}

bool StopMatcher::add(char byte) {
  bool stopped = false;
  held_ = 0;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    if (pattern.text.empty()) continue;
    if (pattern.matched == pattern.text.size()) pattern.matched = pattern.border[pattern.matched];
    while (pattern.matched > 0 && pattern.text[pattern.matched] != byte)
      pattern.matched = pattern.border[pattern.matched];
    if (pattern.text[pattern.matched] == byte) ++pattern.matched;
    held_ = std::max(held_, pattern.matched);
    if (pattern.matched < pattern.text.size()) continue;
    if (!stopped || pattern.text.size() > patterns_[found_].text.size()) found_ = i;
    stopped = true;
  }
  return stopped;
}

}  // namespace strata
