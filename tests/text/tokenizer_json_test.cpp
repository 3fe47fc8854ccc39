// What a tokenizer.json may not say, and what of it is read over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;

json small() {
  return json::parse(R"({
    "version": "1.0", "truncation": {"max_length": 3}, "padding": null, "normalizer": null,
    "added_tokens": [{"id": 4, "content": "<s>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "aab": 3}, "merges": [["a", "b"], ["a", "ab"]]}})");
}

Tokenizer load(const json& file) { return Tokenizer::from_json(file.dump(), "t.json"); }

TEST(TokenizerJson, SmallFileWorks) {
  const Tokenizer tokenizer = load(small());
  EXPECT_EQ(tokenizer.encode("aab<s>b", {}), (std::vector<int>{3, 4, 1}));
  EXPECT_EQ(tokenizer.encode("ab?ba"), (std::vector<int>{2, 1, 0}));  // no token and no unk: dropped
  EXPECT_EQ(tokenizer.decode(std::vector<int>{3, 4, 1}, true), "aabb");
  EXPECT_EQ(tokenizer.vocab_size(), 5);
}

// Each sets `value` at `place` and must be refused with `reason`.
struct Fault {
  const char* place;
  const char* value;
  const char* reason;
};

TEST(TokenizerJson, RefusesByName) {
  const Fault faults[] = {
      {"/version", R"("2.0")", "t.json.version: version 2.0 is not supported"},
      {"/extra", "1", "t.json: \"extra\" is not understood"},
      {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": ""})",
       "t.json.normalizer: normalizer Precompiled is not supported"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "BertNormalizer"}]})",
       "t.json.normalizer.normalizers[1]: normalizer BertNormalizer is not supported"},
      {"/normalizer", R"({"type": "NFC", "strength": 2})", "\"strength\" is not understood"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "[a[b]]"}, "content": ""})",
       "t.json.normalizer.pattern.Regex: regular expression [a[b]]: a class inside a class is not supported"},
      {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})",
       "pre-tokenizer BertPreTokenizer is not supported"},
      {"/pre_tokenizer",
       R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Doubled", "invert": false})",
       "t.json.pre_tokenizer.behavior: behavior Doubled is not supported"},
      {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Glob": "a"}, "behavior": "Removed"})",
       "\"Glob\" is not understood"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "must be one character"},
      {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
       "prepend scheme last is not supported"},
      {"/post_processor", R"({"type": "BertProcessing"})", "post-processor BertProcessing is not supported"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})",
       "a template must hold sequence A once"},
      {"/decoder", "null", "t.json: \"decoder\" is missing"},
      {"/decoder", R"({"type": "WordPiece"})", "decoder WordPiece is not supported"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
       "t.json.decoder.decoders[1]: decoder ByteFallback after the tokens are joined is not supported"},
      {"/decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})",
       "stripping the end of the whole text is not supported"},
      {"/model/type", R"("WordPiece")", "t.json.model: model WordPiece is not supported"},
      {"/model/dropout", "0.1", "t.json.model.dropout: is not supported"},
      {"/model/end_of_word_suffix", R"("</w>")", "t.json.model.end_of_word_suffix: is not supported"},
      {"/model/unk_token", R"("<unk>")", "\"<unk>\" is not in the vocabulary"},
      {"/model/fuse_unk", "3", "t.json.model.fuse_unk: must be true or false"},
      {"/model/vocab/c", "2", "share id 2"},
      {"/model/vocab/c", "-1", "token \"c\" has no valid id"},
      {"/model/vocab/c", "1e30", "token \"c\" has no valid id"},
      {"/model/merges/0", R"(["a", "x"])", "t.json.model.merges[0]: \"ax\" is not in the vocabulary"},
      {"/model/merges/0", R"("a b b")", "must be two parts with a space between"},
      {"/model/merges/0", R"(["a"])", "a merge must have two parts"},
      {"/added_tokens/0/content", R"("")", "an added token without text"},
      {"/added_tokens/0/content", R"("ab")", "\"ab\" has id 4 here and 2 in the vocabulary"},
      {"/added_tokens/0/id", "-3", "t.json.added_tokens[0].id: -3 is out of range"},
      {"/model", R"({"type": "Unigram", "unk_id": 2, "vocab": [["a", 0], ["b", -1]]})",
       "unk_id 2 is outside the vocabulary"},
      {"/model", R"({"type": "Unigram", "unk_id": 0, "vocab": [["a"]]})",
       "vocab[0]: must be a token and its score"},
  };
  for (const Fault& fault : faults) {
    json file = small();
    file[json::json_pointer(fault.place)] = json::parse(fault.value);
    EXPECT_THAT([&file] { load(file); }, ThrowsMessage<Error>(HasSubstr(fault.reason)))
        << fault.place << fault.value;
  }
}

TEST(TokenizerJson, RefusesWhatIsNoJson) {
  EXPECT_THAT([] { Tokenizer::from_json("{", "t.json"); },
              ThrowsMessage<Error>(HasSubstr("t.json: not JSON")));
  EXPECT_THAT([] { Tokenizer::from_json("[]", "t.json"); },
              ThrowsMessage<Error>(HasSubstr("t.json: must be an object")));
  EXPECT_THAT([] { Tokenizer::from_json_file("/no/such/file"); },
              ThrowsMessage<Error>(HasSubstr("/no/such/file")));
}

}  // namespace
}  // namespace strata
