// strata: run, serve, eval, bench, inspect models from the command line.
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"

int main(int argc, char** argv) {
  using namespace strata;
  CLI::App app("Strata: an inference engine for hybrid language models", "strata");
  app.require_subcommand(1);
  app.set_config("--config", "", "Read flags from a file (TOML or INI); the command line wins");
  bool verbose = false;
  app.add_flag("--verbose,-v", verbose, "Log what is loaded and done");

  const Command commands[] = {add_run_command(app), add_serve_command(app), add_eval_command(app), add_inspect_command(app), add_bench_command(app),
                              add_quantize_command(app), add_peer_command(app), add_tokenize_command(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  log::setup(verbose ? spdlog::level::info : spdlog::level::warn);
  try {
    for (const Command& c : commands) {
      if (c.app->parsed()) return c.run();
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "strata: %s\n", e.what());
    return 1;
  }
  return 2;
}
