#include "cli/bench_url.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "cli/http_client.h"
#include "cli/load_report.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;
using Now = std::chrono::steady_clock;

double since(Now::time_point start) { return std::chrono::duration<double>(Now::now() - start).count(); }

// Requests' bodies: conversations from a file, words drawn from a fixed list (the first ones shared by
// all), or token ids.
class Workload {
 public:
  explicit Workload(const UrlBenchFlags& flags) : flags_(flags) {
    if (flags_.prompts.empty()) return;
    std::ifstream file(flags_.prompts);
    if (!file) throw Error("cannot read {}", flags_.prompts);
    for (std::string line; std::getline(file, line);) {
      if (line.empty()) continue;
      const Json item = Json::parse(line, nullptr, false);
      if (!item.is_object() || !item.contains("messages"))
        throw Error("{}: every line must be an object with messages", flags_.prompts);
      conversations_.push_back(item["messages"]);
    }
    if (conversations_.empty()) throw Error("{} holds no conversation", flags_.prompts);
  }

  std::string body(int index) const {
    Json out = Json::object();
    if (!flags_.model.empty()) out["model"] = flags_.model;
    if (flags_.prompt_tokens > 0) {
      std::mt19937 random(flags_.seed + 1 + static_cast<unsigned>(index));
      Json& prompt = out["prompt"] = Json::array();
      for (int i = 0; i < flags_.prompt_tokens; ++i)
        prompt.push_back(random() % static_cast<unsigned>(flags_.vocabulary));
      out["ignore_eos"] = true;
    } else if (conversations_.empty()) {
      const std::string shared = words(flags_.seed, flags_.shared_words);
      const std::string own =
          words(flags_.seed + 1 + static_cast<unsigned>(index), flags_.prompt_words - flags_.shared_words);
      out["messages"] = Json::array({{{"role", "user"}, {"content", shared + own}}});
      out["ignore_eos"] = true;
    } else {
      out["messages"] = conversations_[static_cast<std::size_t>(index) % conversations_.size()];
    }
    out["max_tokens"] = flags_.output_tokens;
    out["temperature"] = 0;
    out["stream"] = true;
    out["stream_options"] = {{"include_usage", true}};
    return out.dump();
  }

  const char* path() const { return flags_.prompt_tokens > 0 ? "/v1/completions" : "/v1/chat/completions"; }

 private:
  static std::string words(unsigned seed, int count) {
    static constexpr const char* kWords[] = {"the",   "room",  "of",    "number", "is",    "river",
                                             "and",   "seven", "stone", "under",  "green", "book",
                                             "walks", "to",    "a",     "far"};
    std::mt19937 random(seed);
    std::string out;
    for (int i = 0; i < count; ++i) (out += kWords[random() % std::size(kWords)]) += ' ';
    return out;
  }

  const UrlBenchFlags& flags_;
  std::vector<Json> conversations_;
};

// Times a stream's pieces of text as they arrive.
class StreamTimer {
 public:
  StreamTimer(Now::time_point due, RequestTimes& times) : due_(due), times_(times) {}

  void take(std::string_view piece) {
    buffer_ += piece;
    for (std::size_t end = 0; (end = buffer_.find("\n\n")) != std::string::npos; buffer_.erase(0, end + 2)) {
      if (!buffer_.starts_with("data: {")) continue;
      event(Json::parse(std::string_view(buffer_).substr(6, end - 6), nullptr, false));
    }
  }

 private:
  static bool has_text(const Json& choice) {
    if (!choice.contains("delta")) return !choice.value("text", "").empty();
    const Json& delta = choice["delta"];
    return !delta.value("content", "").empty() || !delta.value("reasoning_content", "").empty() ||
           delta.contains("tool_calls");
  }

  void event(const Json& event) {
    if (!event.is_object()) return;
    if (event.contains("error")) times_.error = event["error"].value("message", "error in the stream");
    if (event.contains("choices") && !event["choices"].empty()) {
      if (has_text(event["choices"][0])) {
        const double now = since(due_);
        if (last_ < 0)
          times_.first = now;
        else
          times_.gaps.push_back(now - last_);
        last_ = now;
      }
    }
    if (!event.contains("usage") || !event["usage"].is_object()) return;
    const Json& usage = event["usage"];
    times_.prompt_tokens = usage.value("prompt_tokens", 0);
    times_.output_tokens = usage.value("completion_tokens", 0);
    if (usage.contains("prompt_tokens_details") && usage["prompt_tokens_details"].is_object())
      times_.cached_tokens = usage["prompt_tokens_details"].value("cached_tokens", 0);
  }

  Now::time_point due_;
  RequestTimes& times_;
  std::string buffer_;
  double last_ = -1;
};

// What all clients of a load share.
struct Load {
  const UrlBenchFlags& flags;
  const Workload& workload;
  Now::time_point start = Now::now();
  std::optional<Now::time_point> end = {};

  bool over() const { return end && Now::now() >= *end; }
};

RequestTimes run_one(HttpClient& client, const Load& load, int index, Now::time_point due) {
  RequestTimes times;
  times.begun = true;
  try {
    StreamTimer timer(due, times);
    const HttpReply reply = client.post(load.workload.path(), load.workload.body(index),
                                        [&](std::string_view piece) { timer.take(piece); });
    times.total = since(due);
    if (reply.status != 200)
      times.error = fmt::format("HTTP {}: {}", reply.status, reply.body.substr(0, 200));
  } catch (const HttpTimeout&) {
    times.given_up = true;
  } catch (const std::exception& e) {
    times.error = e.what();
  }
  times.ok = times.error.empty() && !times.given_up;
  return times;
}

void closed_loop(const Load& load, std::vector<RequestTimes>& results) {
  std::atomic<int> next{0};
  std::vector<std::jthread> clients;
  for (int c = 0; c < load.flags.concurrency; ++c)
    clients.emplace_back([&] {
      HttpClient client(HttpUrl::parse(load.flags.url), load.flags.api_key, load.end);
      for (int i = 0; !load.over() && (i = next++) < load.flags.requests;)
        results[static_cast<std::size_t>(i)] = run_one(client, load, i, Now::now());
    });
}

// Arrivals do not wait for answers: every request has its own thread, and its time runs from when it was due.
void open_loop(const Load& load, std::vector<RequestTimes>& results) {
  std::mt19937 random(load.flags.seed);
  std::exponential_distribution<double> interval(load.flags.rate);
  std::vector<std::jthread> clients;
  auto due = load.start;
  for (int i = 0; i < load.flags.requests && !load.over(); ++i) {
    due += std::chrono::duration_cast<Now::duration>(std::chrono::duration<double>(interval(random)));
    std::this_thread::sleep_until(due);
    clients.emplace_back([&, i, due] {
      HttpClient client(HttpUrl::parse(load.flags.url), load.flags.api_key, load.end);
      results[static_cast<std::size_t>(i)] = run_one(client, load, i, due);
    });
  }
}

}  // namespace

void add_url_bench_flags(CLI::App& app, UrlBenchFlags& f) {
  const std::string group = "Load on a server (--url)";
  app.add_option("--url", f.url, "Measure the server at this address, such as http://127.0.0.1:8000")
      ->group(group);
  app.add_option("--requests", f.requests, "Requests to send")->check(CLI::Range(1, 1'000'000))->group(group);
  app.add_option("--rate", f.rate,
                 "Open loop: requests a second, arriving at random; without it a closed loop")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--concurrency", f.concurrency, "Closed loop: requests in flight")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  app.add_option("--request-model", f.model, "The model to ask for (default: the server's first)")
      ->group(group);
  app.add_option("--api-key", f.api_key, "Key to send")->group(group);
  app.add_option("--prompts", f.prompts, "Conversations to send: a file of lines {\"messages\": [...]}")
      ->check(CLI::ExistingFile)
      ->group(group);
  app.add_option("--prompt-words", f.prompt_words, "Words of a made-up prompt")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  app.add_option("--shared-words", f.shared_words, "Of those, at the beginning and the same in every prompt")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
  app.add_option("--prompt-tokens", f.prompt_tokens,
                 "Prompts of so many token ids drawn at random, by /v1/completions, instead of words")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  app.add_option("--vocabulary", f.vocabulary, "With --prompt-tokens: ids are below this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--seconds", f.seconds,
                 "Begin no request after so long and give up those that run; they are not in the rates")
      ->check(CLI::PositiveNumber)
      ->group(group);
  app.add_option("--output-tokens", f.output_tokens, "Tokens to ask for")
      ->check(CLI::Range(1, 1'000'000))
      ->group(group);
  app.add_option("--goal-ttft-ms", f.goal_ttft_ms, "Goodput: time to the first token at most")->group(group);
  app.add_option("--goal-token-ms", f.goal_gap_ms, "Goodput: time a token at most, on average")->group(group);
  app.add_option("--load-seed", f.seed, "Seed of prompts and arrivals")->group(group);
  app.add_option("--json-file", f.json_file, "Write the report as JSON too")->group(group);
}

int run_url_bench(const UrlBenchFlags& flags) {
  if (flags.shared_words > flags.prompt_words)
    throw Error("--shared-words {} exceed --prompt-words {}", flags.shared_words, flags.prompt_words);
  const Workload workload(flags);
  std::vector<RequestTimes> results(static_cast<std::size_t>(flags.requests));
  Load load{.flags = flags, .workload = workload};
  if (flags.seconds > 0)
    load.end =
        load.start + std::chrono::duration_cast<Now::duration>(std::chrono::duration<double>(flags.seconds));
  if (flags.rate > 0)
    open_loop(load, results);
  else
    closed_loop(load, results);
  const double seconds = since(load.start);
  std::erase_if(results, [](const RequestTimes& r) { return !r.begun; });
  const Json report = load_report(results, seconds, flags.goal_ttft_ms, flags.goal_gap_ms);
  std::fputs(load_table(report).c_str(), stdout);
  if (!flags.json_file.empty()) {
    std::ofstream file(flags.json_file);
    file << report.dump(1) << '\n';
    if (!file) throw Error("cannot write {}", flags.json_file);
  }
  return report["errors"].empty() ? 0 : 1;
}

}  // namespace strata
