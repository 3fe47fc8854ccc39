// Parity of causal_conv, gated_delta and ssd: prefill, chunks, decode, verify with saves and with tapes, padding.
#include "cuda/parity.h"

namespace strata::testing {
namespace {

class RecurrenceParity : public Parity {
 protected:
  using Run = std::function<void(Ops&, bool on_gpu, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch&)>;

  // Steps of several sequences with slots 0..5 (5 = dummy) and two tapes. Rows are `inputs` wide, results `outputs`.
  void check(const char* what, int inputs, int outputs, const Shape& slot, int tape_width, const Run& run) {
    constexpr int kSlots = 12, kTapes = 2;
    const PageTables tables({400, 400, 400, 400}, 3);
    const std::vector<Step> steps = {
        // Fresh prefill of three sequences, states saved also in the middle of a run.
        {{.sequence = 0, .start = 0, .rows = 70, .saves = {{63, 6}, {69, 0}}},
         {.sequence = 1, .start = 0, .rows = 1, .saves = {{0, 1}}},
         {.sequence = 2, .start = 0, .rows = 200, .saves = {{2, 7}, {127, 8}, {199, 2}}}},
        // A chunk beside decode rows, one sequence from a shared slot, and a padding sequence.
        {{.sequence = 0, .start = 70, .rows = 1, .state_in = 0, .saves = {{0, 0}}},
         {.sequence = 3, .start = 64, .rows = 130, .state_in = 6, .saves = {{129, 3}}},
         {.sequence = 1, .start = 1, .rows = 2, .state_in = 1, .saves = {{1, 1}}},
         {.sequence = 0, .start = 0, .rows = 2, .saves = {{1, 5}}, .padding = true}},
        // Verify with a save for each row.
        {{.sequence = 0, .start = 71, .rows = 3, .state_in = 0, .saves = {{0, 9}, {1, 10}, {2, 11}}},
         {.sequence = 2, .start = 200, .rows = 1, .state_in = 2, .saves = {{0, 2}}}},
        // Verify with tapes: nothing replayed yet, then some rows of it, the state kept where it was or elsewhere.
        {{.sequence = 1, .start = 3, .rows = 16, .state_in = 1, .tape = 0, .replay = 0, .state_out = -1},
         {.sequence = 2, .start = 201, .rows = 4, .state_in = 2, .tape = 1, .replay = 0, .state_out = 2}},
        {{.sequence = 1, .start = 10, .rows = 5, .state_in = 1, .tape = 0, .replay = 7, .state_out = 1},
         {.sequence = 0, .start = 72, .rows = 20, .state_in = 9, .saves = {{19, 0}}},
         {.sequence = 2, .start = 203, .rows = 1, .state_in = 2, .saves = {{0, 4}}, .tape = 1, .replay = 2, .state_out = 2}},
        {{.sequence = 1, .start = 15, .rows = 1, .state_in = 1, .saves = {{0, 8}}, .tape = 0, .replay = 5, .state_out = 1},
         {.sequence = 2, .start = 204, .rows = 16, .state_in = 2, .tape = 1, .replay = 1, .state_out = 7}},
    };
    Shape states{kSlots};
    for (int i = 0; i < slot.rank(); ++i) states.append(slot[i]);
    const Pair state = poisoned(states, DType::kF32), tape = poisoned({kTapes, kTapeRows, tape_width}, DType::kF32);
    unsigned seed = 60;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const HostBatch host(steps[i], tables);
      const int rows = host.batch.shape.rows;
      const Pair in = activations({rows, inputs}, ++seed), out = poisoned({rows, outputs});
      run(cpu(), false, out.cpu, in.cpu, state.cpu, tape.cpu, host.batch);
      run(gpu(), true, out.gpu, in.gpu, state.gpu, tape.gpu, send(host));
      EXPECT_LT(distance(out), tolerance()) << what << ", step " << i;
      EXPECT_LT(distance(state), state_tolerance_) << what << ", states after step " << i;
      EXPECT_LT(distance(tape), 1e-6) << what << ", tapes after step " << i;
    }
  }
  double state_tolerance_ = 1e-5;
};
STRATA_PARITY(RecurrenceParity);

TEST_P(RecurrenceParity, Conv) {
  for (const auto& [channels, width, bias] : {std::tuple{37, 4, true}, {256, 4, false}, {64, 2, true}, {130, 3, false}}) {
    const Pair weight = both(random_tensor({channels, width}, 50), DType::kF32), biases = vector(channels, 51);
    check("conv", channels, channels, {channels, width - 1}, channels,
          [&, with_bias = bias](Ops& ops, bool on_gpu, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
            const auto side = [&](const Pair& p) { return on_gpu ? p.gpu : p.cpu; };
            ops.causal_conv({.out = out, .x = in, .weight = side(weight), .bias = with_bias ? side(biases) : Tensor(),
                             .state = state, .tape = tape}, batch);
          });
  }
}

TEST_P(RecurrenceParity, GatedDelta) {
  for (const auto& [key_heads, heads, keys, values] : {std::tuple{2, 4, 16, 24}, {2, 4, 128, 128}, {1, 3, 128, 32}, {1, 2, 64, 40}, {4, 8, 128, 128}, {1, 3, 128, 128}}) {
    // Chunks on the tensor cores round the state to bf16 where it is an operand.
    state_tolerance_ = bf16() && keys == 128 && values == 128 ? 4e-3 : 1e-5;
    const Pair a_log = vector(heads, 52, 0.5F), dt_bias = vector(heads, 53);
    const int qkv = 2 * key_heads * keys + heads * values;
    check("gated_delta", qkv + 2 * heads, heads * values, {heads, keys, values}, qkv + 2 * heads,
          [&, Hk = key_heads, H = heads, K = keys, V = values](Ops& ops, bool on_gpu, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
            const auto side = [&](const Pair& p) { return on_gpu ? p.gpu : p.cpu; };
            ops.gated_delta({.out = out.reshape({out.rows(), H, V}), .qkv = in.columns(0, qkv), .a = in.columns(qkv, H),
                             .b = in.columns(qkv + H, H), .a_log = side(a_log), .dt_bias = side(dt_bias), .key_heads = Hk,
                             .value_heads = H, .key_dim = K, .value_dim = V, .state = state, .tape = tape}, batch);
          });
  }
}

// A pass that resumes where a chunk of 64 positions began repeats the arithmetic of one that did not stop: the same bits.
TEST_P(RecurrenceParity, GatedDeltaResumesOnTheGrid) {
  constexpr int kHeads = 4, kDim = 128, kKeyHeads = 2, kRows = 64 * 4 + 30;
  const int qkv = 2 * kKeyHeads * kDim + kHeads * kDim;
  const Pair a_log = vector(kHeads, 52, 0.5F), dt_bias = vector(kHeads, 53), in = activations({kRows, qkv + 2 * kHeads}, 57);
  const PageTables tables({kRows}, 3);
  const auto run = [&](const Pair& out, const Pair& state, int begin, int rows) {
    const HostBatch host({{.sequence = 0, .start = begin, .rows = rows, .state_in = begin == 0 ? -1 : 0, .saves = {{rows - 1, 0}}}}, tables);
    const Tensor part = in.gpu.rows_from(begin, rows);
    gpu().gated_delta({.out = out.gpu.rows_from(begin, rows).reshape({rows, kHeads, kDim}), .qkv = part.columns(0, qkv),
                       .a = part.columns(qkv, kHeads), .b = part.columns(qkv + kHeads, kHeads), .a_log = a_log.gpu,
                       .dt_bias = dt_bias.gpu, .key_heads = kKeyHeads, .value_heads = kHeads, .key_dim = kDim, .value_dim = kDim,
                       .state = state.gpu, .tape = {}}, send(host));
    gpu().synchronize();
  };
  const Pair whole = poisoned({kRows, kHeads * kDim}), whole_state = poisoned({1, kHeads, kDim, kDim}, DType::kF32);
  run(whole, whole_state, 0, kRows);
  for (const std::vector<int>& cuts : {std::vector<int>{64}, {128, 192}, {64, 256}}) {
    const Pair out = poisoned({kRows, kHeads * kDim}), state = poisoned({1, kHeads, kDim, kDim}, DType::kF32);
    int at = 0;
    for (const int cut : cuts) {
      run(out, state, at, cut - at);
      at = cut;
    }
    run(out, state, at, kRows - at);
    EXPECT_EQ(fetch(out.gpu), fetch(whole.gpu));
    EXPECT_EQ(fetch(state.gpu), fetch(whole_state.gpu));
  }
}

TEST_P(RecurrenceParity, Ssd) {
  for (const auto& [heads, dim, groups, states] : {std::tuple{4, 12, 2, 20}, {8, 64, 1, 128}, {2, 37, 2, 200}}) {
    const Pair a_log = vector(heads, 54, 0.5F), dt_bias = vector(heads, 55), d = vector(heads, 56);
    const int xbc = heads * dim + 2 * groups * states;
    check("ssd", xbc + heads, heads * dim, {heads, dim, states}, xbc + heads,
          [&, H = heads, P = dim, G = groups, N = states](Ops& ops, bool on_gpu, Tensor out, Tensor in, Tensor state, Tensor tape, const Batch& batch) {
            const auto side = [&](const Pair& p) { return on_gpu ? p.gpu : p.cpu; };
            ops.ssd({.out = out.reshape({out.rows(), H, P}), .xbc = in.columns(0, xbc), .dt = in.columns(xbc, H), .a_log = side(a_log),
                     .dt_bias = side(dt_bias), .d = side(d), .dt_min = 0.01F, .dt_max = 2, .heads = H, .head_dim = P, .groups = G,
                     .state_dim = N, .state = state, .tape = tape}, batch);
          });
  }
}

}  // namespace
}  // namespace strata::testing
