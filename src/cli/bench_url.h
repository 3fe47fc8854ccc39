// strata bench --url: load on a running server, and what its clients see of it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace strata {

struct UrlBenchFlags {
  std::string url;  // empty = this bench was not asked for
  std::string model, api_key, prompts, json_file;
  int requests = 64;
  double rate = 0;      // requests a second (Poisson arrivals); 0 = closed loop
  int concurrency = 8;  // of the closed loop
  int prompt_words = 100, shared_words = 0, output_tokens = 64;
  int prompt_tokens = 0, vocabulary = 1000;  // > 0: prompts of so many ids below `vocabulary`, no text
  double seconds = 0;  // > 0: no request begins after so long, and those that run are given up
  unsigned seed = 1;
  double goal_ttft_ms = 1000, goal_gap_ms = 100;  // a request within both counts as good
};

void add_url_bench_flags(CLI::App& app, UrlBenchFlags& flags);
// Runs the load, prints the table (and writes the JSON); the exit code is 1 when a request failed.
int run_url_bench(const UrlBenchFlags& flags);

}  // namespace strata
