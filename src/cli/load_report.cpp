#include "cli/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

Json spread(const std::vector<double>& seconds) {
  double sum = 0;
  for (const double s : seconds) sum += s;
  Json out{{"mean", seconds.empty() ? 0 : 1000 * sum / static_cast<double>(seconds.size())}};
  for (const double p : {50., 90., 95., 99., 100.})
    out[p == 100 ? "max" : fmt::format("p{:.0f}", p)] = 1000 * percentile(seconds, p);
  return out;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

Json load_report(const std::vector<RequestTimes>& requests, double seconds, double goal_ttft_ms,
                 double goal_gap_ms) {
  std::vector<double> first, gaps, per_token, total;
  long prompt = 0, cached = 0, output = 0, ok = 0, good = 0, given_up = 0;
  std::map<std::string, int> errors;
  for (const RequestTimes& r : requests) {
    if (!r.ok && !r.given_up) {
      ++errors[r.error];
      continue;
    }
    gaps.insert(gaps.end(), r.gaps.begin(), r.gaps.end());
    if (r.first > 0) first.push_back(r.first);
    if (r.given_up) {
      ++given_up;
      continue;
    }
    ++ok;
    prompt += r.prompt_tokens;
    cached += r.cached_tokens;
    output += r.output_tokens;
    total.push_back(r.total);
    const double each = r.output_tokens > 1 ? (r.total - r.first) / (r.output_tokens - 1) : 0;
    if (r.output_tokens > 1) per_token.push_back(each);
    if (1000 * r.first <= goal_ttft_ms && 1000 * each <= goal_gap_ms) ++good;
  }
  const auto rate = [&](long n) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  Json out{{"requests", requests.size()},
           {"ok", ok},
           {"given_up", given_up},
           {"seconds", seconds},
           {"requests_per_second", rate(ok)},
           {"prompt_tokens", prompt},
           {"cached_tokens", cached},
           {"output_tokens", output},
           {"prompt_tokens_per_second", rate(prompt)},
           {"output_tokens_per_second", rate(output)}};
  out["goodput"] = Json{{"goal_ttft_ms", goal_ttft_ms},
                        {"goal_token_ms", goal_gap_ms},
                        {"good", good},
                        {"requests_per_second", rate(good)}};
  out["ttft_ms"] = spread(first);
  out["inter_token_ms"] = spread(gaps);
  out["per_output_token_ms"] = spread(per_token);
  out["end_to_end_ms"] = spread(total);
  out["errors"] = errors;
  return out;
}

std::string load_table(const Json& r) {
  std::string out = fmt::format(
      "{} of {} requests in {:.2f} s: {:.2f} req/s, {:.0f} prompt tok/s, {:.1f} output tok/s; {} of {} "
      "prompt tokens cached\n",
      r["ok"].get<int>(), r["requests"].get<int>(), r["seconds"].get<double>(),
      r["requests_per_second"].get<double>(), r["prompt_tokens_per_second"].get<double>(),
      r["output_tokens_per_second"].get<double>(), r["cached_tokens"].get<long>(),
      r["prompt_tokens"].get<long>());
  out +=
      fmt::format("goodput {:.2f} req/s ({} within {:.0f} ms to the first token and {:.0f} ms a token)\n\n",
                  r["goodput"]["requests_per_second"].get<double>(), r["goodput"]["good"].get<int>(),
                  r["goodput"]["goal_ttft_ms"].get<double>(), r["goodput"]["goal_token_ms"].get<double>());
  out += fmt::format("{:<20}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p90", "p95", "p99",
                     "max");
  for (const char* row : {"ttft_ms", "inter_token_ms", "per_output_token_ms", "end_to_end_ms"}) {
    const std::string name = row;
    out += fmt::format("{:<20}", name.substr(0, name.size() - 3));
    for (const auto& [key, value] : r[row].items()) out += fmt::format("{:>10.2f}", value.get<double>());
    out += '\n';
  }
  for (const auto& [error, count] : r["errors"].items())
    out += fmt::format("failed {} times: {}\n", count.get<int>(), error);
  return out;
}

}  // namespace strata
