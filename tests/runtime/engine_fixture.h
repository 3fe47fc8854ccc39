// EngineFixture: a golden model and an engine core driven step by step, for whole-engine tests.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "model/registry.h"
#include "ops/cpu/cpu_ops.h"
#include "runtime/engine_core.h"

namespace strata {

struct TestModel {
  std::shared_ptr<Ops> ops;
  std::shared_ptr<const Model> model;
  ModelInfo info;
};

// `name` is a folder of tests/golden, or "tiny-hybrid". `change`: what the test plants in it.
inline TestModel load_test_model(const std::string& name, std::shared_ptr<Ops> ops, const std::function<void(Model&)>& change = {}) {
  TestModel m;
  const std::filesystem::path source = STRATA_SOURCE_DIR;
  Checkpoint checkpoint = Checkpoint::open(name == "tiny-hybrid" ? source / "models" / name : source / "tests/golden" / name);
  m.ops = std::move(ops);
  auto model = std::make_shared<Model>(load_model(checkpoint, *m.ops));
  if (change) change(*model);
  m.model = std::move(model);
  m.info.name = name;
  m.info.vocab_size = m.model->vocab_size;
  m.info.max_context = m.model->max_context;
  m.info.end_tokens = checkpoint.config().end_tokens();
  return m;
}

inline std::shared_ptr<Ops> cpu_ops(int threads = 2) { return std::make_shared<CpuOps>(CpuOptions{.threads = threads}); }

// On the CPU; loaded once per process.
inline const TestModel& test_model(const std::string& name) {
  static std::map<std::string, TestModel> models;
  TestModel& m = models[name];
  if (!m.model) m = load_test_model(name, cpu_ops());
  return m;
}

struct Answer {
  std::vector<int> tokens;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  Usage usage;
  std::string error;
  bool operator==(const Answer& other) const { return tokens == other.tokens && finish == other.finish; }
};

// Drives the core directly: submit, then run() until all are answered, or step by step.
class EngineFixture {
 public:
  EngineFixture(const TestModel& model, const EngineOptions& options, const DrafterFactory& drafter = {})
      : info_(model.info), core_(model.model, model.ops, info_, small(options), drafter) {}
  EngineFixture(const std::string& model, const EngineOptions& options, const DrafterFactory& drafter = {})
      : EngineFixture(test_model(model), options, drafter) {}

  // -1 when refused (then `error` says why).
  int submit(Request request) {
    auto prepared = core_.prepare(std::move(request));
    if (!prepared) {
      error = prepared.error().message;
      return -1;
    }
    std::unique_ptr<Sequence> s = std::move(*prepared);
    const int id = static_cast<int>(answers.size());
    s->id = static_cast<RequestId>(id);
    s->arrived = Clock::now();
    s->sink = [this, id](Event&& e) {
      Answer& a = answers[static_cast<std::size_t>(id)];
      a.tokens.insert(a.tokens.end(), e.tokens.begin(), e.tokens.end());
      a.logprobs.insert(a.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
      if (!e.prompt_logprobs.empty()) a.prompt_logprobs = e.prompt_logprobs;
      a.finish = e.finish;
      a.usage = e.usage;
      a.error = e.error;
    };
    answers.emplace_back();
    core_.add(std::move(s));
    return id;
  }

  bool step() { return core_.step(); }
  void run() {
    while (core_.step()) {
    }
  }
  Answer solo(const Request& request) {
    const int id = submit(request);
    run();
    return answers.at(static_cast<std::size_t>(id));
  }
  EngineCore& core() { return core_; }

  std::vector<Answer> answers;
  std::string error;

 private:
  static EngineOptions small(EngineOptions o) {
    if (o.max_context == 0) o.max_context = 2048;
    if (o.memory_bytes == EngineOptions{}.memory_bytes) o.memory_bytes = std::size_t{96} << 20;
    return o;
  }
  ModelInfo info_;
  EngineCore core_;
};

// A prompt of n tokens that depends on `seed`; never a token below 2.
inline std::vector<int> test_prompt(int n, int seed, int vocab = 320) {
  std::vector<int> p;
  std::uint32_t x = 2654435761U * static_cast<std::uint32_t>(seed + 1);
  for (int i = 0; i < n; ++i) {
    x = x * 1664525U + 1013904223U;
    p.push_back(2 + static_cast<int>((x >> 8) % static_cast<std::uint32_t>(vocab - 2)));
  }
  return p;
}

inline Request greedy(std::vector<int> prompt, int max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

}  // namespace strata
