// A scripted engine: says what the test tells it to, at the pace the test sets, and counts what was asked of
// it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "server/generator.h"

namespace strata::test {

// One thread steps all requests round robin. The destructor aborts what runs.
class FakeEngine final : public Generator {
 public:
  using Script = std::function<std::vector<int>(const Request&)>;

  FakeEngine(ModelInfo info, Script script)
      : info_(std::move(info)), script_(std::move(script)), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  const ModelInfo& info() const override { return info_; }
  bool healthy() const override { return healthy_flag; }
  Result<std::monostate> load_adapter(const std::string& name, const std::filesystem::path& folder, bool replace) override {
    std::lock_guard lock(mutex_);
    if (folder != "good") return bad_request("no adapter there", "lora_path");
    if (!loaded_.insert(name).second && !replace) return bad_request("there is one already", "lora_name");
    return {};
  }
  bool unload_adapter(const std::string& name) override {
    std::lock_guard lock(mutex_);
    return loaded_.erase(name) > 0;
  }
  std::vector<std::string> adapters() const override {
    std::lock_guard lock(mutex_);
    return {loaded_.begin(), loaded_.end()};
  }

  Result<RequestId> submit(Request request, EventSink sink) override {
    if (request.prompt.empty()) return bad_request("the prompt is empty", "prompt");
    if (static_cast<int>(request.prompt.size()) >= info_.max_context)
      return bad_request("the prompt does not fit the context", "prompt");
    std::lock_guard lock(mutex_);
    const RequestId id = ++last_id_;
    Running r;
    r.script = script_(request);
    r.usage.prompt_tokens = static_cast<int>(request.prompt.size());
    r.usage.cached_tokens = cached_tokens;
    r.request = std::move(request);
    r.sink = std::move(sink);
    submitted.push_back(r.request);
    running_.emplace(id, std::move(r));
    wake_.notify_all();
    return id;
  }

  void abort(RequestId id) override {
    std::lock_guard lock(mutex_);
    aborts_.push_back(id);
    wake_.notify_all();
  }

  EngineMetrics metrics() const override {
    std::lock_guard lock(mutex_);
    EngineMetrics m;
    m.running = static_cast<int>(running_.size());
    m.pages_total = 100;
    m.pages_used = m.running * 2;
    m.requests = outcomes_;
    m.ttft = Histogram({0.1, 1});
    m.ttft.counts = {3, 2, 1};
    m.ttft.sum = 4.5;
    return m;
  }
  int running() const {
    std::lock_guard lock(mutex_);
    return static_cast<int>(running_.size());
  }
  std::vector<Request> requests() const {
    std::lock_guard lock(mutex_);
    return submitted;
  }

  std::atomic<int> tokens_per_event{1};
  std::atomic<int> delay_ms{0};  // before every step
  std::atomic<int> cached_tokens{0};
  std::atomic<bool> healthy_flag{true};
  std::atomic<bool> fail_after_first{false};

 private:
  struct Running {
    Request request;
    EventSink sink;
    std::vector<int> script;  // without its end token
    std::size_t at = 0;
    Usage usage;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      for (const RequestId id : std::exchange(aborts_, {})) finish(id, FinishReason::kAborted);
      if (running_.empty()) {
        wake_.wait(lock, [&] { return stopping_ || !running_.empty() || !aborts_.empty(); });
        continue;
      }
      if (delay_ms > 0)
        wake_.wait_for(lock, std::chrono::milliseconds(delay_ms),
                       [&] { return stopping_ || !aborts_.empty(); });
      if (!aborts_.empty()) continue;
      std::vector<RequestId> ids;
      for (const auto& [id, r] : running_) ids.push_back(id);
      for (const RequestId id : ids) step(id);
    }
    while (!running_.empty()) finish(running_.begin()->first, FinishReason::kAborted);
  }

  void step(RequestId id) {
    Running& r = running_.at(id);
    Event event;
    event.id = id;
    if (r.at == 0 && r.request.prompt_logprobs >= 0)
      for (std::size_t i = 1; i < r.request.prompt.size(); ++i)
        event.prompt_logprobs.push_back(logprob(r.request.prompt[i], r.request.prompt_logprobs));
    const int limit = r.request.max_tokens < 0 ? info_.max_context : r.request.max_tokens;
    for (int n = 0; n < tokens_per_event && event.finish == FinishReason::kNone; ++n) {
      const bool end = r.at == r.script.size();
      const int token = end ? info_.end_tokens.front() : r.script[r.at];
      ++r.at;
      event.tokens.push_back(token);
      if (r.request.logprobs >= 0) event.logprobs.push_back(logprob(token, r.request.logprobs));
      ++r.usage.output_tokens;
      if (end)
        event.finish = FinishReason::kStop;
      else if (r.usage.output_tokens >= limit)
        event.finish = FinishReason::kLength;
    }
    if (fail_after_first && r.at > 1) {
      event.finish = FinishReason::kError;
      event.error = "planted failure";
    }
    event.usage = r.usage;
    const FinishReason reason = event.finish;
    r.sink(std::move(event));
    if (reason != FinishReason::kNone) {
      ++outcomes_[reason == FinishReason::kStop ? "stop" : "length"];
      running_.erase(id);
    }
  }

  void finish(RequestId id, FinishReason reason) {
    const auto it = running_.find(id);
    if (it == running_.end()) return;
    Event event;
    event.id = id;
    event.finish = reason;
    event.usage = it->second.usage;
    it->second.sink(std::move(event));
    ++outcomes_["aborted"];
    running_.erase(it);
  }

  static TokenLogprob logprob(int token, int top) {
    TokenLogprob out{token, -0.5F, {}};
    for (int i = 0; i < top; ++i) out.top.emplace_back(i == 0 ? token : i, -0.5F - static_cast<float>(i));
    return out;
  }

  const ModelInfo info_;
  const Script script_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<RequestId, Running> running_;
  std::vector<RequestId> aborts_;
  std::set<std::string> loaded_;
  std::map<std::string, std::uint64_t> outcomes_;
  std::vector<Request> submitted;
  RequestId last_id_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace strata::test
