// Engine: one thread that owns model, pools and scheduler; requests go in by queue, events come out through sinks.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "runtime/metrics.h"
#include "runtime/request.h"
#include "tensor/dtype.h"

namespace strata {

class Model;
class Ops;

struct EngineOptions {
  int max_context = 0;           // tokens of one sequence; 0 = the model's own limit
  int max_sequences = 32;        // running at once
  int max_batch_tokens = 512;    // rows of a step
  int max_waiting = 4096;        // requests that may wait; more are refused
  int kv_pages = 0;              // 0 = from `memory_bytes`
  int state_slots = 0;           // 0 = from `memory_bytes`
  std::size_t memory_bytes = std::size_t{1} << 30;  // for pages and slots together when their numbers are not given
  DType kv_dtype = DType::kF32;
  bool prefix_cache = true;
  int snapshot_interval_pages = 16;  // a snapshot every so many pages of a long prompt
  std::filesystem::path cache_file;  // restored at the start and saved at the end; empty = none
  std::string speculate = "none";  // none, mtp, ngram, or draft (by draft_model)
  std::shared_ptr<const Model> draft_model;
  int draft_tokens = 0;          // 0 = chosen by measured cost
  // Benchmarks with dummy weights, whose drafts are never right: each draft is accepted with this probability instead, and is
  // the text then. Everything else runs as in real verification.
  std::optional<double> simulate_acceptance;
  bool lazy_slots = true;        // verify on tapes; false = a slot for every row, for comparison
  int max_loras = 8;             // LoRA adapters in use at once; 0 = none can be loaded
  int max_lora_rank = 256;
};

// What callers need to know of the model without seeing it.
struct ModelInfo {
  std::string name;              // file or folder name, served as the model's id
  std::filesystem::path folder;  // where tokenizer and chat template lie
  std::string architecture;
  int vocab_size = 0;
  int max_context = 0;
  std::vector<int> end_tokens;
  SamplingParams defaults;       // from generation_config.json
};

// Safe to call from any thread. The destructor aborts what runs and joins.
class Engine {
 public:
  // Sizes pools and starts the thread. Throws Error when they do not fit.
  Engine(std::shared_ptr<const Model> model, std::shared_ptr<Ops> ops, ModelInfo info, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelInfo& info() const;

  // Checks the request against the model and its pools; a bad one is refused here, with the field at fault, and harms nobody.
  Result<RequestId> submit(Request request, EventSink sink);
  // Its pages and slots are free within a step; the sink hears kAborted. Unknown ids are ignored.
  void abort(RequestId id);

  // Reads a PEFT folder and gives the adapter a name that requests may use. A name that is taken is refused unless `replace`:
  // then what runs goes on with the old one, and nothing cached under it serves the new one.
  Result<std::monostate> load_adapter(const std::string& name, const std::filesystem::path& folder, bool replace = false);
  bool unload_adapter(const std::string& name);  // what runs with it goes on; false: there is none of this name
  std::vector<std::string> adapters() const;

  EngineMetrics metrics() const;       // a consistent copy
  bool healthy() const;                // false after an error the engine cannot continue from
  void drain();                        // refuses new requests; returns when the running ones have finished

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
