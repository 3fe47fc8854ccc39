#include "cli/load.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "cli/console.h"
#include "cli/gguf_tokenizer.h"
#include "loader/checkpoint.h"
#include "loader/dummy.h"
#include "loader/gguf.h"
#include "loader/gguf_vocabulary.h"
#include "loader/resolve.h"
#include "model/registry.h"
#include "text/byte_level.h"

namespace strata {
namespace {

int parse_draft_tokens(const std::string& text) {
  if (text == "auto") return 0;
  std::size_t end = 0;
  int k = 0;
  try {
    k = std::stoi(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end != text.size() || k < 1 || k > 15) throw Error("--draft-tokens must be auto or 1 to 15, is '{}'", text);
  return k;
}

SamplingParams sampling_defaults(const ModelConfig& config) {
  SamplingParams p;
  const SamplingDefaults& d = config.sampling();
  if (d.temperature) p.temperature = static_cast<float>(*d.temperature);
  if (d.top_p) p.top_p = static_cast<float>(*d.top_p);
  if (d.min_p) p.min_p = static_cast<float>(*d.min_p);
  if (d.top_k) p.top_k = *d.top_k;
  if (d.repetition_penalty) p.repetition_penalty = static_cast<float>(*d.repetition_penalty);
  if (d.do_sample && !*d.do_sample) p.temperature = 0;
  return p;
}

bool is_dummy(const ModelFlags& flags) { return flags.weights == "dummy" || !flags.shape.empty(); }

// Of --draft-head; nothing for same, and where auto finds nothing to copy the head for.
std::optional<DType> draft_head(const ModelFlags& flags, const Ops& ops) {
  const std::string& by = flags.engine.speculate;
  if (flags.draft_head == "same") return {};
  if (flags.draft_head != "auto") {
    if (by != "mtp" && !by.starts_with("draft=")) throw Error("--draft-head {} needs a drafter that has a head: --speculate mtp or draft=PATH", flags.draft_head);
    return parse_dtype(flags.draft_head);
  }
  if (by != "mtp") return {};
  return ops.device() == Device::kCpu ? DType::kQ8_0 : DType::kF8E4M3;  // what each streams well and is soon made
}

LoadOptions load_options(const ModelFlags& flags, const Ops& ops) {
  LoadOptions o{.head = parse_dtype(flags.head), .draft_head = draft_head(flags, ops), .draft_head_if_worth = flags.draft_head == "auto"};
  if (!is_dummy(flags)) o.weights = parse_dtype(flags.weights);
  if (flags.engine.speculate != "mtp") o.draft_head.reset();
  return o;
}

// The GGUF file that holds a model's vocabulary, if that is where it is.
std::optional<std::filesystem::path> gguf_file(const std::filesystem::path& model) {
  if (!std::filesystem::is_directory(model)) return model.extension() == ".gguf" ? std::optional(model) : std::nullopt;
  return std::filesystem::exists(model / "tokenizer.json") ? std::nullopt : gguf_in(model);
}

Checkpoint open_checkpoint(const ModelFlags& flags, const std::filesystem::path& path, Checkpoint::Progress progress) {
  if (!is_dummy(flags)) return Checkpoint::open(path, std::move(progress));
  const ModelConfig config = flags.shape.empty() ? ModelConfig::load(path) : published_shape(flags.shape);
  return {dummy_source(config, flags.dtype == "fp8" ? DType::kF8E4M3 : *parse_dtype(flags.dtype)), config, path};
}

// For shapes without a vocabulary: a token for every byte, then " 256", " 257", ..., which no text is encoded to.
std::shared_ptr<const Tokenizer> dummy_tokenizer(int vocab_size) {
  TokenizerParts parts;
  parts.split_name = "gpt-2";
  for (int id = 0; id < vocab_size; ++id) {
    append_byte_level(parts.tokens.emplace_back(), id < 256 ? std::string(1, static_cast<char>(id)) : fmt::format(" {}", id));
  }
  return std::make_shared<const Tokenizer>(Tokenizer::from_parts(parts, "dummy tokens"));
}

std::filesystem::path folder_of(const std::filesystem::path& model) {
  return std::filesystem::is_directory(model) ? model : model.parent_path();
}

std::shared_ptr<const ChatTemplate> load_template(const std::filesystem::path& model) {
  const auto file = gguf_file(model);
  if (!file) {
    auto chat = ChatTemplate::load(folder_of(model));
    return chat ? std::make_shared<const ChatTemplate>(std::move(*chat)) : nullptr;
  }
  const GgufVocabulary v = load_gguf_vocabulary(*file);
  if (!v.chat_template) return nullptr;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  if (v.bos) variables["bos_token"] = v.tokens[static_cast<std::size_t>(*v.bos)];
  if (v.eos) variables["eos_token"] = v.tokens[static_cast<std::size_t>(*v.eos)];
  return std::make_shared<const ChatTemplate>(*v.chat_template, std::move(variables));
}

}  // namespace

std::optional<DType> parse_dtype(const std::string& text) {
  if (text == "auto") return {};
  if (text == "fp8") return DType::kF8E4M3;
  for (int i = 0; i <= static_cast<int>(DType::kNVFP4); ++i) {
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  }
  throw Error("unknown type '{}': auto, f32, f16, bf16, f8_e4m3, q8_0, q4_0, q4_k, ...", text);
}

void add_model_flags(CLI::App& app, ModelFlags& f) {
  app.add_option("--model,-m", f.model, "A model folder, a file, or a Hugging Face id in the local cache (default: the embedded demo model)");
  app.add_option("--backend", f.backend.name, "Where to compute: cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--threads,-t", f.backend.threads, "Threads to compute with (default: one per core)")->check(CLI::Range(0, 1024));
  app.add_option("--weights", f.weights, "Type to keep the large matrices in: auto, f32, f16, bf16, f8_e4m3, q8_0, q4_k, ...; or dummy: random numbers in the shapes of the model's config.json");
  app.add_option("--head", f.head, "Type to keep the output head in, whatever --weights says: auto, bf16, f8_e4m3, q8_0, q4_0, ... (faster, less exact; a tied embedding stays as it is)");
  app.add_option("--shape", f.shape, "Dummy weights of a published model instead of --model: " + fmt::format("{}", fmt::join(published_shapes(), ", ")));
  app.add_option("--dtype", f.dtype, "Type of the matrices of dummy weights")->check(CLI::IsMember({"bf16", "fp8", "q4_0", "q4_1", "mxfp4", "nvfp4"}))->capture_default_str();
  app.add_option("--activations", f.activations, "fp8: on a GPU, prompts meet FP8 matrices in FP8, as checkpoints with dynamic activation scales allow (faster, less exact)")->check(CLI::IsMember({"auto", "fp8"}))->capture_default_str();
  app.add_option("--kv-dtype", f.kv_dtype, "Type of keys and values: auto, f32, f16, bf16, f8_e4m3");
  app.add_option("--memory", f.memory, "Memory for keys, values and recurrent states, such as 512MiB or 4GiB (default: 1GiB; on a GPU most of what is free)");
  app.add_option("--max-context", f.engine.max_context, "Tokens of one sequence at most (default: the model's limit)")->check(CLI::NonNegativeNumber);
  app.add_option("--max-sequences", f.engine.max_sequences, "Sequences that run at once")->check(CLI::Range(1, 4096));
  app.add_option("--max-batch-tokens", f.max_batch_tokens, "Rows of a step at most (default: 512; on a GPU 2048)")->check(CLI::Range(1, 1 << 20));
  app.add_option("--speculate", f.engine.speculate, "Draft tokens by: none, mtp, ngram, or draft=PATH (a smaller model with the same vocabulary)");
  app.add_option("--draft-tokens", f.draft_tokens, "Drafts a step: 1 to 15, or auto");
  app.add_option("--draft-head", f.draft_head, "Type of the head that a drafter multiplies by, a copy: f8_e4m3, q8_0, q4_0, ...; same: no copy; auto: f8_e4m3 (CPU: q8_0) where a head of 64 MiB or more is not quantised. Answers stay the same");
  app.add_option("--simulate-acceptance", f.engine.simulate_acceptance, "For benchmarks, with dummy weights only: accept each draft with this probability, whatever the model says")->check(CLI::Range(0.0, 1.0));
  app.add_option("--cache-file", f.engine.cache_file, "Keep the prefix cache in this file from one start to the next");
  app.add_option("--snapshot-interval", f.engine.snapshot_interval_pages, "Pages between state snapshots of a long prompt; 0 = only at its end")->check(CLI::NonNegativeNumber);
  app.add_flag("--no-prefix-cache", f.no_prefix_cache, "Do not reuse what earlier requests computed");
}

void add_lora_flag(CLI::App& app, ModelFlags& f) {
  app.add_option("--lora", f.lora, "A PEFT adapter (a folder) that every answer is computed with")->check(CLI::ExistingDirectory);
}

std::size_t parse_bytes(const std::string& text) {
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    value = -1;
  }
  const std::string unit = text.substr(std::min(end, text.size()));
  static constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1}, {"B", 1}, {"K", 1024}, {"KiB", 1024}, {"M", 1 << 20}, {"MiB", 1 << 20}, {"G", 1 << 30}, {"GiB", 1 << 30}, {"TiB", 0x1p40}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && value >= 0 && std::isfinite(value)) return static_cast<std::size_t>(value * factor);
  }
  throw Error("not an amount of memory: '{}' (such as 512MiB or 4GiB)", text);
}

std::string format_bytes(std::size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::filesystem::path embedded_model() {
  // Beside the program's folders: in a source tree, or under share/strata of an installation.
  std::error_code error;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (; !folder.empty(); folder = folder.parent_path()) {
    for (const char* place : {"models/tiny-hybrid", "share/strata/models/tiny-hybrid"}) {
      if (std::filesystem::exists(folder / place / "config.json")) return folder / place;
    }
    if (folder == folder.root_path()) break;
  }
  throw Error("the embedded model (models/tiny-hybrid) is not beside this program: name a model with --model");
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& model) {
  const auto file = gguf_file(model);
  if (!file) return std::make_shared<const Tokenizer>(Tokenizer::from_json_file(folder_of(model) / "tokenizer.json"));
  return std::make_shared<const Tokenizer>(Tokenizer::from_parts(tokenizer_parts(load_gguf_vocabulary(*file), file->string()), file->string()));
}

std::filesystem::path model_path(const ModelFlags& flags) {
  return flags.model.empty() ? embedded_model() : resolve_model(flags.model);
}

LoadedModel load_model(const ModelFlags& flags) {
  BackendFlags backend = flags.backend;
  backend.f32 = flags.weights == "f32";
  backend.dummy = is_dummy(flags);
  backend.f8_activations = flags.activations == "fp8";
  LoadedModel out;
  out.ops = make_backend(backend);
  const auto path = flags.shape.empty() ? model_path(flags) : std::filesystem::path(flags.shape);
  ProgressBar bar("loading " + path.filename().string());
  Checkpoint checkpoint = open_checkpoint(flags, path, [&](std::size_t done, std::size_t total) { bar.show(done, total); });
  out.model = std::make_shared<const Model>(load_model(checkpoint, *out.ops, load_options(flags, *out.ops)));
  out.info.name = path.filename().string();
  out.info.folder = folder_of(path);
  out.info.architecture = out.model->architecture;
  out.info.vocab_size = out.model->vocab_size;
  out.info.max_context = out.model->max_context;
  out.info.end_tokens = checkpoint.config().end_tokens();
  out.info.defaults = sampling_defaults(checkpoint.config());
  return out;
}

Loaded load(const ModelFlags& flags) {
  EngineOptions options = flags.engine;
  options.draft_tokens = parse_draft_tokens(flags.draft_tokens);
  options.prefix_cache = !flags.no_prefix_cache;
  if (options.simulate_acceptance && !is_dummy(flags)) {
    throw Error("--simulate-acceptance is for benchmarks with dummy weights (--shape, or --weights dummy): it makes wrong text of a model's");
  }
  if (options.simulate_acceptance && options.speculate == "none") throw Error("--simulate-acceptance needs drafts to accept (--speculate)");
  LoadedModel model = load_model(flags);
  options.kv_dtype = parse_dtype(flags.kv_dtype).value_or(model.ops->activation());
  const bool host = model.ops->device() == Device::kCpu;
  options.max_batch_tokens = flags.max_batch_tokens > 0 ? flags.max_batch_tokens : host ? 512 : 2048;
  if (options.speculate.starts_with("draft=")) {
    Checkpoint draft = Checkpoint::open(resolve_model(options.speculate.substr(6)));
    options.draft_model = std::make_shared<const Model>(load_model(draft, *model.ops, {.weights = parse_dtype(flags.weights), .head = draft_head(flags, *model.ops)}));
    options.speculate = "draft";
  }
  // Logits of every row of a step, and as much again for all else.
  const auto scratch = std::size_t{8} * static_cast<std::size_t>(options.max_batch_tokens) * static_cast<std::size_t>(model.info.vocab_size) + (std::size_t{1} << 30);
  options.memory_bytes = flags.memory == "auto" ? default_memory(*model.ops, scratch) : parse_bytes(flags.memory);
  Loaded out;
  const auto path = model_path(flags);
  const bool has_tokens = flags.shape.empty() && (gguf_file(path) || std::filesystem::exists(folder_of(path) / "tokenizer.json"));
  out.tokenizer = is_dummy(flags) && !has_tokens ? dummy_tokenizer(model.info.vocab_size) : load_tokenizer(path);
  out.chat_template = load_template(path);
  out.engine = std::make_shared<Engine>(model.model, model.ops, model.info, options);
  if (!flags.lora.empty()) {
    out.adapter = "lora";
    if (const auto loaded = out.engine->load_adapter(out.adapter, flags.lora); !loaded) throw Error("--lora: {}", loaded.error().message);
  }
  return out;
}

}  // namespace strata
