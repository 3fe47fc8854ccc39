// strata tokenize: the ids of texts, one line of ids for each text.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/load.h"

namespace strata {
namespace {

struct TokenizeFlags {
  ModelFlags model;
  std::string text, separator;
  bool special = false;
};

int tokenize(const TokenizeFlags& f) {
  const auto tokenizer = load_tokenizer(model_path(f.model));
  const std::string all = f.text.empty() ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : f.text;
  for (std::size_t at = 0; at <= all.size();) {
    const std::size_t end = f.separator.empty() ? std::string::npos : all.find(f.separator, at);
    const auto ids = tokenizer->encode(std::string_view(all).substr(at, end - at), {.add_special = f.special, .parse_special = f.special});
    std::printf("%s\n", fmt::format("{}", fmt::join(ids, " ")).c_str());
    if (end == std::string::npos) break;
    at = end + f.separator.size();
  }
  return 0;
}

}  // namespace

Command add_tokenize_command(CLI::App& root) {
  CLI::App* app = root.add_subcommand("tokenize", "Print the token ids of a text");
  const auto f = std::make_shared<TokenizeFlags>();
  app->add_option("--model,-m", f->model.model, "A model folder, a file, or a Hugging Face id in the local cache");
  app->add_option("TEXT", f->text, "The text (default: standard input)");
  app->add_option("--separator", f->separator, "Texts of standard input are told apart by this");
  app->add_flag("--special", f->special, "Special tokens count: those around a text, and those it spells");
  return {app, [f] { return tokenize(*f); }};
}

}  // namespace strata
