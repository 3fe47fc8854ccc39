// Qwen4-Exp: the Qwen hybrid on several residual streams (hyper-connections), with sparse full attention
// (QSA) and hashed n-gram embeddings before some blocks.
#include <algorithm>
#include <cmath>
#include <deque>

#include "base/error.h"
#include "layers/hyper_residual.h"
#include "layers/ngram_embedding.h"
#include "model/families/families.h"
#include "model/families/qwen_hybrid.h"
#include "model/rope.h"

namespace strata {
namespace {

using qwen::kZeroCentred;

// A norm of each stream by itself: weights [S, D].
Norm stream_norm(const Weights& w, std::string_view name, int streams, const TextConfig& c) {
  Norm norm = w.norm(name, std::int64_t{streams} * c.dim, c.eps, kZeroCentred);
  norm.weight = norm.weight.reshape({streams, c.dim});
  return norm;
}

// The connections of a model, which its sublayers point to.
using Connections = std::deque<HyperConnection>;

const HyperConnection* connection(Connections& all, const Weights& w, int streams, const TextConfig& c,
                                  bool injects) {
  const int rank = w.config().get_int("hc_lowrank");
  const std::int64_t width = std::int64_t{streams} * c.dim;
  HyperConnection& hyper = all.emplace_back();
  hyper.norm = stream_norm(w, "hc_norm", streams, c);
  hyper.down = w.matrix("input_mix_weight_down", rank, width);
  hyper.up = w.matrix("input_mix_weight_up", width, rank);
  if (injects) hyper.inject = w.matrix("block_inject_weight", streams, width);
  return &hyper;
}

// i64 values of a published table.
template <std::size_t N>
void take_integers(const Weights& w, std::string_view name, std::int64_t count,
                   std::array<std::int64_t, N>& to) {
  const Tensor t = w.take(name, {count});
  if (t.dtype() != DType::kI64)
    throw Error("{}: expected i64, found {}", w.full(name), strata::name(t.dtype()));
  if (count > static_cast<std::int64_t>(N)) throw Error("{}: {} values, at most {}", w.full(name), count, N);
  std::copy_n(t.data<std::int64_t>(), count, to.begin());
}

// The table of hashed grams, in as many shards as it is published in.
Weight ngram_table(const Weights& w, int dim) {
  HostMatrix matrix;
  const auto add = [&](const std::string& name) {
    const std::optional<Shape> shape = w.shape_of(name);
    if (!shape || shape->rank() != 2) throw Error("{}: expected a matrix of {} columns", w.full(name), dim);
    matrix.pieces.push_back({w.take(name, {(*shape)[0], dim}), {}, false});
  };
  if (w.has("ngram_embedding.weight")) {
    add("ngram_embedding.weight");
  } else {
    for (int i = 0; i == 0 || w.has("ngram_embedding.shard_" + std::to_string(i) + ".weight"); ++i) {
      add("ngram_embedding.shard_" + std::to_string(i) + ".weight");
    }
  }
  return w.pack(matrix);
}

// The convolution's taps lie `gap` rows apart: written out with zeros between them [channels, (width - 1) *
// gap + 1].
Tensor spread_taps(const Weights& w, std::int64_t channels, std::int64_t width, std::int64_t gap) {
  const std::vector<float> taps = w.numbers("conv1d.weight", {channels, 1, width});
  const std::int64_t wide = (width - 1) * gap + 1;
  std::vector<float> spread(static_cast<std::size_t>(channels * wide));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < width; ++i)
      spread[static_cast<std::size_t>(c * wide + i * gap)] = taps[static_cast<std::size_t>(c * width + i)];
  }
  return w.ops().load_vector(Tensor(spread.data(), DType::kF32, {channels, wide}));
}

std::unique_ptr<TransformerLayer> ngram_embedding(const Weights& w, int streams, const TextConfig& c) {
  const Json& j = w.config();
  const Weights e = w.at("ple_embedding");
  const Json end = j.get("eos_token_id");
  NgramEmbeddingConfig config{.streams = streams,
                              .dim = c.dim,
                              .n = j.get_int("ngram_size", 3),
                              .heads = j.get_int("heads_per_ngram", 8),
                              .end_token = end.is_array() ? end[0].as_int() : j.get_int("eos_token_id")};
  const int grams = (config.n - 1) * config.heads, embedding = j.get_int("ple_embed_dim", c.dim);
  take_integers(e, "layer_multipliers", config.n, config.multipliers);
  take_integers(e, "ngram_heads_vocab_sizes", grams, config.sizes);
  take_integers(e, "ngram_heads_offsets", grams, config.offsets);
  const std::int64_t width = std::int64_t{streams} * c.dim;
  NgramEmbeddingWeights weights{
      .table = ngram_table(e, embedding / grams),
      .key = w.linear({{.name = "key_proj", .outputs = width}}, embedding),
      .value = w.linear({{.name = "value_proj", .outputs = c.dim}}, embedding),
      .key_norm = stream_norm(w, "norm_key", streams, c),
      .query_norm = stream_norm(w, "norm_query", streams, c),
      .conv_norm = stream_norm(w, "norm_conv", streams, c),
      .conv = spread_taps(w, width, j.get_int("ple_conv_kernel_size", 4), config.n)};
  for (int i = 0; i < grams; ++i) {
    const auto n = static_cast<std::size_t>(i);
    if (config.sizes[n] <= 0 || config.offsets[n] < 0 ||
        config.offsets[n] + config.sizes[n] > weights.table.outputs()) {
      throw Error("{}: hash {} has rows [{}, +{}) of {}", e.full("ngram_heads_offsets"), i, config.offsets[n],
                  config.sizes[n], weights.table.outputs());
    }
  }
  return std::make_unique<NgramEmbedding>(config, std::move(weights));
}

std::optional<Indexer> indexer(const Weights& w, const TextConfig& c) {
  const Json& j = w.config();
  if (!j.has("indexer_n_heads")) return std::nullopt;
  const int dim = j.get_int("indexer_head_dim"), block = j.get_int("indexer_compress_ratio");
  return Indexer{.heads = j.get_int("indexer_n_heads"),
                 .dim = dim,
                 .block = block,
                 .most = j.get_int("indexer_budget") / block,
                 .q_norm = w.norm("q_layernorm", dim, c.eps, kZeroCentred).weight,
                 .k_norm = w.norm("k_layernorm", dim, c.eps, kZeroCentred).weight};
}

Model build(const Weights& w) {
  const Json& j = w.config();
  const TextConfig c(j);
  const int streams = j.get_int("hc_count", 4);
  const auto rope = load_rope(j, c.head_dim, w.ops());
  const std::vector<int> with_ngrams =
      j.has("ple_layer_ids") ? j.get_ints("ple_layer_ids") : std::vector<int>{};
  Model model;
  load_ends(model, w, c, {.norm = ""});
  const auto connections = std::make_shared<Connections>();
  model.storage = connections;
  const auto on_streams = [&](const Weights& block, std::string_view name) {
    return Sublayer{.norm = {}, .hyper = connection(*connections, block.at(name), streams, c, true)};
  };
  model.make_residual =
      [streams, end = connection(*connections, w.at("hyper_connection_mixer"), streams, c, false)](
          Tensor x, Ops& ops) { return std::make_unique<HyperResidual>(x, streams, *end, ops); };
  for (int i = 0; i < c.layers; ++i) {
    const Weights layer = w.layer(i);
    if (std::find(with_ngrams.begin(), with_ngrams.end(), i + 1) != with_ngrams.end()) {
      add_layer(model, i, "ngram_embedding", ngram_embedding(layer.at("ple"), streams, c));
    }
    Sublayer mixer = on_streams(layer, "attn_hyper_connection");
    if (qwen::full_attention(j, i)) {
      add_layer(model, i, "attention",
                qwen::attention(layer, c, rope, std::move(mixer),
                                {.indexer = indexer(layer.at("self_attn.indexer"), c)}));
    } else {
      const Activation gate = activation_of(j, j.has("output_gate_type") ? "output_gate_type" : "hidden_act");
      add_layer(model, i, "gated_delta_net", qwen::delta_net(layer, c, std::move(mixer), gate));
    }
    add_layer(model, i, "moe", qwen::moe(layer, c, on_streams(layer, "mlp_hyper_connection")));
  }
  return model;
}

}  // namespace

std::vector<Family> qwen4_families() {
  return {{"qwen4_exp",
           {"Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"},
           {"qwen4_exp_text", "qwen4_exp"},
           "Qwen4-Exp: the Qwen hybrid on several residual streams",
           {"hybrid", "MoE", "shared expert", "hyper-connections", "sparse attention", "n-gram embeddings"},
           build,
           R"({"partial_rotary_factor": 0.25, "head_dim": 256})",
           {{"layer_types", "full_attention|qwen_sparse_attention|linear_attention"},
            {"hidden_act", "silu|swish"},
            {"indexer_kv_heads", "1"}}}};
}

}  // namespace strata
