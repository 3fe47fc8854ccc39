#include "text/string_format.h"

#include <map>
#include <string>

namespace strata {
namespace {

// RFC 3339. Year 0000 is left out, since many libraries have none; so is the leap second.
std::string date() {
  const std::string year = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
  const std::string leap =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  return "(?:" + year +
         "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
         "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
         leap + "-02-29)";
}
const std::string kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::map<std::string, std::string, std::less<>> make() {
  const std::string host = kLabel + "(?:\\." + kLabel + "){0,7}";
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";
  const std::string path = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*";
  const std::string time = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)";
  const std::string days = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  std::map<std::string, std::string, std::less<>> out{
      {"date", date()},
      {"time", kTime},
      {"date-time", date() + "T" + kTime},
      {"duration", "P(?:" + days + "(?:T" + time + ")?|T" + time + "|[0-9]+W)"},  // RFC 3339, appendix A
      {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"hostname", host},
      {"email", atom + "(?:\\." + atom + "){0,2}@" + kLabel + "(?:\\." + kLabel + "){1,3}"},
      {"ipv4", "(?:" + kByte + "\\.){3}" + kByte},
      {"uri", "[A-Za-z][A-Za-z0-9+.-]*://" + host + "(?::[1-9][0-9]{0,3})?(?:/" + path + ")?(?:\\?" + path +
                  ")?(?:#" + path + ")?"},
  };
  for (auto& [name, pattern] : out) pattern = "^(?:" + pattern + ")$";
  return out;
}

}  // namespace

std::string_view format_pattern(std::string_view format) {
  static const auto patterns = make();
  const auto it = patterns.find(format);
  return it == patterns.end() ? std::string_view{} : it->second;
}

}  // namespace strata
