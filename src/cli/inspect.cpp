// strata inspect: what a checkpoint holds, what each layer keeps, and the memory a context needs; or the families known.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/load.h"
#include "loader/checkpoint.h"
#include "loader/resolve.h"
#include "model/registry.h"
#include "runtime/memory_pools.h"

namespace strata {
namespace {

struct InspectFlags {
  ModelFlags model;
  std::string path;
  int context = 4096;
  bool families = false, tensors = false;
};

std::string describe(const StateSpec& spec) {
  if (const auto* kv = std::get_if<PagedKv>(&spec)) {
    std::string s = fmt::format("keys and values, {} head{} of {}", kv->heads, kv->heads == 1 ? "" : "s", kv->head_dim);
    if (kv->window > 0) s += fmt::format(", window {}", kv->window);
    if (kv->index_dim > 0) s += fmt::format(", index keys of {}", kv->index_dim);
    return s;
  }
  if (const auto* r = std::get_if<Recurrent>(&spec)) {
    std::string s = "recurrent state";
    for (const Shape& t : r->tensors) s += " " + t.to_string();
    return s;
  }
  return "-";
}

int print_families() {
  std::printf("| family | architectures | features |\n|---|---|---|\n");
  for (const Family& f : families()) {
    std::string features = f.description;
    for (const std::string& feature : f.features) features += ", " + feature;
    std::printf("| %s | %s | %s |\n", f.name.c_str(), fmt::format("{}", fmt::join(f.architectures, ", ")).c_str(), features.c_str());
  }
  return 0;
}

int inspect(InspectFlags& f) {
  if (f.families) return print_families();
  f.model.model = f.path;
  const auto path = model_path(f.model);
  {
    const Checkpoint checkpoint = Checkpoint::open(path);
    const auto tensors = checkpoint.list();
    std::printf("%s\n%s, %zu tensors, %s\n", path.c_str(), checkpoint.config().architecture().c_str(), tensors.size(),
                format_bytes(checkpoint.total_bytes()).c_str());
    if (f.tensors) {
      for (const TensorSummary& t : tensors) {
        std::printf("  %-60s %-8s [%s] %s\n", t.name.c_str(), std::string(name(t.dtype)).c_str(),
                    fmt::format("{}", fmt::join(t.extents, ", ")).c_str(), format_bytes(t.bytes).c_str());
      }
    }
    if (checkpoint.has_config()) std::printf("configuration: %s\n", checkpoint.config().text().dump().c_str());
  }
  const LoadedModel loaded = load_model(f.model);
  const Model& m = *loaded.model;
  std::printf("vocabulary %d, width %d, context %d, %zu layers%s\n", m.vocab_size, m.hidden_size, m.max_context, m.layers.size(),
              m.mtp ? ", and a multi-token-prediction head" : "");
  const auto specs = m.states();
  for (std::size_t i = 0; i < specs.size(); ++i) std::printf("  %-28s keeps %s\n", m.layers[i].name.c_str(), describe(specs[i]).c_str());
  const std::size_t page = MemoryPools::page_bytes(specs, DType::kF32), slot = MemoryPools::slot_bytes(specs);
  const auto pages = static_cast<std::size_t>((f.context + kPageTokens - 1) / kPageTokens);
  std::printf("a page of %d tokens: %s; a state: %s\n", kPageTokens, format_bytes(page).c_str(), format_bytes(slot).c_str());
  std::printf("a context of %d tokens: %s\n", f.context, format_bytes(pages * page + slot).c_str());
  return 0;
}

}  // namespace

Command add_inspect_command(CLI::App& root) {
  auto* app = root.add_subcommand("inspect", "Show what a model holds and needs");
  auto f = std::make_shared<InspectFlags>();
  app->add_option("PATH", f->path, "A model folder, file or Hugging Face id (default: the embedded model)");
  app->add_option("--context", f->context, "Tokens to show the memory for")->check(CLI::PositiveNumber);
  app->add_flag("--tensors", f->tensors, "List every tensor");
  app->add_flag("--families", f->families, "List the model families this build knows, as a Markdown table");
  return {app, [f] { return inspect(*f); }};
}

}  // namespace strata
