#include "cli/gguf_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace strata {
namespace {

// Byte-level vocabularies whose texts begin with the begin token although their files may not say so
// (llama.cpp's rule).
constexpr std::array<std::string_view, 9> kBeginByDefault = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"};

}  // namespace

TokenizerParts tokenizer_parts(const GgufVocabulary& v, const std::string& source) {
  TokenizerParts p;
  bool add_bos = false, add_eos = false;
  if (v.model == "gpt2") {
    p.kind = TokenizerParts::Kind::kGpt2Bpe;
    add_bos = std::find(kBeginByDefault.begin(), kBeginByDefault.end(), v.pre) != kBeginByDefault.end();
  } else if (v.model == "llama") {
    p.kind = TokenizerParts::Kind::kSentencePieceBpe;
    add_bos = true;
  } else if (v.model == "t5") {
    if (v.has_charsmap) {
      throw Error(
          "{}: tokenizer.ggml.precompiled_charsmap is not supported: texts would get other tokens without it",
          source);
    }
    p.kind = TokenizerParts::Kind::kUnigram;
    add_eos = true;
  } else {
    throw Error("{}: vocabularies of kind \"{}\" are not supported (gpt2, llama and t5 are)", source,
                v.model);
  }
  p.tokens = v.tokens;
  for (const int type : v.types) p.types.push_back(static_cast<TokenizerParts::Type>(type));
  p.scores = v.scores;
  p.merges = v.merges;
  p.split_name = v.pre == "default" ? "gpt-2" : v.pre;
  p.add_space_prefix = v.add_space_prefix;
  p.nfc = v.pre.starts_with(
      "qwen");  // as Qwen's own tokenizer.json does; GGUF has no key for it (llama.cpp leaves it out)
  if (v.add_bos.value_or(add_bos) && v.bos) p.prefix = {*v.bos};
  if (v.add_eos.value_or(add_eos) && v.eos) p.suffix = {*v.eos};
  return p;
}

}  // namespace strata
