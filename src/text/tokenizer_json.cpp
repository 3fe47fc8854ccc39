#include "text/tokenizer_json.h"

#include <unordered_set>

#include "text/tokenizer.h"

namespace strata {
namespace {

AddedToken read_added_token(const JsonNode& node) {
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = node.at("id").index();
  token.content = node.at("content").string();
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.special = node.boolean_or("special", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  if (token.content.empty()) node.fail("an added token without text");
  return token;
}

void read_added_tokens(const JsonNode& node, TokenizerComponents& out) {
  std::unordered_set<int> ids;
  node.each([&](const JsonNode& item) {
    AddedToken token = read_added_token(item);
    if (!ids.insert(token.id).second) item.fail("id {} is given twice", token.id);
    if (const int id = out.vocabulary->find(token.content); id >= 0 && id != token.id) {
      item.fail("\"{}\" has id {} here and {} in the vocabulary", token.content, token.id, id);
    }
    out.added.push_back(std::move(token));
  });
}

// Puts the ids of the template's tokens around what is there.
void read_template(const JsonNode& node, TokenizerComponents& out) {
  node.only({"type", "single", "pair", "special_tokens"});
  std::vector<int> before, after;
  bool seen = false;
  node.at("single").each([&](const JsonNode& item) {
    item.only({"SpecialToken", "Sequence"});
    if (const auto sequence = item.find("Sequence")) {
      if (seen || sequence->at("id").string() != "A") sequence->fail("a template must hold sequence A once");
      seen = true;
      return;
    }
    const std::string_view name = item.at("SpecialToken").at("id").string();
    node.at("special_tokens").at(name).at("ids").each([&](const JsonNode& id) {
      (seen ? after : before).push_back(id.index());
    });
  });
  if (!seen) node.fail("a template must hold sequence A once");
  out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
  out.suffix.insert(out.suffix.end(), after.begin(), after.end());
}

void read_post_processor(const JsonNode& node, TokenizerComponents& out) {
  const std::string_view type = node.at("type").string();
  if (type == "TemplateProcessing") {
    read_template(node, out);
  } else if (type == "ByteLevel") {
    node.only(
        {"type", "add_prefix_space", "trim_offsets", "use_regex"});  // about offsets, which we do not give
  } else if (type == "Sequence") {
    node.only({"type", "processors"});
    node.at("processors").each([&](const JsonNode& item) { read_post_processor(item, out); });
  } else {
    node.fail("post-processor {} is not supported", type);
  }
}

}  // namespace

TokenizerComponents read_tokenizer_json(std::string_view json, std::string_view source) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root); error != simdjson::SUCCESS) {
    throw Error("{}: not JSON: {}", source, simdjson::error_message(error));
  }
  const JsonNode node(root, std::string(source));
  node.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (const auto version = node.find("version"); version && version->string() != "1.0") {
    version->fail("version {} is not supported", version->string());
  }
  TokenizerComponents parts;
  if (const auto normalizer = node.find("normalizer")) read_normalizer(*normalizer, parts.normalizer);
  if (const auto pre_tokenizer = node.find("pre_tokenizer"))
    read_pre_tokenizer(*pre_tokenizer, parts.pre_tokenizer);
  read_model(node.at("model"), parts);
  if (const auto added = node.find("added_tokens")) read_added_tokens(*added, parts);
  if (const auto post = node.find("post_processor")) read_post_processor(*post, parts);
  parts.decoder = read_decoder(node.at("decoder"));
  return parts;
}

Tokenizer Tokenizer::from_json(std::string_view json, std::string_view source) {
  return Tokenizer(read_tokenizer_json(json, source));
}

Tokenizer Tokenizer::from_json_file(const std::filesystem::path& path) {
  simdjson::padded_string text;
  if (const auto error = simdjson::padded_string::load(path.string()).get(text); error != simdjson::SUCCESS) {
    throw Error("{}: cannot be read", path.string());
  }
  return from_json(std::string_view(text.data(), text.size()), path.string());
}

}  // namespace strata
