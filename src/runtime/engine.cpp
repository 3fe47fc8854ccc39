#include "runtime/engine.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "base/log.h"
#include "runtime/engine_core.h"

namespace strata {
namespace {

// The first field that has no meaning, or an empty message.
RequestError check_sampling(const SamplingParams& p, int vocab) {
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!finite(p.temperature) || p.temperature < 0) return {"temperature must be a number of at least 0", "temperature"};
  if (p.top_k < -1) return {"top_k must be -1, 0 (both: off) or more", "top_k"};
  if (!(p.top_p >= 0 && p.top_p <= 1)) return {"top_p must be in [0, 1]", "top_p"};
  if (!(p.min_p >= 0 && p.min_p <= 1)) return {"min_p must be in [0, 1]", "min_p"};
  if (!finite(p.repetition_penalty) || p.repetition_penalty <= 0) return {"repetition_penalty must be more than 0", "repetition_penalty"};
  if (!finite(p.presence_penalty)) return {"presence_penalty must be a number", "presence_penalty"};
  if (!finite(p.frequency_penalty)) return {"frequency_penalty must be a number", "frequency_penalty"};
  if (p.min_tokens < 0) return {"min_tokens must be at least 0", "min_tokens"};
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab) return {fmt::format("logit_bias names token {}; the vocabulary has {}", token, vocab), "logit_bias"};
    if (!finite(bias)) return {"a logit_bias is not a number", "logit_bias"};
  }
  return {};
}

}  // namespace

Result<int> EngineCore::check(Request& r) const {
  const int vocab = model_->vocab_size, prompt = static_cast<int>(r.prompt.size());
  if (r.prompt.empty()) return bad_request("the prompt is empty", "prompt");
  for (const std::vector<int>* tokens : {&r.prompt, &r.stop_tokens}) {
    for (const int t : *tokens) {
      if (t < 0 || t >= vocab) return bad_request(fmt::format("token {} is not in the vocabulary of {}", t, vocab), "prompt");
    }
  }
  if (prompt >= info_.max_context) {
    return bad_request(fmt::format("the prompt has {} tokens; the context holds {}, one of them generated", prompt, info_.max_context), "prompt");
  }
  if (prompt >= residency_.capacity()) {
    return bad_request(fmt::format("the prompt has {} tokens; the memory for keys and values holds {}", prompt, residency_.capacity() - 1), "prompt");
  }
  if (r.max_tokens == 0 || r.max_tokens < -1) return bad_request("max_tokens must be at least 1", "max_tokens");
  if (RequestError bad = check_sampling(r.sampling, vocab); !bad.message.empty()) return tl::unexpected(std::move(bad));
  if (options_.simulate_acceptance && r.constraint) {
    return bad_request("drafts that are accepted by chance keep no constraint (--simulate-acceptance)", "response_format");
  }
  r.logprobs = std::clamp(r.logprobs, -1, vocab);
  r.prompt_logprobs = std::clamp(r.prompt_logprobs, -1, vocab);
  const int limit = std::min(info_.max_context, residency_.capacity());
  return r.max_tokens < 0 ? limit : static_cast<int>(std::min<std::int64_t>(limit, std::int64_t{prompt} + r.max_tokens));
}

Result<std::unique_ptr<Sequence>> EngineCore::prepare(Request request) const {
  const auto limit = check(request);  // reads only what never changes
  if (!limit) return tl::unexpected(limit.error());
  auto s = std::make_unique<Sequence>();
  if (!request.adapter.empty()) {
    s->lora = adapters_.find(request.adapter);
    if (s->lora == nullptr) return bad_request(fmt::format("there is no adapter '{}'", request.adapter), "model");
    s->root = fmt::format("{}#{}", s->lora->name, s->lora->generation);
  }
  s->root += '\n' + request.cache_salt;
  s->tokens = request.prompt;
  s->limit = *limit;
  s->seed = request.sampling.seed.value_or(0);
  s->ends = info_.end_tokens;
  s->ends.insert(s->ends.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  s->request = std::move(request);
  return s;
}

// Often enough to watch, not in every step.
constexpr auto kMetricsEvery = std::chrono::milliseconds(20);

class Engine::Impl {
 public:
  Impl(std::shared_ptr<const Model> model, std::shared_ptr<Ops> ops, const ModelInfo& info, const EngineOptions& options)
      : core_(std::move(model), std::move(ops), info, options), info_(info), max_waiting_(options.max_waiting) {
    info_.max_context = core_.max_context();
    core_.restore_cache();
    metrics_ = core_.metrics();
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  }

  ~Impl() {
    thread_.request_stop();
    wake_.notify_all();
    thread_.join();
  }

  const ModelInfo& info() const { return info_; }

  Result<RequestId> submit(Request request, EventSink sink) {
    auto prepared = core_.prepare(std::move(request));
    const std::lock_guard lock(mutex_);
    if (!prepared) {
      ++refused_;
      return tl::unexpected(prepared.error());
    }
    if (draining_ || !healthy_) return bad_request(healthy_ ? "the server is shutting down" : "the engine has failed");
    if (static_cast<int>(inbox_.size()) + waiting_ >= max_waiting_) {
      ++refused_;
      return bad_request(fmt::format("{} requests are waiting already", max_waiting_));
    }
    std::unique_ptr<Sequence> s = std::move(*prepared);
    s->id = ++last_id_;
    if (!s->request.sampling.seed) s->seed = std::uint64_t{random_()} << 32 | random_();
    s->sink = std::move(sink);
    s->arrived = Clock::now();
    const RequestId id = s->id;
    inbox_.push_back(std::move(s));
    wake_.notify_all();
    return id;
  }

  void abort(RequestId id) {
    const std::lock_guard lock(mutex_);
    aborts_.push_back(id);
    wake_.notify_all();
  }

  EngineCore& core() { return core_; }
  const EngineCore& core() const { return core_; }

  EngineMetrics metrics() const {
    const std::lock_guard lock(mutex_);
    EngineMetrics m = metrics_;
    m.waiting += static_cast<int>(inbox_.size());
    if (refused_ > 0) m.requests["refused"] += refused_;
    return m;
  }

  bool healthy() const {
    const std::lock_guard lock(mutex_);
    return healthy_;
  }

  void drain() {
    std::unique_lock lock(mutex_);
    draining_ = true;
    idle_.wait(lock, [&] { return inbox_.empty() && resting_; });
  }

 private:
  void loop(const std::stop_token& stop) {
    std::vector<RequestId> aborts;
    std::deque<std::unique_ptr<Sequence>> fresh;
    bool busy = false;
    Clock::time_point published{};
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        waiting_ = core_.waiting();
        if (const auto now = Clock::now(); !busy || now - published >= kMetricsEvery) {
          metrics_ = core_.metrics();
          published = now;
        }
        if (!busy) {
          resting_ = inbox_.empty() && aborts_.empty();
          if (resting_) idle_.notify_all();
          wake_.wait(lock, stop, [&] { return !inbox_.empty() || !aborts_.empty(); });
        }
        resting_ = false;
        aborts.swap(aborts_);
        fresh.swap(inbox_);
      }
      for (auto& s : fresh) core_.add(std::move(s));
      fresh.clear();
      for (const RequestId id : aborts) core_.abort(id);
      aborts.clear();
      try {
        busy = core_.step();
      } catch (const std::exception& e) {  // a device that failed, memory that ran out: nothing can be served on
        log::error("the engine has failed: {}", e.what());
        core_.abort_all(e.what());
        const std::lock_guard lock(mutex_);
        healthy_ = busy = false;
      }
    }
    core_.abort_all("");
    if (healthy()) core_.save_cache();
    const std::lock_guard lock(mutex_);
    for (auto& s : inbox_) {
      if (s->sink) s->sink({.id = s->id, .finish = FinishReason::kAborted});
    }
    inbox_.clear();
  }

  EngineCore core_;
  ModelInfo info_;
  int max_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_, idle_;
  std::deque<std::unique_ptr<Sequence>> inbox_;
  std::vector<RequestId> aborts_;
  EngineMetrics metrics_;
  int waiting_ = 0;  // in the core, as of the last step
  std::uint64_t refused_ = 0;
  RequestId last_id_ = 0;
  bool draining_ = false, healthy_ = true, resting_ = false;
  std::random_device random_;
  std::jthread thread_;
};

Engine::Engine(std::shared_ptr<const Model> model, std::shared_ptr<Ops> ops, ModelInfo info, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(ops), info, options)) {}
Engine::~Engine() = default;

const ModelInfo& Engine::info() const { return impl_->info(); }
Result<RequestId> Engine::submit(Request request, EventSink sink) { return impl_->submit(std::move(request), std::move(sink)); }
void Engine::abort(RequestId id) { impl_->abort(id); }
Result<std::monostate> Engine::load_adapter(const std::string& name, const std::filesystem::path& folder, bool replace) {
  return impl_->core().load_adapter(name, folder, replace);
}
bool Engine::unload_adapter(const std::string& name) { return impl_->core().adapters().remove(name); }
std::vector<std::string> Engine::adapters() const { return impl_->core().adapters().names(); }
EngineMetrics Engine::metrics() const { return impl_->metrics(); }
bool Engine::healthy() const { return impl_->healthy(); }
void Engine::drain() { impl_->drain(); }

}  // namespace strata
