#include "loader/dummy.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "base/error.h"
#include "tensor/quant.h"
#include "tensor/shape.h"

namespace strata {
namespace {

constexpr std::int64_t kScaleBlock = 128;
constexpr float kDeviation = 0.02F;  // of bf16 matrices, as models are initialised
constexpr float kF8Deviation = 16;   // of f8 ones before their scale: most of the type's range
constexpr std::size_t kMostBlock = std::size_t{16} << 20;  // what is mapped again and again

// What a tensor is filled with: kNarrow, what the layers' matrices are where that is not bf16.
enum class Fill : std::uint8_t { kMatrix, kNarrow, kOnes, kScales };
constexpr int kFills = 4;

DType dtype_of(Fill fill, DType matrices) { return fill == Fill::kNarrow ? matrices : DType::kBF16; }

// Bytes mapped again and again: pages of whole blocks of the type.
std::size_t repeated_bytes(DType type) {
  constexpr std::size_t kPage = 4096;
  const std::size_t unit = kPage * static_cast<std::size_t>(info(type).block_bytes);
  return kMostBlock / unit * unit;
}

void fill_block(Fill fill, DType type, std::byte* to, std::size_t bytes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> some(1 << 16);
  for (float& x : some) x = normal(random);
  const auto draw = [&](std::size_t i) { return some[(i * 2654435761U >> 9) % some.size()]; };
  if (type == DType::kF8E4M3) {
    for (std::size_t i = 0; i < bytes; ++i)
      to[i] = static_cast<std::byte>(float_to_f8e4m3(kF8Deviation * draw(i)));
    return;
  }
  if (is_block_type(type)) {
    constexpr std::size_t kSome = 4096;  // quantised blocks, of which the rest are copies
    const auto block = static_cast<std::size_t>(info(type).block_bytes),
               elements = kSome * static_cast<std::size_t>(info(type).block_elements);
    std::vector<float> x(elements);
    for (std::size_t i = 0; i < elements; ++i) x[i] = kDeviation * draw(i);
    quantize_row(type, x.data(), static_cast<std::int64_t>(elements), to);
    for (std::size_t at = kSome * block; at < bytes; at += block) std::memcpy(to + at, to + at % (kSome * block), block);
    return;
  }
  for (std::size_t i = 0; i < bytes / sizeof(BFloat16); ++i) {
    const float x = fill == Fill::kMatrix ? kDeviation * draw(i)
                    : fill == Fill::kOnes ? 1
                                          : kDeviation / kF8Deviation;
    const BFloat16 value = to_bfloat16(x);
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
  }
}

// A read-only range of addresses that shows one block over and over.
class Repeated {
 public:
  Repeated() = default;
  Repeated(Fill fill, DType type, std::size_t bytes) {
    if (bytes == 0) return;
    const std::size_t each = repeated_bytes(type);
    bytes_ = (bytes + each - 1) / each * each;
    const int file = memfd_create("strata-dummy-weights", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(each)) != 0)
      throw Error("dummy weights: no memory file: {}", std::strerror(errno));
    void* block = mmap(nullptr, each, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void* range = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool mapped = block != MAP_FAILED && range != MAP_FAILED;
    if (mapped) {
      fill_block(fill, type, static_cast<std::byte*>(block), each);
      data_ = static_cast<std::byte*>(range);
      for (std::size_t at = 0; at < bytes_ && mapped; at += each)
        mapped = mmap(data_ + at, each, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    }
    if (block != MAP_FAILED) munmap(block, each);
    close(file);
    if (!mapped) throw Error("dummy weights: cannot map {} MiB: {}", bytes_ >> 20, std::strerror(errno));
  }
  ~Repeated() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  const std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Collects names and shapes as a family's checkpoints have them.
class Lister {
 public:
  struct Item {
    std::string name;
    Fill fill;
    std::vector<std::int64_t> extents;
    std::size_t at = 0;  // bytes into the range of its fill
  };

  Lister(const Json& config, DType matrices) : c_(config), matrices_(matrices) {
    dim_ = c_.get_int("hidden_size");
    heads_ = c_.get_int("num_attention_heads");
    kv_heads_ = c_.get_int("num_key_value_heads", static_cast<int>(heads_));
    head_dim_ = c_.get_int("head_dim", static_cast<int>(dim_ / heads_));
  }

  std::vector<Item> list(const std::string& type) {
    const bool next = type == "qwen3_next", hybrid = next || type.starts_with("qwen3_5");
    const std::int64_t vocab = c_.get_int("vocab_size");
    add("model.embed_tokens.weight", Fill::kMatrix, {vocab, dim_});
    if (!c_.get_bool("tie_word_embeddings", false)) add("lm_head.weight", Fill::kMatrix, {vocab, dim_});
    norm("model.norm", dim_);
    const int layers = c_.get_int("num_hidden_layers");
    for (int i = 0; i < layers; ++i) {
      const std::string at = "model.layers." + std::to_string(i) + ".";
      block(at);
      if (hybrid && !full_attention(i)) {
        delta_net(at + "linear_attn.", next);
      } else {
        attention(at + "self_attn.", type);
      }
      feed_forward(at + "mlp.");
    }
    if (!hybrid) return std::move(items_);
    for (int i = 0; i < c_.get_int("mtp_num_hidden_layers", 0); ++i) {
      const std::string at = "mtp.layers." + std::to_string(i) + ".";
      if (i == 0) {
        for (const char* name : {"norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"})
          norm(std::string("mtp.") + name, dim_);
        add("mtp.fc.weight", Fill::kMatrix, {dim_, 2 * dim_});
      }
      block(at);
      attention(at + "self_attn.", type);
      feed_forward(at + "mlp.");
    }
    return std::move(items_);
  }

 private:
  void add(std::string name, Fill fill, std::vector<std::int64_t> extents) {
    items_.push_back({std::move(name), fill, std::move(extents)});
  }
  void norm(const std::string& name, std::int64_t dim) { add(name + ".weight", Fill::kOnes, {dim}); }
  void matrix(const std::string& name, std::vector<std::int64_t> extents) {
    if (matrices_ != DType::kF8E4M3)
      return add(name, matrices_ == DType::kBF16 ? Fill::kMatrix : Fill::kNarrow, std::move(extents));
    std::vector<std::int64_t> blocks = extents;
    for (std::size_t i = blocks.size() - 2; i < blocks.size(); ++i)
      blocks[i] = (blocks[i] + kScaleBlock - 1) / kScaleBlock;
    add(name, Fill::kNarrow, std::move(extents));
    add(name + "_scale_inv", Fill::kScales, std::move(blocks));
  }
  void block(const std::string& at) {
    norm(at + "input_layernorm", dim_);
    norm(at + "post_attention_layernorm", dim_);
  }
  bool full_attention(int layer) const {
    if (c_.has("layer_types"))
      return c_.get_strings("layer_types").at(static_cast<std::size_t>(layer)) != "linear_attention";
    return (layer + 1) % c_.get_int("full_attention_interval", 4) == 0;
  }

  void attention(const std::string& at, const std::string& type) {
    const bool hybrid = type == "qwen3_next" || type.starts_with("qwen3_5"), bias = type == "qwen2";
    const std::int64_t q = heads_ * head_dim_ * (hybrid && c_.get_bool("attn_output_gate", true) ? 2 : 1),
                       kv = kv_heads_ * head_dim_;
    for (const auto& [name, rows] : {std::pair{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}) {
      matrix(at + name + ".weight", {rows, dim_});
      if (bias) add(at + name + ".bias", Fill::kMatrix, {rows});
    }
    matrix(at + "o_proj.weight", {dim_, heads_ * head_dim_});
    if (type.starts_with("qwen3")) {
      norm(at + "q_norm", head_dim_);
      norm(at + "k_norm", head_dim_);
    }
  }
  void delta_net(const std::string& at, bool grouped) {
    const std::int64_t Hk = c_.get_int("linear_num_key_heads"), Hv = c_.get_int("linear_num_value_heads"),
                       keys = Hk * c_.get_int("linear_key_head_dim"), V = c_.get_int("linear_value_head_dim"),
                       values = Hv * V;
    if (grouped) {
      matrix(at + "in_proj_qkvz.weight", {2 * keys + 2 * values, dim_});
      add(at + "in_proj_ba.weight", Fill::kMatrix, {2 * Hv, dim_});
    } else {
      matrix(at + "in_proj_qkv.weight", {2 * keys + values, dim_});
      matrix(at + "in_proj_z.weight", {values, dim_});
      add(at + "in_proj_b.weight", Fill::kMatrix, {Hv, dim_});
      add(at + "in_proj_a.weight", Fill::kMatrix, {Hv, dim_});
    }
    add(at + "conv1d.weight", Fill::kOnes, {2 * keys + values, 1, c_.get_int("linear_conv_kernel_dim", 4)});
    add(at + "A_log", Fill::kMatrix, {Hv});
    add(at + "dt_bias", Fill::kMatrix, {Hv});
    norm(at + "norm", V);
    matrix(at + "out_proj.weight", {dim_, values});
  }
  void swiglu(const std::string& at, std::int64_t ffn) {
    matrix(at + "gate_proj.weight", {ffn, dim_});
    matrix(at + "up_proj.weight", {ffn, dim_});
    matrix(at + "down_proj.weight", {dim_, ffn});
  }
  void feed_forward(const std::string& at) {
    const std::int64_t experts = c_.get_int("num_experts", c_.get_int("num_local_experts", 0));
    if (experts == 0) return swiglu(at, c_.get_int("intermediate_size"));
    add(at + "gate.weight", Fill::kMatrix, {experts, dim_});
    const std::int64_t ffn = c_.get_int("moe_intermediate_size");
    matrix(at + "experts.gate_up_proj", {experts, 2 * ffn, dim_});
    matrix(at + "experts.down_proj", {experts, dim_, ffn});
    if (const int shared = c_.get_int("shared_expert_intermediate_size", 0); shared > 0) {
      swiglu(at + "shared_expert.", shared);
      add(at + "shared_expert_gate.weight", Fill::kMatrix, {1, dim_});
    }
  }

  const Json& c_;
  DType matrices_;
  std::int64_t dim_, heads_, kv_heads_, head_dim_;
  std::vector<Item> items_;
};

class DummySource final : public TensorSource {
 public:
  DummySource(const ModelConfig& config, DType matrices) {
    const std::string& type = config.model_type();
    constexpr std::array kKnown = {"llama",   "qwen2",        "qwen3",       "qwen3_moe",       "qwen3_next",
                                   "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"};
    if (std::find(kKnown.begin(), kKnown.end(), type) == kKnown.end())
      throw Error("{}: no dummy weights for model_type \"{}\"", config.root().origin(), type);
    std::vector<Lister::Item> items = Lister(config.text(), matrices).list(type);
    std::array<std::size_t, kFills> bytes{};
    const auto bytes_of_item = [&](const Lister::Item& item) {
      const DType dtype = dtype_of(item.fill, matrices);
      if (item.extents.back() % info(dtype).block_elements != 0)
        throw Error("{}: dummy weights: {} has rows of {}, which are not whole {} blocks", config.root().origin(),
                    item.name, item.extents.back(), name(dtype));
      std::int64_t elements = 1;
      for (const std::int64_t e : item.extents) elements *= e;
      return bytes_of(dtype, elements);
    };
    for (Lister::Item& item : items) {
      auto& end = bytes[static_cast<std::size_t>(item.fill)];
      item.at = end;
      const auto unit = 64 * static_cast<std::size_t>(info(dtype_of(item.fill, matrices)).block_bytes);
      end += (bytes_of_item(item) + unit - 1) / unit * unit;
    }
    for (std::size_t i = 0; i < kFills; ++i) {
      const auto fill = static_cast<Fill>(i);
      ranges_[i] = std::make_unique<const Repeated>(fill, dtype_of(fill, matrices), bytes[i]);
    }
    for (Lister::Item& item : items) {
      tensors_.push_back(
          {.name = std::move(item.name),
           .file = "dummy weights",
           .dtype = dtype_of(item.fill, matrices),
           .extents = item.extents,
           .bytes = {ranges_[static_cast<std::size_t>(item.fill)]->data() + item.at, bytes_of_item(item)},
           .convert = {}});
    }
  }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }

 private:
  std::array<std::unique_ptr<const Repeated>, kFills> ranges_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace

std::unique_ptr<const TensorSource> dummy_source(const ModelConfig& config, DType matrices) {
  constexpr std::array kTypes = {DType::kBF16, DType::kF8E4M3, DType::kQ4_0,
                                 DType::kQ4_1, DType::kMXFP4,  DType::kNVFP4};
  if (std::find(kTypes.begin(), kTypes.end(), matrices) == kTypes.end())
    throw Error("dummy weights of {}: bf16, f8_e4m3, q4_0, q4_1, mxfp4 or nvfp4", name(matrices));
  return std::make_unique<const DummySource>(config, matrices);
}

}  // namespace strata
