// Ops: every operation of the engine on one page, with shapes and formula. The CPU backend is the specification.
//
// Letters: T rows, S sequences, L logit rows, D model, H heads, Dh head dim, F ffn, V vocabulary, E experts, k experts a row,
// P pages. x, out and the like are activations in activation() (f32 on the CPU, bf16 on the GPU) unless said; vectors of
// parameters are f32. A row's result depends on that row alone (and on its own sequence's past), never on what else
// is in the batch. An op checks sizes and stops on a mismatch, naming it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "ops/arena.h"
#include "ops/batch.h"
#include "ops/lora.h"
#include "ops/memory.h"
#include "ops/step_device.h"
#include "ops/weight.h"
#include "tensor/tensor.h"

namespace strata {

enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGelu, kRelu2, kClampedSwiGlu, kSigmoid, kNone };

// Rotary embedding as a table: channel pair i rotates by position * inv_freq[i]. Pairs are (i, i + n) of the 2n channels from
// `offset` on, or (2i, 2i + 1) when interleaved. Sources: Su et al. 2021 (RoFormer); scalings are folded into the table at load.
struct Rope {
  Tensor inv_freq;                        // [n] f32
  float scale = 1;                        // multiplies cos and sin (YaRN's attention factor)
  bool interleaved = false;
  int offset = 0;                         // channels before it do not turn (MLA: the latent)
  float query_beta = 0;                   // queries are also multiplied by 1 + query_beta * ln(1 + floor(position / query_span))
  int query_span = 0;                     //   (Llama 4's scaling for long contexts)
  std::array<int, 3> mrope_section = {};  // channels of each position stream; all 0 = one stream
  bool mrope_interleaved = false;         // streams alternate THWTHW... (Qwen3.5) instead of in blocks
};

struct QkvArgs {
  Tensor q;            // [T, Hq, Dh], changed in place
  Tensor k;            // [T, Hk, Dh], changed in place
  Tensor v;            // [T, Hk, Dv]; empty for MLA
  Tensor q_norm, k_norm;  // [Dh] RMSNorm weight per head, or empty
  Tensor v_norm;       // [Dv] weight (gemma4: all ones), or empty
  float eps = 1e-6F;
  const Rope* rope = nullptr;  // null = no rotation
  KvView kv;
};

struct AttentionArgs {
  Tensor out;          // [T, Hq, Dv]
  Tensor q;            // [T, Hq, Dh]
  KvView kv;
  float scale = 1;     // of q . k
  int window = 0;      // keys a row sees, itself included; 0 = all
  int skip = 0;        // the first keys of the sequence that no row sees (an MTP head has no entry 0)
  float softcap = 0;   // scores become softcap * tanh(score / softcap)
  Tensor sinks;        // [Hq] f32: a logit that joins the softmax and has no value (gpt_oss), or empty
  Tensor gate;         // [T, Hq, Dv]: out *= sigmoid(gate), or empty
  Tensor blocks;       // [T, n] i32: a row sees these blocks of `block` tokens (ascending, then -1) and what follows its
  int block = 0;       //   last complete block, nothing else (no window, no skip); or empty
};

// Keys of sparse attention (QSA): one for each block of `block` tokens.
struct IndexArgs {
  Tensor k;            // [T, d]
  Tensor norm;         // [d] RMSNorm weight
  float eps = 1e-6F;
  const Rope* rope = nullptr;
  int block = 0;       // divides kPageTokens
  KvView kv;           // its index
};

struct SelectArgs {
  Tensor blocks;       // [T, n] i32, out
  Tensor q;            // [T, H, d], normalised and rotated
  int block = 0;
  KvView kv;
};

// Hashed n-grams (Qwen4-Exp's per-layer embeddings): `heads` hashes of the gram of 2 tokens, then of 3, ... up to n.
struct NgramArgs {
  Tensor out;          // [T, (n-1)*heads] i32
  int n = 0, heads = 0;
  int end_token = 0;   // stands for tokens that are not there; grams do not reach over it
  std::array<std::int64_t, 4> multipliers = {};           // [n]
  std::array<std::int64_t, 32> sizes = {}, offsets = {};  // [(n-1)*heads]
  Tensor state;        // [slots, n-1]: 1 + the last tokens, latest last; 0 = none
  Tensor tape;         // [tapes, kTapeRows, 1] or empty
};

struct ConvArgs {
  Tensor out;          // [T, C]
  Tensor x;            // [T, C]
  Tensor weight;       // [C, W] f32; tap W-1 meets the current row
  Tensor bias;         // [C] f32 or empty
  Activation activation = Activation::kSilu;  // or kNone
  Tensor state;        // [slots, C, W-1]: the last W-1 inputs, oldest first
  Tensor tape;         // [tapes, kTapeRows, C] or empty
};

struct GatedDeltaArgs {
  Tensor out;          // [T, Hv, V]
  Tensor qkv;          // [T, 2*Hk*K + Hv*V]: q | k | v, after the convolution
  Tensor a, b;         // [T, Hv] before softplus and sigmoid
  Tensor a_log, dt_bias;  // [Hv] f32
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  Tensor state;        // [slots, Hv, K, V] f32
  Tensor tape;         // [tapes, kTapeRows, 2*Hk*K + Hv*V + 2*Hv] or empty: qkv | a | b
};

struct SsdArgs {       // Mamba-2 (Dao and Gu 2024, state space duality)
  Tensor out;          // [T, H, P]
  Tensor xbc;          // [T, H*P + 2*G*N]: x | B | C, after the convolution
  Tensor dt;           // [T, H] before bias and softplus
  Tensor a_log, dt_bias, d;  // [H] f32
  float dt_min = 0, dt_max = 0;  // clamp of softplus(dt + dt_bias); dt_max 0 = none
  int heads = 0, head_dim = 0, groups = 0, state_dim = 0;
  Tensor state;        // [slots, H, P, N] f32
  Tensor tape;         // [tapes, kTapeRows, H*P + 2*G*N + H] or empty: xbc | dt
};

// The experts of every row, and the rows of every expert.
struct Routing {
  Tensor expert;       // [T, k] i32, best first (a tie: the lower id)
  Tensor weight;       // [T, k] f32
  Tensor order;        // [T*k] i32: entries (row * k + choice) sorted by expert, stable
  Tensor first;        // [E+1] i32: expert e owns order[first[e] .. first[e+1])
};

enum class Scoring : std::uint8_t { kSoftmax, kSigmoid, kTopKSoftmax };  // the last: softmax over the chosen logits (gpt_oss)

struct RouteArgs {
  Tensor logits;       // [T, E] f32
  Tensor bias;         // [E] f32 added for choosing only (DeepSeek-V3), or empty
  Scoring scoring = Scoring::kSoftmax;
  int groups = 1, top_groups = 1;  // group-limited choice: a group's score is the sum of its two best
  bool normalise = true;           // chosen weights sum to 1
  float scale = 1;
  Tensor expert_scale; // [E] f32: a factor of each expert's weight (gemma4), or empty
};

// add_rms_norm(out, x, delta, scale, weight, eps) yet to be done, maybe within the op that takes `out`.
struct AddNorm {
  Tensor out;          // [T, D]
  Tensor x = {};       // [T, D]; empty: `out` is there already
  Tensor delta = {};   // [T, D] or empty
  float scale = 1;
  Tensor weight = {};  // [D] or empty
  float eps = 0;
};

// A mixture of gated experts and the shared expert beside it. Biases are f32 or empty.
struct MoeArgs {
  Tensor out;          // [T, D]
  Tensor x;            // [T, D]
  AddNorm norm = {};   // of x: norm.out, or empty
  const Weight* router = nullptr;  // [N, D]: routed [T, N] f32 = x router^T + router_bias is made here too, of which
  Tensor router_bias, routed;      //   route.logits and shared_gate are columns; or null: they are there already
  RouteArgs route;
  int k = 0;           // experts a row
  const Weight *in = nullptr, *down = nullptr;                // [E, gate | up, D], [E, D, F]
  Tensor in_bias, down_bias;                                  // [E, 2F], [E, D]
  const Weight *shared_in = nullptr, *shared_down = nullptr;  // [gate | up, D], [D, F'], or null
  Tensor shared_in_bias, shared_down_bias;                    // [2F'], [D]
  Tensor shared_gate;  // [T, 1] or empty, as of combine
  Activation activation = Activation::kSilu;
  float limit = 0;     // of kClampedSwiGlu
};

struct GatedNormArgs {
  Tensor out;          // [T, H, D]
  Tensor x;            // [T, H, D]
  Tensor gate;         // [T, H, D]; empty = none (a grouped norm)
  Tensor weight;       // [D] or [H, D] f32
  float eps = 1e-6F;
  bool gate_first = false;  // Mamba-2: norm(x * act(gate)) * w; else (GDN): norm(x) * w * act(gate)
  int group = 0;       // channels that share a mean square; 0 = D
  Activation activation = Activation::kSilu;
};

// What a Gated DeltaNet does between its products. delta.qkv is conv.out and norm.x is delta.out: scratch, what it holds
// afterwards is undefined (unless it is norm.out too).
struct DeltaNetArgs {
  ConvArgs conv;
  GatedDeltaArgs delta;
  GatedNormArgs norm;
};

// Backends are driven by one thread; they spread an op over their own. All tensors live on the backend's device.
class Ops {
 public:
  virtual ~Ops() = default;

  // ---- loading and memory ----
  virtual Device device() const = 0;
  virtual DType activation() const = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;                       // zeroed; Error when there is none
  // Packs a matrix, as `type` if given (quantising or widening), else in its own type. Host pieces may go away afterwards.
  virtual Weight load(const HostMatrix& matrix, std::optional<DType> type = {}) = 0;
  virtual Tensor load_vector(const Tensor& host, float add = 0) = 0;    // any float type -> f32, + add; same shape; kept for the backend's life
  // Contiguous tensors to and from host memory; for start and end, not for steps: they wait.
  virtual void write(const Tensor& to, const void* from) { std::memcpy(to.raw(), from, to.bytes()); }
  virtual void read(void* to, const Tensor& from) { std::memcpy(to, from.raw(), from.bytes()); }
  // Null when the host's memory is the backend's own: steps then need nothing of the kind.
  virtual std::unique_ptr<StepDevice> make_step_device(const StepLimits& limits) {
    (void)limits;
    return nullptr;
  }
  Arena& arena() { return *arena_; }
  // Bytes of matrices that products have read so far, each matrix (each chosen expert's) once an op; host backends count.
  std::uint64_t weight_bytes_read() const { return weight_bytes_read_; }
  Tensor make(const Shape& shape) { return arena_->make(shape, activation()); }               // scratch, contents undefined
  Tensor make(const Shape& shape, DType dtype) { return arena_->make(shape, dtype); }

  // ---- rows ----
  // out[t] = table[tokens[t]] * scale; table [V, D].
  virtual void embed(Tensor out, Tensor tokens, const Weight& table, float scale) = 0;
  // out[i] = x[rows[i]]; rows [L] i32, x [T, D].
  virtual void gather_rows(Tensor out, Tensor x, Tensor rows) = 0;
  // state[slot] = x[row] for each (row, slot) of saves [N, 2]; x [T, D], state [slots, D].
  virtual void save_rows(Tensor x, Tensor saves, Tensor state) = 0;
  // out = [a | b] by columns.
  virtual void concat(Tensor out, Tensor a, Tensor b) = 0;

  // ---- elementwise and norms (x [T, D]) ----
  // out = x / sqrt(mean(x^2) + eps) * weight; weight [D] or empty (= 1). Zhang and Sennrich 2019.
  virtual void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) = 0;
  // x += delta * scale, then out = rms_norm(x); delta may be empty.
  virtual void add_rms_norm(Tensor out, Tensor x, Tensor delta, float scale, Tensor weight, float eps) = 0;
  void normalise(const AddNorm& a) {
    if (!a.x.empty()) add_rms_norm(a.out, a.x, a.delta, a.scale, a.weight, a.eps);
  }
  virtual void gated_norm(const GatedNormArgs& args) = 0;
  virtual void add(Tensor x, Tensor delta, float scale) = 0;            // x += delta * scale
  virtual void multiply(Tensor x, Tensor y) = 0;                        // x *= y; y [T, D] or [T, 1]
  virtual void scale(Tensor x, float factor, float softcap) = 0;        // x *= factor, then softcap * tanh(x / softcap) unless 0
  virtual void activate(Tensor x, Activation activation) = 0;           // x = act(x)
  // out [T, F] = act(gate) * up of gate_up [T, 2F] = gate | up. kClampedSwiGlu (gpt_oss): g = min(gate, limit),
  // u = clamp(up, -limit, limit), out = g * sigmoid(1.702 g) * (u + 1).
  virtual void glu(Tensor out, Tensor gate_up, Activation activation, float limit = 0) = 0;

  // ---- several residual streams a row (hyper-connections, Zhu et al. 2024; as Qwen4-Exp has them) ----
  // out [T, D] = mean over streams s of sigmoid(mix[t, s]) * x[t, s]; x, mix [T, S*D].
  virtual void mix_streams(Tensor out, Tensor x, Tensor mix) = 0;
  // x[t, s] += 2 sigmoid(weight[t, s]) * delta[t]; x [T, S*D], delta [T, D], weight [T, S].
  virtual void inject_streams(Tensor x, Tensor delta, Tensor weight) = 0;
  // out[t, s] = sigmoid(r(key[t, s] . query[t, s] / sqrt(D))) * value[t], r(g) = sign(g) sqrt(max(|g|, 1e-6));
  // out, key, query [T, S*D], value [T, D].
  virtual void gate_streams(Tensor out, Tensor key, Tensor query, Tensor value) = 0;

  // ---- products ----
  // out [T, N] = x [T, K] w^T + bias [N] (or empty). Sums over K in a fixed order; out may be f32 whatever activation() is.
  virtual void linear(Tensor out, Tensor x, const Weight& w, Tensor bias) = 0;
  // The norm, and the product of its output.
  virtual void norm_linear(Tensor out, const AddNorm& norm, const Weight& w, Tensor bias) {
    normalise(norm);
    linear(out, norm.out, w, bias);
  }
  // The product of each row with its chosen experts: out [T*k, N]; x [T, K] (each row goes to its k experts) or [T*k, K];
  // w [E, N, K], bias [E, N] or empty.
  virtual void expert_linear(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias) = 0;
  // out[t] += B (A x[t]) with the pair of row t's adapter, adapters [T]; rows of -1, or whose adapter adds nothing here, stay
  // as they are, bit for bit. x [T, K], or tokens [T] i32 of an embedding: A x is then row x[t] of A. Sums over K and R in a
  // fixed order, x as it is whatever the type of the matrix adapted.
  virtual void lora(Tensor out, Tensor x, const LoraTable& table, Tensor adapters) = 0;
  // The same by (row, chosen expert): out [T*k, N], x [T, K] or [T*k, K], adapters [T].
  virtual void expert_lora(Tensor out, Tensor x, const Routing& routing, const LoraTable& table, Tensor adapters) = 0;
  // The pair of a slot from the next step on; null = none. It outlives its time in the table.
  virtual void set_lora(LoraTable& table, int slot, const LoraPair* pair) = 0;
  // glu of these products, w holding gate | up: out [T, F] or [T*k, F]. A backend may do both in one.
  virtual void linear_glu(Tensor out, Tensor x, const Weight& w, Tensor bias, Activation activation, float limit) {
    const Scratch scratch(arena());
    const Tensor gate_up = make({out.rows(), w.outputs()});
    linear(gate_up, x, w, bias);
    glu(out, gate_up, activation, limit);
  }
  virtual void expert_linear_glu(Tensor out, Tensor x, const Routing& routing, const Weight& w, Tensor bias, Activation activation,
                                 float limit) {
    const Scratch scratch(arena());
    const Tensor gate_up = make({out.rows(), w.outputs()});
    expert_linear(gate_up, x, routing, w, bias);
    glu(out, gate_up, activation, limit);
  }
  // Chooses k experts a row; allocates the result as scratch.
  virtual Routing route(const RouteArgs& args, int k) = 0;
  // Every row to all experts, the j-th choice being expert j, with weights 1: products of one matrix a head (MLA), as
  // expert_linear of x [rows*E, K].
  virtual Routing route_all(std::int64_t rows, std::int64_t experts) = 0;
  // out [T, D] = sum_j weight[t, j] y[t*k + j] (j ascending) + sigmoid(gate[t]) * shared[t]; y [T*k, D]; shared [T, D] or
  // empty; gate [T, 1] or empty (= 1 instead of the sigmoid).
  virtual void combine(Tensor out, Tensor y, const Routing& routing, Tensor shared, Tensor gate) = 0;

  // The norm, the router's product, route, both products of the chosen experts and of the shared one, and combine. A
  // backend may do it in fewer steps.
  virtual void moe(const MoeArgs& a) {
    const Scratch scratch(arena());
    normalise(a.norm);
    if (a.router != nullptr) linear(a.routed, a.x, *a.router, a.router_bias);
    const std::int64_t rows = a.x.rows();
    const Routing routing = route(a.route, a.k);
    const Tensor hidden = make({rows * a.k, a.in->outputs() / 2}), y = make({rows * a.k, a.down->outputs()});
    expert_linear_glu(hidden, a.x, routing, *a.in, a.in_bias, a.activation, a.limit);
    expert_linear(y, hidden, routing, *a.down, a.down_bias);
    Tensor shared;
    if (a.shared_in != nullptr) {
      const Tensor shared_hidden = make({rows, a.shared_in->outputs() / 2});
      linear_glu(shared_hidden, a.x, *a.shared_in, a.shared_in_bias, a.activation, a.limit);
      shared = make({rows, a.shared_down->outputs()});
      linear(shared, shared_hidden, *a.shared_down, a.shared_down_bias);
    }
    combine(a.out, y, routing, shared, a.shared_gate);
  }

  // ---- sequence mixing ----
  // Normalises q, k and v per head, rotates q and k, writes k and v (and v's norm) to batch.kv_slots.
  virtual void prepare_qkv(const QkvArgs& args, const Batch& batch) = 0;
  // Causal attention of every row over its own sequence's pages. Vaswani et al. 2017; paged as Kwon et al. 2023.
  virtual void attention(const AttentionArgs& args, const Batch& batch) = 0;
  // kv.index of token j = k[j]; that of a block's last token instead is the block's key: the mean of its k, normalised and
  // rotated by the index of its first token.
  virtual void store_index(const IndexArgs& args, const Batch& batch) = 0;
  // The n complete blocks b before each row that score best, score = sum_h relu(q_h . key_b), ascending (a tie: the lower
  // b); all of them when they are no more than n, then -1.
  virtual void select_blocks(const SelectArgs& args, const Batch& batch) = 0;
  // hash of a gram = xor over its tokens, latest first, of token * multiplier (64 bits, wrapping); out = hash mod size + offset
  // (the remainder is not negative). Honours state_in, saves and tapes.
  virtual void ngram_rows(const NgramArgs& args, const Batch& batch) = 0;
  // Causal depthwise convolution over each sequence, honouring state_in, saves and tapes.
  virtual void causal_conv(const ConvArgs& args, const Batch& batch) = 0;
  // Gated delta rule (Yang, Kautz and Hatamizadeh 2024), per value head hv with key head hv / (Hv / Hk):
  //   q, k <- x / sqrt(sum x^2 + 1e-6); q /= sqrt(K); g = -exp(a_log) softplus(a + dt_bias); beta = sigmoid(b);
  //   S <- exp(g) S; d = beta (v - S^T k); S <- S + k d^T; o = S^T q. Honours state_in, saves and tapes.
  virtual void gated_delta(const GatedDeltaArgs& args, const Batch& batch) = 0;
  // causal_conv, gated_delta and gated_norm. A backend may do it in fewer steps.
  virtual void delta_net(const DeltaNetArgs& a, const Batch& batch) {
    causal_conv(a.conv, batch);
    gated_delta(a.delta, batch);
    gated_norm(a.norm);
  }
  // S <- exp(dt A) S + dt x B^T, A = -exp(a_log); y = S C + d x. Head h uses group h / (H / G). Honours state_in, saves, tapes.
  virtual void ssd(const SsdArgs& args, const Batch& batch) = 0;

 protected:
  std::unique_ptr<Arena> arena_;  // set by the backend
  std::uint64_t weight_bytes_read_ = 0;
};

}  // namespace strata
