#include "text/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "text/pattern.h"

namespace strata {
namespace {

constexpr int kIntegerDigits = 18, kFractionDigits = 12;
const std::string kInteger = "(?:0|[1-9][0-9]{0,17})";
const std::string kNone = "[]";  // a class without members: nothing
const std::string kAnyFraction = fmt::format("(?:\\.[0-9]{{1,{}}})?", kFractionDigits);

// A number that is not negative: digits before the point without leading zeros, and after it without trailing
// ones.
struct Decimal {
  std::string whole, fraction;
  bool negative = false;
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Decimal read(const std::string& text) {
  Decimal out;
  std::size_t at = 0;
  if (text.starts_with('-')) {
    out.negative = true;
    at = 1;
  }
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  std::string digits;
  long point = -1;
  for (; at < e; ++at) {
    if (text[at] == '.')
      point = static_cast<long>(digits.size());
    else
      digits += text[at];
  }
  if (point < 0) point = static_cast<long>(digits.size());
  if (e < text.size()) point += std::stol(text.substr(e + 1));
  if (point < -40 || point > 40 || digits.size() > 40)
    throw SchemaError(fmt::format("has the bound {}, which is too large or too fine", text));
  if (point < 0) digits.insert(0, static_cast<std::size_t>(-point), '0');
  point = std::max(point, 0L);
  if (static_cast<std::size_t>(point) > digits.size()) digits.resize(static_cast<std::size_t>(point), '0');
  out.whole = digits.substr(0, static_cast<std::size_t>(point));
  out.fraction = digits.substr(static_cast<std::size_t>(point));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.zero()) out.negative = false;
  return out;
}

std::string digits(std::size_t least, std::size_t most) { return fmt::format("[0-9]{{{},{}}}", least, most); }

std::string range(char low, char high) { return low > high ? kNone : fmt::format("[{}-{}]", low, high); }

// Digit strings as long as `s` that are greater, or less.
std::string beyond(const std::string& s, bool greater) {
  std::string out = kNone;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const std::string step =
        greater ? range(static_cast<char>(s[i] + 1), '9') : range('0', static_cast<char>(s[i] - 1));
    if (step == kNone) continue;
    out += "|" + s.substr(0, i) + step + digits(s.size() - i - 1, s.size() - i - 1);
  }
  return "(?:" + out + ")";
}

// Whole numbers greater, or less, than `s`. Leading zeros are taken out by the caller's intersection.
std::string whole_beyond(const std::string& s, bool greater) {
  const auto n = s.size();
  std::string out = beyond(s, greater);
  if (greater && n < kIntegerDigits) out += "|" + digits(n + 1, kIntegerDigits);
  if (!greater && n > 1) out += "|" + digits(1, n - 1);
  return "(?:" + out + ")";
}

// What may follow the whole part of the bound: fractions that are greater, or less, or (not strict) equal.
std::string fraction_beyond(const std::string& f, bool greater, bool strict) {
  std::string out = kNone;
  for (std::size_t i = 0; i < f.size(); ++i) {
    const std::string step =
        greater ? range(static_cast<char>(f[i] + 1), '9') : range('0', static_cast<char>(f[i] - 1));
    if (step != kNone && i < kFractionDigits)
      out += "|\\." + f.substr(0, i) + step + digits(0, kFractionDigits - i - 1);
    if (!greater && i > 0) out += "|\\." + f.substr(0, i);  // the bound's beginning, which is less
  }
  if (!greater && !f.empty()) out += "|";  // no fraction at all
  const std::string bound = f.empty() ? "" : "\\." + f;
  if (!strict) out += f.empty() ? "|(?:\\.0+)?" : "|" + bound + "0*";
  if (greater) out += (f.empty() ? "|\\." : "|" + bound) + "0*[1-9][0-9]*";
  return "(?:" + out + ")";
}

// Numbers without a sign at least, or at most, the bound's magnitude.
std::string magnitude(const Decimal& bound, bool greater, bool strict) {
  return "(?:" + whole_beyond(bound.whole, greater) + kAnyFraction + "|" + bound.whole +
         fraction_beyond(bound.fraction, greater, strict) + ")";
}

std::string at_bound(const NumberBound& bound, bool low) {
  const Decimal d = read(bound.value);
  const std::string any = kInteger + kAnyFraction;
  if (low) {
    if (!d.negative) return magnitude(d, true, bound.strict);
    return any + "|-" + magnitude(d, false, bound.strict);
  }
  if (d.negative) return "-" + magnitude(d, true, bound.strict);
  const std::string below = magnitude(d, false, bound.strict);
  return d.zero() && bound.strict ? "-" + magnitude(d, true, true) : "-" + any + "|" + below;
}

CharDfa whole_text(const std::string& pattern) {
  std::size_t work = kPatternWork;
  return pattern_dfa("^(?:" + pattern + ")$", work);
}

}  // namespace

CharDfa number_dfa(bool integer, const std::optional<NumberBound>& low,
                   const std::optional<NumberBound>& high) {
  const bool bounded = low || high;
  std::string form = "-?" + kInteger;
  if (!integer) form += bounded ? kAnyFraction : "(?:\\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?";
  CharDfa out = whole_text(form);
  if (low) out = intersect(out, whole_text(at_bound(*low, true)));
  if (high) out = intersect(out, whole_text(at_bound(*high, false)));
  return out;
}

}  // namespace strata
