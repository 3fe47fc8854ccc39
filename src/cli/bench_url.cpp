#include "cli/bench_url.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <mutex>
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

// Requests' bodies: conversations from a file, or words drawn from a fixed list (the first ones shared by
// all).
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
    if (conversations_.empty()) {
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
  void event(const Json& event) {
    if (!event.is_object()) return;
    if (event.contains("error")) times_.error = event["error"].value("message", "error in the stream");
    if (event.contains("choices") && !event["choices"].empty()) {
      const Json& delta = event["choices"][0]["delta"];
      const bool text = !delta.value("content", "").empty() ||
                        !delta.value("reasoning_content", "").empty() || delta.contains("tool_calls");
      if (text) {
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

RequestTimes run_one(HttpClient& client, const std::string& body, Now::time_point due) {
  RequestTimes times;
  try {
    StreamTimer timer(due, times);
    const HttpReply reply =
        client.post("/v1/chat/completions", body, [&](std::string_view piece) { timer.take(piece); });
    times.total = since(due);
    if (reply.status != 200)
      times.error = fmt::format("HTTP {}: {}", reply.status, reply.body.substr(0, 200));
  } catch (const std::exception& e) {
    times.error = e.what();
  }
  times.ok = times.error.empty();
  return times;
}

void closed_loop(const UrlBenchFlags& flags, const Workload& workload, std::vector<RequestTimes>& results) {
  std::atomic<int> next{0};
  std::vector<std::jthread> clients;
  for (int c = 0; c < flags.concurrency; ++c)
    clients.emplace_back([&] {
      HttpClient client(HttpUrl::parse(flags.url), flags.api_key);
      for (int i = 0; (i = next++) < flags.requests;)
        results[static_cast<std::size_t>(i)] = run_one(client, workload.body(i), Now::now());
    });
}

// Arrivals do not wait for answers: every request has its own thread, and its time runs from when it was due.
void open_loop(const UrlBenchFlags& flags, const Workload& workload, std::vector<RequestTimes>& results) {
  std::mt19937 random(flags.seed);
  std::exponential_distribution<double> interval(flags.rate);
  std::vector<std::jthread> clients;
  auto due = Now::now();
  for (int i = 0; i < flags.requests; ++i) {
    due += std::chrono::duration_cast<Now::duration>(std::chrono::duration<double>(interval(random)));
    std::this_thread::sleep_until(due);
    clients.emplace_back([&, i, due] {
      HttpClient client(HttpUrl::parse(flags.url), flags.api_key);
      results[static_cast<std::size_t>(i)] = run_one(client, workload.body(i), due);
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
  const auto start = Now::now();
  if (flags.rate > 0)
    open_loop(flags, workload, results);
  else
    closed_loop(flags, workload, results);
  const Json report = load_report(results, since(start), flags.goal_ttft_ms, flags.goal_gap_ms);
  std::fputs(load_table(report).c_str(), stdout);
  if (!flags.json_file.empty()) {
    std::ofstream file(flags.json_file);
    file << report.dump(1) << '\n';
    if (!file) throw Error("cannot write {}", flags.json_file);
  }
  return report["ok"] == report["requests"] ? 0 : 1;
}

}  // namespace strata
