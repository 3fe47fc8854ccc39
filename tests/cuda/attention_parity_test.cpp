// Parity of prepare_qkv and attention: paged, ragged, with every option.
#include "cuda/parity.h"

namespace strata::testing {
namespace {

class AttentionParity : public Parity {};
STRATA_PARITY(AttentionParity);

struct Case {
  const char* what;
  int heads, kv_heads, dim, value_dim;  // value_dim 0: values are the first `mla` columns of the keys
  int mla = 0;
  int window = 0, skip = 0;
  float softcap = 0;
  bool sinks = false, gate = false, norms = false, interleaved = false;
  int pairs = 0;
  DType kv = DType::kBF16;
  float sharp = 1;  // factor of the scores
};

const Case kCases[] = {
    {.what = "plain 128", .heads = 8, .kv_heads = 2, .dim = 128, .value_dim = 128, .norms = true, .pairs = 64},
    {.what = "gated 256", .heads = 16, .kv_heads = 2, .dim = 256, .value_dim = 256, .gate = true, .norms = true, .pairs = 32},
    {.what = "sharp 256", .heads = 16, .kv_heads = 2, .dim = 256, .value_dim = 256, .gate = true, .pairs = 32, .sharp = 20},
    {.what = "sharp 128", .heads = 6, .kv_heads = 2, .dim = 128, .value_dim = 128, .pairs = 64, .sharp = 20},
    {.what = "64, window, sinks", .heads = 8, .kv_heads = 1, .dim = 64, .value_dim = 64, .window = 70, .sinks = true, .pairs = 32},
    {.what = "odd", .heads = 3, .kv_heads = 3, .dim = 20, .value_dim = 12, .skip = 1, .interleaved = true, .pairs = 5},
    {.what = "softcap", .heads = 4, .kv_heads = 2, .dim = 128, .value_dim = 128, .softcap = 5, .pairs = 64},
    {.what = "values in keys", .heads = 4, .kv_heads = 1, .dim = 72, .value_dim = 0, .mla = 64, .pairs = 4},
    {.what = "f8 pages", .heads = 8, .kv_heads = 2, .dim = 128, .value_dim = 128, .pairs = 64, .kv = DType::kF8E4M3},
    {.what = "f32 pages", .heads = 4, .kv_heads = 4, .dim = 64, .value_dim = 64, .kv = DType::kF32},
};

TEST_P(AttentionParity, EveryOption) {
  const std::vector<int> lengths = {1, 64, 65, 130, 321, 40};
  const PageTables tables(lengths, 7);
  // A prefill of everything but the last rows, then decode, verify and chunk rows together with a padding row.
  const std::vector<int> last = {0, 1, 3, 8, 16, 33};
  Step prefill, rest;
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
    const auto i = static_cast<std::size_t>(s);
    if (lengths[i] > last[i]) prefill.push_back({.sequence = s, .start = 0, .rows = lengths[i] - last[i]});
    if (last[i] > 0) rest.push_back({.sequence = s, .start = lengths[i] - last[i], .rows = last[i]});
  }
  rest.push_back({.sequence = 0, .start = 0, .rows = 1, .padding = true});
  unsigned seed = 30;
  for (const Case& c : kCases) {
    const int values = c.value_dim == 0 ? c.mla : c.value_dim;
    const Shape k_shape{tables.total, kPageTokens, c.kv_heads, c.dim}, v_shape{tables.total, kPageTokens, c.kv_heads, values};
    const DType kv_type = bf16() ? c.kv : DType::kF32;
    const auto pages = [&](const Shape& shape) {
      HostTensor host(shape, kv_type);  // all bits set: NaN until written
      std::memset(host.view().raw(), 0xff, host.view().bytes());
      return both(std::move(host), kv_type);
    };
    const Pair k_pages = pages(k_shape), v_pages = c.value_dim > 0 ? pages(v_shape) : Pair{};
    const Pair q_norm = vector(c.dim, 31, 0.2F, 1), k_norm = vector(c.dim, 32, 0.2F, 1), sinks = vector(c.heads, 33);
    Rope on_cpu, on_gpu;
    if (c.pairs > 0) {
      const Pair freq = vector(c.pairs, 34, 0.3F);
      on_cpu.inv_freq = freq.cpu, on_gpu.inv_freq = freq.gpu;
      on_cpu.interleaved = on_gpu.interleaved = c.interleaved;
      on_cpu.scale = on_gpu.scale = 1.1F;
    }
    for (const Step& step : {prefill, rest}) {
      const HostBatch host(step, tables);
      const Batch batch = send(host);
      const int rows = host.batch.shape.rows, kv = c.kv_heads * c.dim, q_size = c.heads * c.dim, out_size = c.heads * values;
      const Pair qkv = activations({rows, q_size + out_size + kv + c.kv_heads * values}, ++seed), out = poisoned({rows, out_size});
      const auto part = [&](int at, int heads, int dim) { return qkv.columns(at, heads * dim).reshape({rows, heads, dim}); };
      const Pair q = part(0, c.heads, c.dim), gate = part(q_size, c.heads, values), k = part(q_size + out_size, c.kv_heads, c.dim),
                 v = part(q_size + out_size + kv, c.kv_heads, values);
      const bool has_v = c.value_dim > 0;
      const auto run = [&](Ops& ops, auto side, const Rope& rope, const Batch& b) {
        const KvView view{side(k_pages), has_v ? side(v_pages) : Tensor(), {}};
        ops.prepare_qkv({.q = side(q), .k = side(k), .v = has_v ? side(v) : Tensor(), .q_norm = c.norms ? side(q_norm) : Tensor(),
                         .k_norm = c.norms ? side(k_norm) : Tensor(), .v_norm = {}, .eps = 1e-6F,
                         .rope = c.pairs > 0 ? &rope : nullptr, .kv = view}, b);
        ops.attention({.out = side(out).reshape({rows, c.heads, values}), .q = side(q), .kv = view,
                       .scale = c.sharp / std::sqrt(static_cast<float>(c.dim)), .window = c.window, .skip = c.skip, .softcap = c.softcap,
                       .sinks = c.sinks ? side(sinks) : Tensor(), .gate = c.gate ? side(gate) : Tensor()}, b);
      };
      run(cpu(), [](const Pair& p) { return p.cpu; }, on_cpu, host.batch);
      run(gpu(), [](const Pair& p) { return p.gpu; }, on_gpu, batch);
      EXPECT_LT(distance(qkv), tolerance()) << c.what << ", rows of q, k, v";
      EXPECT_LT(distance(k_pages), kv_type == DType::kF8E4M3 ? 2e-2 : tolerance()) << c.what << ", keys";
      EXPECT_LT(distance(out), kv_type == DType::kF8E4M3 ? 3e-2 : 1.5 * tolerance()) << c.what << ", " << rows << " rows";
    }
  }
}

TEST_P(AttentionParity, PositionStreams) {
  const PageTables tables({9}, 1);
  HostBatch host({{.sequence = 0, .start = 0, .rows = 9}}, tables);
  std::vector<int> streams;
  for (int i = 0; i < 27; ++i) streams.push_back(i * 37 % 50);
  const Pair positions = ints(streams, {3, 9});
  host.batch.positions = positions.cpu;
  for (const bool interleaved : {false, true}) {
    const Pair freq = vector(12, 40, 0.4F), x = activations({9, 2 * 32}, 41);
    const auto run = [&](Ops& ops, auto side, const Batch& b) {
      const Rope rope{.inv_freq = side(freq), .mrope_section = {5, 4, 3}, .mrope_interleaved = interleaved};
      ops.prepare_qkv({.q = side(x).reshape({9, 2, 32}), .k = {}, .v = {}, .q_norm = {}, .k_norm = {}, .v_norm = {}, .rope = &rope, .kv = {}}, b);
    };
    run(cpu(), [](const Pair& p) { return p.cpu; }, host.batch);
    run(gpu(), [](const Pair& p) { return p.gpu; }, send(host));
    EXPECT_LT(distance(x), tolerance());
  }
}

}  // namespace
}  // namespace strata::testing
