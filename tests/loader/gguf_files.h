// GGUF files for tests: small models written by hand.
#pragma once

#include <cstring>
#include <fstream>
#include <sstream>

#include "loader/gguf_writer.h"
#include "loader/temp_folder.h"

namespace strata {

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::span<const std::byte> as_span(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

// A llama of one block of 2 heads of 4 channels, width 8, 5 tokens; tensor i holds i, i + 1, ... in f32.
inline void set_tiny_llama(GgufWriter& out) {
  out.set("general.architecture", std::string_view("llama"));
  out.set("llama.block_count", std::int64_t{1});
  out.set("llama.embedding_length", std::int64_t{8});
  out.set("llama.feed_forward_length", std::int64_t{16});
  out.set("llama.context_length", std::int64_t{64});
  out.set("llama.attention.head_count", std::int64_t{2});
  out.set("llama.attention.layer_norm_rms_epsilon", 1e-5);
}

struct TinyTensor {
  std::string name;
  Shape shape;
};

inline std::vector<TinyTensor> tiny_llama_tensors() {
  return {{"token_embd.weight", {5, 8}},          {"output_norm.weight", {8}},        {"blk.0.attn_norm.weight", {8}},
          {"blk.0.attn_q.weight", {8, 8}},        {"blk.0.attn_k.weight", {8, 8}},    {"blk.0.attn_v.weight", {8, 8}},
          {"blk.0.attn_output.weight", {8, 8}},   {"blk.0.ffn_norm.weight", {8}},     {"blk.0.ffn_gate.weight", {16, 8}},
          {"blk.0.ffn_up.weight", {16, 8}},       {"blk.0.ffn_down.weight", {8, 16}}};
}

inline void write_tensors(GgufWriter& out, const std::vector<TinyTensor>& tensors) {
  for (const TinyTensor& t : tensors) out.declare(t.name, DType::kF32, t.shape);
  float next = 0;
  for (const TinyTensor& t : tensors) {
    std::vector<float> values(static_cast<std::size_t>(t.shape.elements()));
    float value = next++;
    for (float& v : values) v = value++;
    out.write(std::as_bytes(std::span(values)));
  }
  out.close();
}

inline std::filesystem::path write_tiny_llama(const std::filesystem::path& path) {
  GgufWriter out(path);
  set_tiny_llama(out);
  write_tensors(out, tiny_llama_tensors());
  return path;
}

}  // namespace strata
