// Loading a model for a command: the flags that say which and how, and what comes of them.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/backend.h"
#include "model/model.h"
#include "runtime/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace strata {

// What the command line says; add_model_flags() fills it.
struct ModelFlags {
  std::string model;              // empty = the embedded one
  BackendFlags backend;
  std::string activations = "auto";  // or fp8
  std::string shape;              // a published configuration by name, with dummy weights, instead of a model
  std::string dtype = "bf16";     // of the matrices of dummy weights: bf16 or fp8
  std::string weights = "auto";   // element type of the large matrices
  std::string head = "auto";      // of the output head; auto = as --weights
  std::string draft_head = "auto";  // of the copy of the head that drafts are made with; same = no copy
  std::string kv_dtype = "auto";
  std::string memory = "auto";
  int max_batch_tokens = 0;       // 0 = auto
  std::string draft_tokens = "auto";
  bool no_prefix_cache = false;
  std::string lora;               // a PEFT adapter for every answer; empty = none
  EngineOptions engine;
};

void add_model_flags(CLI::App& app, ModelFlags& flags);
void add_lora_flag(CLI::App& app, ModelFlags& flags);

// A model with what it is run by, before an engine owns it.
struct LoadedModel {
  std::shared_ptr<const Model> model;
  std::shared_ptr<Ops> ops;
  ModelInfo info;
};

struct Loaded {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null when the model has none
  std::string adapter;                                // of --lora, for requests to name; empty = base
};

// Throw Error. A large checkpoint shows a progress bar on a terminal's stderr.
LoadedModel load_model(const ModelFlags& flags);
Loaded load(const ModelFlags& flags);

// The tokenizer of a model, from its folder's tokenizer.json or its GGUF file.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& model);

// The path of the model the flags name, and of the one that comes with Strata.
std::filesystem::path model_path(const ModelFlags& flags);
std::filesystem::path embedded_model();

// "q4_k" -> type; nothing for "auto". Error otherwise.
std::optional<DType> parse_dtype(const std::string& text);

// "1.5GiB", "512M", "100000" -> bytes. Error otherwise.
std::size_t parse_bytes(const std::string& text);
std::string format_bytes(std::size_t bytes);

}  // namespace strata
