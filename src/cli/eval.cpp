// strata eval: conversations with known answers, run greedily; the accuracy of each task and the share equal to the reference.
#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/load.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

struct EvalFlags {
  ModelFlags model;
  std::string cases;
  bool json = false;
  int chunk = 0, batch = 1, max_tokens = 160, limit = 0;
};

struct Case {
  std::string task, want;
  std::optional<std::string> reference;   // the answer of the reference implementation
  std::vector<int> prompt;
  std::string answer;
  Usage usage;
};

// Templates take tools beside the messages; the files keep them in the system message.
ChatTemplate::Request chat_request(const ordered_json& messages) {
  ChatTemplate::Request r{.messages = messages};
  for (auto& m : r.messages) {
    if (m.contains("tools")) {
      r.tools = m["tools"];
      m.erase("tools");
    }
  }
  return r;
}

std::vector<Case> read_cases(const std::string& path, const Loaded& model) {
  std::ifstream in(path);
  if (!in) throw Error("{}: cannot be read", path);
  if (!model.chat_template) throw Error("{}: the model has no chat template to render the cases with", path);
  std::vector<Case> cases;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const auto where = [&] { return fmt::format("{}:{}", path, number); };
    try {
      const auto j = ordered_json::parse(line);
      Case c{.task = j.at("task"), .want = j.at("want"), .reference = {}, .prompt = {}, .answer = {}, .usage = {}};
      if (j.contains("got")) c.reference = j["got"].get<std::string>();
      const auto prompt = model.chat_template->render(chat_request(j.at("messages")));
      if (!prompt) throw Error("{}: {}", where(), prompt.error().message);
      c.prompt = model.tokenizer->encode(*prompt, {.add_special = false});
      if (j.contains("prompt_tokens") && j["prompt_tokens"] != static_cast<int>(c.prompt.size())) {
        throw Error("{}: the prompt has {} tokens, the reference's had {}", where(), c.prompt.size(), j["prompt_tokens"].get<int>());
      }
      cases.push_back(std::move(c));
    } catch (const ordered_json::exception& e) {
      throw Error("{}: {}", where(), e.what());
    }
  }
  return cases;
}

// At most `batch` cases run at once; the next starts when one ends.
void answer_all(std::vector<Case>& cases, Loaded& model, const EvalFlags& f) {
  std::vector<std::pair<std::size_t, std::unique_ptr<Generation>>> running;
  std::vector<std::vector<int>> tokens(cases.size());
  std::size_t next = 0;
  while (next < cases.size() || !running.empty()) {
    while (next < cases.size() && static_cast<int>(running.size()) < f.batch) {
      Request r;
      r.prompt = cases[next].prompt;
      r.adapter = model.adapter;
      r.max_tokens = f.max_tokens;
      r.sampling.temperature = 0;
      running.emplace_back(next++, std::make_unique<Generation>(*model.engine, std::move(r)));
    }
    for (auto& [i, generation] : running) {
      const auto event = generation->wait(std::chrono::milliseconds(running.size() == 1 ? 50 : 1));
      if (!event) continue;
      tokens[i].insert(tokens[i].end(), event->tokens.begin(), event->tokens.end());
      if (event->finish == FinishReason::kNone) continue;
      if (event->finish == FinishReason::kError) throw Error("case {}: {}", i + 1, event->error);
      if (event->finish == FinishReason::kStop) tokens[i].pop_back();  // the end token
      cases[i].usage = event->usage;
      cases[i].answer = model.tokenizer->decode(tokens[i], false);
      generation.reset();
    }
    std::erase_if(running, [](const auto& r) { return r.second == nullptr; });
  }
}

std::string sha256(const std::string& bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr) != 1) throw Error("SHA-256 failed");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string trimmed(const std::string& s) {
  const auto begin = s.find_first_not_of(" \t\n\r"), end = s.find_last_not_of(" \t\n\r");
  return begin == std::string::npos ? "" : s.substr(begin, end - begin + 1);
}

ordered_json summary(const std::vector<Case>& cases, double seconds, const EngineMetrics& metrics) {
  std::map<std::string, std::pair<int, int>> tasks;  // right, all
  std::vector<std::string> order;
  int same = 0, known = 0;
  std::int64_t prompt = 0, output = 0, drafted = 0, accepted = 0;
  std::string answers;  // each with a line feed after it, in file order
  for (const Case& c : cases) {
    if (!tasks.contains(c.task)) order.push_back(c.task);
    auto& [right, all] = tasks[c.task];
    right += trimmed(c.answer) == trimmed(c.want) ? 1 : 0;
    ++all;
    if (c.reference) {
      ++known;
      same += c.answer == *c.reference ? 1 : 0;
    }
    prompt += c.usage.prompt_tokens;
    output += c.usage.output_tokens;
    drafted += c.usage.drafted_tokens;
    accepted += c.usage.accepted_tokens;
    answers += c.answer + "\n";
  }
  ordered_json out;
  for (const std::string& t : order) out["accuracy"][t] = static_cast<double>(tasks[t].first) / tasks[t].second;
  out["same_as_reference"] = known > 0 ? static_cast<double>(same) / known : 0.0;
  out["answers_sha256"] = sha256(answers);
  out["cases"] = cases.size();
  out["prompt_tokens"] = prompt;
  out["output_tokens"] = output;
  out["seconds"] = seconds;
  if (drafted > 0) {
    out["drafted"] = drafted;
    out["accepted"] = accepted;
    out["verify_steps"] = metrics.verify_steps;
    std::map<std::string, std::array<std::int64_t, 2>> by_task;  // accepted drafts, verify steps
    for (const Case& c : cases) {
      by_task[c.task][0] += c.usage.accepted_tokens;
      by_task[c.task][1] += c.usage.verify_steps;
    }
    for (const std::string& t : order) {
      out["accepted_per_verify_step"][t] = by_task[t][1] > 0 ? static_cast<double>(by_task[t][0]) / static_cast<double>(by_task[t][1]) : 0.0;
    }
  }
  return out;
}

int eval(EvalFlags& f) {
  if (f.chunk > 0) f.model.max_batch_tokens = f.chunk;
  f.model.engine.max_sequences = f.batch;
  Loaded model = load(f.model);
  std::vector<Case> cases = read_cases(f.cases, model);
  if (f.limit > 0 && static_cast<std::size_t>(f.limit) < cases.size()) cases.resize(static_cast<std::size_t>(f.limit));
  const auto started = Clock::now();
  answer_all(cases, model, f);
  const auto result = summary(cases, std::chrono::duration<double>(Clock::now() - started).count(), model.engine->metrics());
  if (f.json) {
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  for (const auto& [task, share] : result["accuracy"].items()) std::printf("%-12s %.3f\n", task.c_str(), share.get<double>());
  for (const auto& [key, value] : result.items()) {
    if (key != "accuracy") std::printf("%s: %s\n", key.c_str(), value.dump().c_str());
  }
  return 0;
}

}  // namespace

Command add_eval_command(CLI::App& root) {
  auto* app = root.add_subcommand("eval", "Run conversations with known answers and score them");
  auto f = std::make_shared<EvalFlags>();
  add_model_flags(*app, f->model);
  add_lora_flag(*app, f->model);
  app->add_option("--cases", f->cases, "JSON lines: task, messages, want, and the reference's answer as got")->required();
  app->add_flag("--json", f->json, "Print one JSON object");
  app->add_option("--chunk", f->chunk, "Rows of a step at most: prompts are computed in chunks of this size")->check(CLI::PositiveNumber);
  app->add_option("--batch", f->batch, "Conversations at once")->check(CLI::Range(1, 4096));
  app->add_option("--max-tokens", f->max_tokens, "Tokens of an answer at most")->check(CLI::PositiveNumber);
  app->add_option("--limit", f->limit, "Only the first so many cases")->check(CLI::PositiveNumber);
  return {app, [f] { return eval(*f); }};
}

}  // namespace strata
