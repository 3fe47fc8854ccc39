// strata peer: answers one JSON line for each JSON line, about token ids alone, so that another engine can be compared on the
// same ids in turns (bench/peers).
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/load.h"

namespace strata {
namespace {

using nlohmann::json;

struct Answer {
  std::vector<int> tokens;
  double prompt_logprob = 0;        // sum over the prompt's tokens but the first
  double first = 0, all = 0;        // seconds until the first token, and until the last
};

Answer ask(Engine& engine, std::vector<int> ids, int count, int prompt_logprobs) {
  using Seconds = std::chrono::duration<double>;
  Request request{.prompt = std::move(ids), .sampling = {}, .max_tokens = count};
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.prompt_logprobs = prompt_logprobs;
  const auto start = std::chrono::steady_clock::now();
  Generation generation(engine, std::move(request));
  Answer answer;
  while (true) {
    const auto event = generation.wait(std::chrono::seconds(1));
    if (!event) continue;
    if (answer.tokens.empty() && !event->tokens.empty()) answer.first = Seconds(std::chrono::steady_clock::now() - start).count();
    answer.tokens.insert(answer.tokens.end(), event->tokens.begin(), event->tokens.end());
    for (const TokenLogprob& p : event->prompt_logprobs) answer.prompt_logprob += p.logprob;
    if (event->finish == FinishReason::kError) throw Error("{}", event->error);
    if (event->finish != FinishReason::kNone) break;
  }
  answer.all = Seconds(std::chrono::steady_clock::now() - start).count();
  return answer;
}

json reply(const json& request, Loaded& model) {
  const std::string what = request.at("do");
  if (what == "tokenize") return model.tokenizer->encode(request.at("text").get<std::string>());
  const auto ids = request.at("ids").get<std::vector<int>>();
  if (what == "likelihood") return ask(*model.engine, ids, 1, 0).prompt_logprob;
  const int count = request.at("count");
  if (what == "greedy") return {{"ids", ask(*model.engine, ids, count, -1).tokens}};
  if (what != "speed") throw Error("\"{}\" is none of tokenize, likelihood, greedy, speed", what);
  const Answer a = ask(*model.engine, ids, count + 1, -1);
  return {{"prefill", static_cast<double>(ids.size()) / a.first}, {"decode", count / (a.all - a.first)}};
}

int serve(ModelFlags flags) {
  flags.no_prefix_cache = true;  // the same prompt is measured again and again
  Loaded model = load(flags);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::printf("%s\n", reply(json::parse(line), model).dump().c_str());
    } catch (const json::exception& e) {
      throw Error("not a request: {}", e.what());
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

Command add_peer_command(CLI::App& root) {
  CLI::App* app = root.add_subcommand("peer", "Answer JSON lines about token ids, to be compared with another engine");
  const auto flags = std::make_shared<ModelFlags>();
  add_model_flags(*app, *flags);
  return {app, [flags] { return serve(*flags); }};
}

}  // namespace strata
