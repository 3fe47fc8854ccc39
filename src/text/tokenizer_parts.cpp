#include "text/tokenizer_parts.h"

#include "base/error.h"
#include "text/bpe.h"
#include "text/split_patterns.h"
#include "text/tokenizer.h"
#include "text/tokenizer_components.h"
#include "text/unigram.h"

namespace strata {
namespace {

using Kind = TokenizerParts::Kind;
using Type = TokenizerParts::Type;

Type type_of(const TokenizerParts& parts, size_t id) {
  return parts.types.empty() ? Type::kNormal : parts.types[id];
}

void check_sizes(const TokenizerParts& parts, std::string_view source) {
  const size_t size = parts.tokens.size();
  if (size == 0) throw Error("{}: a tokenizer without tokens", source);
  if (!parts.types.empty() && parts.types.size() != size) {
    throw Error("{}: {} tokens but {} token types", source, size, parts.types.size());
  }
  const bool by_score = parts.kind == Kind::kSentencePieceBpe || parts.kind == Kind::kUnigram;
  if (by_score && parts.scores.size() != size) {
    throw Error("{}: {} tokens but {} scores", source, size, parts.scores.size());
  }
  for (const auto* ids : {&parts.prefix, &parts.suffix}) {
    for (const int id : *ids) {
      if (id < 0 || static_cast<size_t>(id) >= size) throw Error("{}: token id {} of {}", source, id, size);
    }
  }
}

// Control and user-defined tokens are cut out of the text whole; the model knows the rest.
std::shared_ptr<const Vocabulary> split_tokens(const TokenizerParts& parts, std::vector<AddedToken>& added) {
  std::vector<std::string> tokens = parts.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const Type type = type_of(parts, id);
    const bool special = type == Type::kControl || type == Type::kUnknown;
    if ((!special && type != Type::kUserDefined) || tokens[id].empty()) continue;
    AddedToken token;
    token.id = static_cast<int>(id);
    token.content = std::move(tokens[id]);
    token.special = special;
    added.push_back(std::move(token));
    tokens[id].clear();
  }
  return std::make_shared<Vocabulary>(std::move(tokens));
}

int find_unknown(const TokenizerParts& parts) {
  for (size_t id = 0; id < parts.types.size(); ++id) {
    if (parts.types[id] == Type::kUnknown) return static_cast<int>(id);
  }
  return -1;
}

MergeTable read_merges(const TokenizerParts& parts, std::string_view source) {
  // Merges are looked up among all tokens: a file may mark a token as user-defined that merges lead to.
  const Vocabulary all(parts.tokens);
  MergeTable merges(parts.merges.size());
  for (size_t i = 0; i < parts.merges.size(); ++i) {
    const std::string_view merge = parts.merges[i];
    const size_t space = merge.find(' ', 1);  // no token of these kinds has a space
    if (space == std::string_view::npos)
      throw Error("{}: merge {} \"{}\" has no second part", source, i, merge);
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    const int left_id = all.find(left), right_id = all.find(right);
    const int id = all.find(std::string(left).append(right));
    if (left_id < 0 || right_id < 0 || id < 0)
      throw Error("{}: merge {} \"{}\" is not of tokens", source, i, merge);
    merges.insert(left_id, right_id, {static_cast<uint32_t>(i), id});
  }
  return merges;
}

void build_gpt2(const TokenizerParts& parts, std::string_view source, TokenizerComponents& out) {
  const NamedSplits* splits = find_named_splits(parts.split_name);
  if (splits == nullptr) throw Error("{}: pre-tokenizer {} is not supported", source, parts.split_name);
  for (const std::string_view pattern : splits->patterns) {
    out.pre_tokenizer.add_split(SplitRegex(pattern), SplitBehavior::kIsolated, false);
  }
  if (parts.nfc) out.normalizer.add_form(NormalForm::kNfc);
  BpeOptions options;
  options.ignore_merges = parts.ignore_merges || splits->ignore_merges;
  options.reads_bytes = true;
  out.model = std::make_unique<Bpe>(out.vocabulary, read_merges(parts, source), options);
  out.decoder.add_byte_level();
}

void build_sentence_piece(const TokenizerParts& parts, std::string_view source, TokenizerComponents& out) {
  const size_t size = parts.tokens.size();
  std::vector<bool> pieces(size);
  for (size_t id = 0; id < size; ++id) pieces[id] = type_of(parts, id) == Type::kNormal;
  if (parts.add_space_prefix) out.normalizer.add_prepend(" ");
  out.normalizer.add_replace_text(" ", std::string(kSpaceMark));
  if (parts.kind == Kind::kUnigram) {
    const std::vector<double> scores(parts.scores.begin(), parts.scores.end());
    out.model = std::make_unique<Unigram>(out.vocabulary, scores, pieces, find_unknown(parts), true);
  } else if (parts.kind == Kind::kSentencePieceMerges) {
    BpeOptions options;
    options.unk_id = find_unknown(parts);
    options.byte_fallback = true;
    options.fuse_unk = true;
    out.model = std::make_unique<Bpe>(out.vocabulary, read_merges(parts, source), options);
  } else {
    out.model = std::make_unique<ScoreBpe>(out.vocabulary, parts.scores, pieces, find_unknown(parts));
  }
  if (parts.kind != Kind::kUnigram) shorten_words(*out.vocabulary, out.pre_tokenizer);
  out.decoder.add_replace_text(std::string(kSpaceMark), " ");
  out.decoder.add_byte_fallback();
  if (parts.add_space_prefix) out.decoder.set_lead_strip({" ", 1});
}

}  // namespace

Tokenizer Tokenizer::from_parts(const TokenizerParts& parts, std::string_view source) {
  check_sizes(parts, source);
  TokenizerComponents out;
  out.vocabulary = split_tokens(parts, out.added);
  out.prefix = parts.prefix;
  out.suffix = parts.suffix;
  if (parts.kind == Kind::kGpt2Bpe) {
    build_gpt2(parts, source, out);
  } else {
    build_sentence_piece(parts, source, out);
  }
  return Tokenizer(std::move(out));
}

}  // namespace strata
