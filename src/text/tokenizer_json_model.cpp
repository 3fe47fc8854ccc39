// The model section of tokenizer.json: BPE or Unigram.
#include <limits>

#include "text/bpe.h"
#include "text/tokenizer_json.h"
#include "text/unigram.h"

namespace strata {
namespace {

// Far above any published vocabulary; keeps a broken file from asking for all memory.
constexpr int kMaxTokens = 1 << 24;

std::shared_ptr<const Vocabulary> read_bpe_vocabulary(const JsonNode& node) {
  std::vector<std::string> tokens;
  for (const auto& [text, value] : node.object()) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxTokens)
      node.fail("token \"{}\" has no valid id", text);
    const auto index = static_cast<size_t>(id);
    if (index >= tokens.size()) tokens.resize(index + 1);
    if (!tokens[index].empty()) node.fail("tokens \"{}\" and \"{}\" share id {}", tokens[index], text, id);
    tokens[index] = text;
  }
  return std::make_shared<Vocabulary>(std::move(tokens));
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string_view, std::string_view> read_merge(const JsonNode& node) {
  if (node.is_array()) {
    std::vector<std::string_view> pair;
    node.each([&pair](const JsonNode& item) { pair.push_back(item.string()); });
    if (pair.size() != 2) node.fail("a merge must have two parts");
    return {pair[0], pair[1]};
  }
  const std::string_view text = node.string();
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    node.fail("\"{}\" must be two parts with a space between", text);
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

MergeTable read_merges(const JsonNode& node, const Vocabulary& vocabulary) {
  MergeTable table(node.array().size());
  uint32_t rank = 0;
  const auto id_of = [&](const JsonNode& item, std::string_view text) {
    const int id = vocabulary.find(text);
    if (id < 0) item.fail("\"{}\" is not in the vocabulary", text);
    return id;
  };
  node.each([&](const JsonNode& item) {
    const auto [left, right] = read_merge(item);
    const int joined = id_of(item, std::string(left).append(right));
    table.insert(id_of(item, left), id_of(item, right), {rank++, joined});
  });
  return table;
}

void refuse_affix(const JsonNode& node, std::string_view key) {
  const auto affix = node.find(key);
  if (affix && !affix->string().empty()) affix->fail("is not supported");
}

void read_bpe(const JsonNode& node, TokenizerComponents& out) {
  node.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  refuse_affix(node, "continuing_subword_prefix");
  refuse_affix(node, "end_of_word_suffix");
  if (const auto dropout = node.find("dropout"); dropout && dropout->number() != 0)
    dropout->fail("is not supported");
  out.vocabulary = read_bpe_vocabulary(node.at("vocab"));
  BpeOptions options;
  options.fuse_unk = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  options.reads_bytes = out.pre_tokenizer.take_final_byte_level();
  if (const auto unk = node.find("unk_token")) {
    options.unk_id = out.vocabulary->find(unk->string());
    if (options.unk_id < 0) unk->fail("\"{}\" is not in the vocabulary", unk->string());
  }
  MergeTable merges = read_merges(node.at("merges"), *out.vocabulary);
  out.model = std::make_unique<Bpe>(out.vocabulary, std::move(merges), options);
  // A whole word that is a token is looked for only with ignore_merges: then words must stay as they are.
  if (!options.reads_bytes && !options.ignore_merges) shorten_words(*out.vocabulary, out.pre_tokenizer);
}

void read_unigram(const JsonNode& node, TokenizerComponents& out) {
  node.only({"type", "unk_id", "vocab", "byte_fallback"});
  std::vector<std::string> tokens;
  std::vector<double> scores;
  node.at("vocab").each([&](const JsonNode& item) {
    simdjson::dom::element text, score;
    if (item.array().size() != 2 || item.array().at(0).get(text) != simdjson::SUCCESS ||
        item.array().at(1).get(score) != simdjson::SUCCESS) {
      item.fail("must be a token and its score");
    }
    tokens.emplace_back(JsonNode(text, "token").string());
    scores.push_back(JsonNode(score, "score").number());
  });
  const int unk_id = node.at("unk_id").index();
  if (static_cast<size_t>(unk_id) >= tokens.size()) node.fail("unk_id {} is outside the vocabulary", unk_id);
  const std::vector<bool> pieces(tokens.size(), true);
  out.vocabulary = std::make_shared<Vocabulary>(std::move(tokens));
  out.model = std::make_unique<Unigram>(out.vocabulary, std::move(scores), pieces, unk_id,
                                        node.boolean_or("byte_fallback", false));
}

}  // namespace

void read_model(const JsonNode& node, TokenizerComponents& out) {
  const auto type = node.find("type");  // older files leave it out
  const std::string_view name = type ? type->string() : node.find("merges") ? "BPE" : "of no type";
  if (name == "BPE") {
    read_bpe(node, out);
  } else if (name == "Unigram") {
    read_unigram(node, out);
  } else {
    node.fail("model {} is not supported", name);
  }
}

}  // namespace strata
