// What the clients of a load saw: times of every request, summed up as percentiles.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace strata {

// Seconds from the request's arrival (when it should have been sent, so a late client does not hide a slow
// server).
struct RequestTimes {
  bool begun = false, ok = false;
  bool given_up = false;  // it ran when the load's time was over; first and gaps count
  std::string error;
  double first = 0;          // to the first token; 0: none came
  double total = 0;          // to the end
  std::vector<double> gaps;  // between pieces of text
  int prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
};

// The value below which `percent` % of the values lie (nearest rank); 0 of none.
double percentile(std::vector<double> values, double percent);

// Everything about a run of `seconds`; times in milliseconds. Good requests have first <= goal_ttft_ms and
// every token in goal_gap_ms on average.
nlohmann::ordered_json load_report(const std::vector<RequestTimes>& requests, double seconds,
                                   double goal_ttft_ms, double goal_gap_ms);
std::string load_table(const nlohmann::ordered_json& report);

}  // namespace strata
