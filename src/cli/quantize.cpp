// strata quantize: writes a model as a GGUF file of another element type.
#include <cstdio>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/load.h"
#include "loader/gguf_export.h"
#include "loader/resolve.h"

namespace strata {
namespace {

struct QuantizeFlags {
  std::string in, out, type = "q8_0", embedding;
  int threads = 0;
};

int quantize(const QuantizeFlags& f) {
  const auto type = parse_dtype(f.type);
  if (!type) throw Error("--type must name a type, is '{}'", f.type);
  GgufExportOptions options{.type = *type, .embedding = f.embedding.empty() ? std::nullopt : parse_dtype(f.embedding)};
  options.threads = f.threads > 0 ? f.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ProgressBar bar("writing " + f.out);
  options.progress = [&](std::size_t done, std::size_t total) { bar.show(done, total); };
  const GgufExportSummary s = export_gguf(resolve_model(f.in), f.out, options);
  std::printf("%s: %zu tensors, %s (from %s)\n", f.out.c_str(), s.tensors, format_bytes(s.bytes_after).c_str(),
              format_bytes(s.bytes_before).c_str());
  if (s.coarser > 0) {
    std::printf("%zu matrices have rows that are not whole %s blocks and are kept in a type of smaller ones\n", s.coarser, f.type.c_str());
  }
  if (!s.vocabulary) std::printf("no tokenizer.json came with the model: the file has no vocabulary\n");
  return 0;
}

}  // namespace

Command add_quantize_command(CLI::App& root) {
  CLI::App* app = root.add_subcommand("quantize", "Write a model as a GGUF file of another element type");
  const auto f = std::make_shared<QuantizeFlags>();
  app->add_option("IN", f->in, "A model folder, a .safetensors or .gguf file, or a Hugging Face id in the local cache")->required();
  app->add_option("OUT", f->out, "The GGUF file to write")->required();
  app->add_option("--type", f->type, "Type of the large matrices: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k to q6_k, iq4_nl, iq4_xs, mxfp4");
  app->add_option("--embedding-type", f->embedding, "Type of the embedding table and the head (default: the same, but at least 6 bits)");
  app->add_option("--threads,-t", f->threads, "Threads to quantise with (default: one per core)")->check(CLI::Range(0, 1024));
  return {app, [f] { return quantize(*f); }};
}

}  // namespace strata
