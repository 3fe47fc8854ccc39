// Decoding with and without drafts side by side: each way keeps an engine of its own at work, and they take
// turns of a fraction of a second, forth and back, so that a machine that gets faster or slower favours none.
// Medians of the turns' rates and of their ratios to "none", with half the width of the ratio's 95 %
// interval.
//   build/cpu/bench/speculation_bench [--concurrency 1,4,16] [--ways none,mtp:auto] [--tasks story,repeat]
//   [--turns 15] [--states]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/engine_fixture.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

struct Options {
  std::vector<int> concurrency = {1, 2, 4, 8, 16, 32};
  std::vector<std::string> ways = {"none", "mtp:auto", "ngram:auto"}, tasks = {"story", "repeat"};
  int turns = 15;
  bool states = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<std::size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}
double median(const std::vector<double>& v) { return quantile(v, 0.5); }
// McGill, Tukey and Larsen 1978, Variations of box plots: the notch of a median.
double notch(const std::vector<double>& v) {
  return 1.57 * (quantile(v, 0.75) - quantile(v, 0.25)) / std::sqrt(static_cast<double>(v.size()));
}

// The prompts of the tasks in the embedded model's evaluation, by turns.
std::vector<std::vector<int>> prompts_of(const std::vector<std::string>& tasks) {
  const std::filesystem::path model = std::filesystem::path(STRATA_SOURCE_DIR) / "models/tiny-hybrid";
  const auto tokenizer = Tokenizer::from_json_file(model / "tokenizer.json");
  const auto chat = ChatTemplate::load(model);
  std::map<std::string, std::vector<std::vector<int>>> by_task;
  std::ifstream in(model / "eval.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto j = nlohmann::ordered_json::parse(line);
    const auto task = j["task"].get<std::string>();
    if (std::find(tasks.begin(), tasks.end(), task) == tasks.end()) continue;
    by_task[task].push_back(
        tokenizer.encode(*chat->render({.messages = j["messages"]}), {.add_special = false}));
  }
  std::vector<std::vector<int>> out;
  for (std::size_t i = 0; out.empty() || i < by_task.begin()->second.size(); ++i) {
    for (const auto& [task, prompts] : by_task) out.push_back(prompts[i % prompts.size()]);
  }
  return out;
}

EngineOptions options_of(const std::string& way, int concurrency) {
  EngineOptions o;
  o.prefix_cache = false;  // the prompts come again and again
  o.max_sequences = concurrency;
  o.max_context = 512;
  o.memory_bytes = std::size_t{512} << 20;  // enough for every way: none is to wait for slots
  const auto colon = way.find(':');
  o.speculate = way.substr(0, colon);
  const std::string drafts = colon == std::string::npos ? "auto" : way.substr(colon + 1);
  o.draft_tokens = drafts == "auto" ? 0 : std::stoi(drafts);
  return o;
}

// An engine that is never idle: for each answer that ends, the next prompt comes in.
class Way {
 public:
  Way(const std::string& name, int concurrency, const std::vector<std::vector<int>>& prompts,
      bool lazy = true)
      : prompts_(prompts), engine_("tiny-hybrid", options(name, concurrency, lazy)) {
    for (int i = 0; i < concurrency; ++i) submit();
  }
  EngineFixture& engine() { return engine_; }

  // Steps until `answers` more are over; tokens a second.
  double turn(int answers) {
    const auto before = engine_.core().metrics().output_tokens;
    const auto start = Clock::now();
    for (int ended = 0; ended < answers;) {
      engine_.step();
      for (; over_ < engine_.answers.size() && engine_.answers[over_].finish != FinishReason::kNone;
           ++over_) {
      }
      int running = 0;
      for (std::size_t i = over_; i < engine_.answers.size(); ++i)
        running += engine_.answers[i].finish == FinishReason::kNone ? 1 : 0;
      for (; running < concurrency_; ++running, ++ended) submit();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return static_cast<double>(engine_.core().metrics().output_tokens - before) / seconds;
  }

 private:
  EngineOptions options(const std::string& name, int concurrency, bool lazy) {
    concurrency_ = concurrency;
    EngineOptions o = options_of(name, concurrency);
    o.lazy_slots = lazy;
    return o;
  }
  void submit() { engine_.submit(greedy(prompts_[next_++ % prompts_.size()], 160)); }

  const std::vector<std::vector<int>>& prompts_;
  int concurrency_ = 0;
  std::size_t next_ = 0, over_ = 0;
  EngineFixture engine_;
};

void compare_rates(const Options& options, const std::vector<std::vector<int>>& prompts) {
  for (const int concurrency : options.concurrency) {
    std::vector<std::unique_ptr<Way>> ways;
    for (const std::string& name : options.ways)
      ways.push_back(std::make_unique<Way>(name, concurrency, prompts));
    std::vector<std::vector<double>> rates(ways.size()), ratios(ways.size());
    for (int turn = 0; turn < options.turns; ++turn) {
      std::vector<double> of_turn(ways.size());
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::size_t at = turn % 2 == 0 ? i : ways.size() - 1 - i;
        of_turn[at] = ways[at]->turn(std::max(4, concurrency));
      }
      for (std::size_t i = 0; i < ways.size(); ++i) {
        rates[i].push_back(of_turn[i]);
        ratios[i].push_back(of_turn[i] / of_turn[0]);
      }
    }
    if (concurrency == options.concurrency.front())
      std::printf(
          "| at once | drafts | tokens/s | ratio | +- | accepted of drafted | drafts a step |\n"
          "|---|---|---|---|---|---|---|\n");
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const EngineMetrics& m = ways[i]->engine().core().metrics();
      std::printf("| %d | %s | %.0f | %.3f | %.3f | %.2f | %.2f |\n", concurrency, options.ways[i].c_str(),
                  median(rates[i]), median(ratios[i]), notch(ratios[i]),
                  m.drafted > 0 ? static_cast<double>(m.accepted) / static_cast<double>(m.drafted) : 0.0,
                  static_cast<double>(m.drafted) / static_cast<double>(m.steps));
    }
    std::fflush(stdout);
  }
}

// Recurrent states a verify step moves, on lazy slots and with a slot for every row.
void compare_states(const std::vector<std::vector<int>>& prompts) {
  const auto specs = test_model("tiny-hybrid").model->states();
  const double state = static_cast<double>(MemoryPools::slot_bytes(specs)) / 1e6,
               row = static_cast<double>(MemoryPools::tape_bytes(specs)) / kTapeRows / 1e6;
  std::printf(
      "one state: %.2f MB; one row on a tape: %.3f MB\n\n| drafts | slots | states read | states written | "
      "MB a sequence and step |\n|---|---|---|---|---|\n",
      state, row);
  for (const int k : {1, 3, 7, 15}) {
    for (const bool lazy : {true, false}) {
      Way way("mtp:" + std::to_string(k), 4, prompts, lazy);
      way.turn(12);
      const EngineMetrics& m = way.engine().core().metrics();
      // Every step of a sequence draws at least one token, and the accepted ones beside it.
      const double steps = static_cast<double>(m.output_tokens - m.accepted);
      const double reads = static_cast<double>(m.state_reads) / steps,
                   writes = static_cast<double>(m.state_writes) / steps;
      const double taped =
          lazy ? static_cast<double>(m.verify_rows + m.accepted) / steps : 0;  // rows written, rows replayed
      std::printf("| %d | %s | %.2f | %.2f | %.2f |\n", k, lazy ? "lazy" : "eager", reads, writes,
                  (reads + writes) * state + taped * row);
    }
  }
}

int run(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--states") {
      o.states = true;
      continue;
    }
    if (i + 1 == argc)
      return std::fprintf(stderr, "%s: a value is missing, or there is no such flag\n", argv[i]), 2;
    const std::string value = argv[++i];
    if (flag == "--concurrency") {
      o.concurrency.clear();
      for (const auto& part : split(value)) o.concurrency.push_back(std::stoi(part));
    } else if (flag == "--ways") {
      o.ways = split(value);
    } else if (flag == "--tasks") {
      o.tasks = split(value);
    } else if (flag == "--turns") {
      o.turns = std::stoi(value);
    } else {
      return std::fprintf(stderr, "%s: no such flag\n", flag.c_str()), 2;
    }
  }
  const auto prompts = prompts_of(o.tasks);
  if (o.states)
    compare_states(prompts);
  else
    compare_rates(o, prompts);
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::run(argc, argv); }
