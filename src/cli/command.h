// Command: a subcommand of `strata`, registered with the command line and run when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace strata {

// run() returns the exit code; errors it throws go to stderr, exit 1.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command add_run_command(CLI::App& root);
Command add_serve_command(CLI::App& root);
Command add_eval_command(CLI::App& root);
Command add_inspect_command(CLI::App& root);
Command add_bench_command(CLI::App& root);
Command add_quantize_command(CLI::App& root);
Command add_peer_command(CLI::App& root);
Command add_tokenize_command(CLI::App& root);

}  // namespace strata
