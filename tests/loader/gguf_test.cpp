// The GGUF reader: what the writer writes, every planted fault, split files, vocabularies.
#include "loader/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/checkpoint.h"
#include "loader/gguf_files.h"
#include "loader/gguf_vocabulary.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GgufReader, ReadsBackEveryKindOfValue) {
  const TempFolder folder;
  {
    GgufWriter out(folder / "m.gguf");
    out.set("small", std::int64_t{7});
    out.set("negative", std::int64_t{-7});
    out.set("large", std::int64_t{1} << 40);
    out.set("float", 0.25);
    out.set("yes", true);
    out.set("text", std::string_view("caf\u00e9"));
    out.set("ints", GgufInts{1, -2, 3});
    out.set("floats", GgufFloats{0.5, -1});
    out.set("texts", GgufTexts{"a", "", "b c"});
    out.set("bools", GgufBools{true, false});
    out.set("small", std::int64_t{8});
    out.close();
  }
  const std::string bytes = file_bytes(folder / "m.gguf");
  const GgufContent c = parse_gguf(as_span(bytes), "m.gguf");
  EXPECT_TRUE(c.tensors.empty());
  const GgufMetadata& m = c.metadata;
  EXPECT_EQ(m.values().size(), 10U);
  EXPECT_EQ(m.get_int("small"), 8);
  EXPECT_EQ(m.get_int("negative"), -7);
  EXPECT_EQ(m.get_int("large"), std::int64_t{1} << 40);
  EXPECT_EQ(m.get_float("float"), 0.25);
  EXPECT_TRUE(m.get_bool("yes"));
  EXPECT_EQ(m.get_text("text"), "caf\u00e9");
  EXPECT_THAT(m.get_ints("ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(m.get_ints("bools"), ElementsAre(1, 0));
  EXPECT_THAT(m.get_floats("floats"), ElementsAre(0.5, -1));
  EXPECT_THAT(m.get_texts("texts"), ElementsAre("a", "", "b c"));
  EXPECT_EQ(error_of([&] { m.get_int("text"); }), "m.gguf: key text: expected an integer, found a text");
  EXPECT_EQ(error_of([&] { m.get_texts("none"); }), "m.gguf: key none is missing");
  EXPECT_EQ(error_of([&] { m.get_common_int("ints"); }), "m.gguf: key ints differs from layer to layer, which is not supported");
}

TEST(GgufReader, RefusesEveryTruncation) {
  const TempFolder folder;
  const std::string bytes = file_bytes(write_tiny_llama(folder / "m.gguf"));
  const std::size_t tensors = parse_gguf(as_span(bytes), "m.gguf").tensors.size();
  ASSERT_EQ(tensors, tiny_llama_tensors().size());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const std::string part = bytes.substr(0, n);
    EXPECT_THAT(error_of([&] { parse_gguf(as_span(part), "m.gguf"); }), HasSubstr("m.gguf: ")) << n;
  }
  EXPECT_THAT(error_of([&] { parse_gguf(as_span(bytes + std::string(32, 'x')), "m.gguf"); }), HasSubstr("32 bytes follow the last tensor"));
}

// The tiny file with `from` replaced by `to` at its first place.
std::string with(std::string bytes, std::string_view from, std::string_view to) {
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, from.size(), to);
}

std::string little(std::uint64_t n, std::size_t bytes = 8) {
  std::string out(bytes, '\0');
  std::memcpy(out.data(), &n, bytes);
  return out;
}

TEST(GgufReader, NamesWhatIsWrong) {
  const TempFolder folder;
  const std::string good = file_bytes(write_tiny_llama(folder / "m.gguf"));
  const auto error = [&](const std::string& bytes) { return error_of([&] { parse_gguf(as_span(bytes), "m.gguf"); }); };
  EXPECT_EQ(error(good), "");
  EXPECT_EQ(error(with(good, "GGUF", "GGML")), "m.gguf: not a GGUF file");
  EXPECT_THAT(error(with(good, "GGUF" + little(3, 4), "GGUF" + little(1, 4))), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(error(with(good, "GGUF" + little(3, 4), "GGUF" + little(3U << 24, 4))), HasSubstr("a big-endian file"));
  const std::string name = "blk.0.attn_q.weight";
  EXPECT_THAT(error(with(good, "blk.0.attn_k.weight", name)), HasSubstr("tensor " + name + ": is there twice"));
  EXPECT_THAT(error(with(good, name + little(2, 4), name + little(5, 4))), HasSubstr("tensor " + name + ": 5 extents"));
  EXPECT_THAT(error(with(good, name + little(2, 4) + little(8), name + little(2, 4) + little(0))), HasSubstr("an extent of 0"));
  EXPECT_THAT(error(with(good, name + little(2, 4) + little(8), name + little(2, 4) + little(std::uint64_t{1} << 60))), HasSubstr("an extent of"));
  const std::string type = name + little(2, 4) + little(8) + little(8);
  EXPECT_THAT(error(with(good, type + little(0, 4), type + little(17, 4))), HasSubstr("element type 17 is not supported"));
  EXPECT_THAT(error(with(good, type + little(0, 4), type + little(2, 4))), HasSubstr("rows of 8 elements are not whole q4_0 blocks of 32"));
  // Its data begin elsewhere: over the tensor before, and beyond.
  const std::size_t at = good.find(type) + type.size() + 4;
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
    EXPECT_THAT(error(std::string(good).replace(at, 8, little(offset))), HasSubstr("its data begin at")) << offset;
  }
  EXPECT_THAT(error(with(good, "llama.block_count", "general.alignment")), HasSubstr("bytes follow the last tensor")) << "alignment 1";
  EXPECT_THAT(error(with(good, "llama.block_count" + little(4, 4) + little(1, 4), "general.alignment" + little(4, 4) + little(24, 4))),
              HasSubstr("general.alignment is 24"));
  EXPECT_THAT(error(with(good, "llama.block_count" + little(4, 4), "llama.block_count" + little(13, 4))), HasSubstr("unknown value type 13"));
}

TEST(GgufReader, PublishesNamesRowsAndConfiguration) {
  const TempFolder folder;
  Checkpoint c = Checkpoint::open(write_tiny_llama(folder / "m.gguf"));
  EXPECT_EQ(c.config().architecture(), "LlamaForCausalLM");
  EXPECT_EQ(c.config().text().get_int("head_dim"), 4);
  EXPECT_EQ(c.config().text().get_int("num_key_value_heads"), 2);
  EXPECT_TRUE(c.config().text().get_bool("tie_word_embeddings"));
  EXPECT_FALSE(c.config().text().get_bool("attention_bias"));
  // Rows of each head lie in pairs (0, 2), (1, 3); row r of the file holds 3 + 8 r, ...
  const Tensor q = c.take("layers.0.self_attn.q_proj.weight", {8, 8});
  for (const auto& [published, file] : {std::pair{0, 0}, {1, 2}, {2, 1}, {3, 3}, {4, 4}, {5, 6}, {6, 5}, {7, 7}}) {
    EXPECT_EQ(q.row<float>(published)[0], 3 + 8 * file) << published;
    EXPECT_EQ(q.row<float>(published)[7], 3 + 8 * file + 7) << published;
  }
  EXPECT_EQ(c.take("layers.0.self_attn.v_proj.weight", {8, 8}).row<float>(1)[0], 5 + 8);
  EXPECT_THAT(error_of([&] { c.finish(); }), HasSubstr("9 tensors are left over"));
  EXPECT_EQ(Checkpoint::open(folder.path()).list().size(), tiny_llama_tensors().size()) << "a folder with one GGUF file";
  write_tiny_llama(folder / "n.gguf");
  EXPECT_THAT(error_of([&] { Checkpoint::open(folder.path()); }), HasSubstr("holds 2 GGUF files, for example m.gguf and n.gguf: name one"));
}

TEST(GgufReader, RefusesOddModels) {
  const TempFolder folder;
  const auto error = [&](const std::function<void(GgufWriter&)>& change) {
    {
      GgufWriter out(folder / "m.gguf");
      set_tiny_llama(out);
      change(out);
      write_tensors(out, tiny_llama_tensors());
    }
    return error_of([&] { Checkpoint::open(folder / "m.gguf"); });
  };
  EXPECT_THAT(error([](GgufWriter& w) { w.set("general.architecture", std::string_view("bert")); }), HasSubstr("architecture \"bert\" is not supported in GGUF (llama, smollm3, qwen2"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.block_count", std::int64_t{100}); }), HasSubstr("100 blocks"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.attention.key_length", std::int64_t{8}); }), HasSubstr("tensor blk.0.attn_q.weight [8, 8]: expected 16 rows"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.attention.head_count", std::int64_t{0}); }), HasSubstr("head_count is 0"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.expert_count", std::int64_t{8}); }), HasSubstr("llama with experts"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.rope.scaling.type", std::string_view("longrope")); }), HasSubstr("\"longrope\" is not supported"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("llama.attention.head_count_kv", GgufInts{1, 2}); }), HasSubstr("differs from layer to layer"));
}

TEST(GgufReader, ReadsSplitFiles) {
  const TempFolder folder;
  const std::vector<TinyTensor> all = tiny_llama_tensors();
  const auto part = [&](int number, std::int64_t said_number, std::int64_t count, std::size_t first, std::size_t last) {
    GgufWriter out(folder / fmt::format("m-{:05}-of-00002.gguf", number));
    if (number == 1) set_tiny_llama(out);
    out.set("split.no", said_number);
    out.set("split.count", count);
    out.set("split.tensors.count", std::int64_t{11});
    write_tensors(out, {all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last)});
  };
  const auto open = [&](int number) { return Checkpoint::open(folder / fmt::format("m-{:05}-of-00002.gguf", number)); };
  part(1, 0, 2, 0, 4);
  EXPECT_THAT(error_of([&] { open(1); }), HasSubstr("m-00002-of-00002.gguf: part missing"));
  part(2, 1, 2, 4, 11);
  EXPECT_EQ(open(1).list().size(), 11U);
  EXPECT_EQ(open(2).list().size(), 11U) << "any part stands for all";
  EXPECT_EQ(Checkpoint::open(folder.path()).list().size(), 11U);
  part(2, 0, 2, 4, 11);
  EXPECT_THAT(error_of([&] { open(1); }), HasSubstr("split.no is 0, expected 1"));
  part(2, 1, 3, 4, 11);
  EXPECT_THAT(error_of([&] { open(1); }), HasSubstr("is of a model in 3 parts, 2 are there"));
  part(2, 1, 2, 3, 11);
  EXPECT_THAT(error_of([&] { open(1); }), HasSubstr("tensor blk.0.attn_q.weight is in an earlier part too"));
  part(2, 1, 2, 5, 11);
  EXPECT_THAT(error_of([&] { open(1); }), HasSubstr("the parts hold 10 tensors of 11"));
}

TEST(GgufVocabulary, IsReadAndChecked) {
  const TempFolder folder;
  const auto write = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter out(folder / "m.gguf");
    out.set("tokenizer.ggml.model", std::string_view("gpt2"));
    out.set("tokenizer.ggml.pre", std::string_view("qwen2"));
    out.set("tokenizer.ggml.tokens", GgufTexts{"a", "b", "ab", "<|im_end|>", "<|x|>"});
    out.set("tokenizer.ggml.token_type", GgufInts{1, 1, 1, 3, 3});
    out.set("tokenizer.ggml.merges", GgufTexts{"a b"});
    out.set("tokenizer.ggml.eos_token_id", std::int64_t{4});
    out.set("tokenizer.ggml.add_bos_token", false);
    out.set("tokenizer.chat_template", std::string_view("{{ messages }}"));
    change(out);
    out.close();
    return folder / "m.gguf";
  };
  const GgufVocabulary v = load_gguf_vocabulary(write([](GgufWriter&) {}));
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "qwen2");
  EXPECT_THAT(v.tokens, ElementsAre("a", "b", "ab", "<|im_end|>", "<|x|>"));
  EXPECT_THAT(v.types, ElementsAre(1, 1, 1, 3, 3));
  EXPECT_THAT(v.merges, ElementsAre("a b"));
  EXPECT_EQ(v.eos, 4);
  EXPECT_EQ(v.bos, std::nullopt);
  EXPECT_EQ(v.add_bos, false);
  EXPECT_THAT(v.end_tokens, ElementsAre(4, 3)) << "the named one, and what its spelling tells";
  EXPECT_EQ(v.chat_template, "{{ messages }}");
  const auto error = [&](const std::function<void(GgufWriter&)>& change) { return error_of([&] { load_gguf_vocabulary(write(change)); }); };
  EXPECT_THAT(error([](GgufWriter& w) { w.set("tokenizer.ggml.bos_token_id", std::int64_t{5}); }), HasSubstr("bos_token_id is 5 of 5 tokens"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("tokenizer.ggml.scores", GgufFloats{1}); }), HasSubstr("scores has 1 entries for 5 tokens"));
  EXPECT_THAT(error([](GgufWriter& w) { w.set("tokenizer.ggml.token_type", GgufInts{1, 1, 1, 1, 9}); }), HasSubstr("token_type holds 9"));
}

}  // namespace
}  // namespace strata
