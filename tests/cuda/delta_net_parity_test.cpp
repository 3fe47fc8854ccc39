// Parity of delta_net: against the CPU, and bit for bit against its three ops one after the other on the GPU.
#include "cuda/parity.h"

namespace strata::testing {
namespace {

struct Sizes {
  int key_heads, heads, keys, values;
  bool one_kernel = true;  // what a step of short runs takes
  bool tapes_too = true;   // also where there are tapes
  int width = 4;
  int channels() const { return 2 * key_heads * keys + heads * values; }
  int outputs() const { return heads * values; }
  int inputs() const { return (channels() + outputs() + 2 * heads + 7) / 8 * 8; }  // rows stay aligned
};

class DeltaNetParity : public Parity {
 protected:
  // Pools of one run of steps. `apart`: of the GPU's three ops.
  struct Pools {
    Pair window, window_apart, state, state_apart, window_tape, window_tape_apart, tape, tape_apart;
  };

  void check(const Sizes& z, const std::vector<Step>& steps, int slots, int tapes) {
    const Pair taps = both(random_tensor({z.channels(), z.width}, 50), DType::kF32),
               a_log = vector(z.heads, 52, 0.5F), dt_bias = vector(z.heads, 53),
               weight = vector(z.values, 54, 0.2F, 1);
    const auto pool = [&](const Shape& shape) { return poisoned(shape, DType::kF32); };
    const Shape windows{slots, z.channels(), z.width - 1}, states{slots, z.heads, z.keys, z.values};
    const Shape window_rows{tapes, kTapeRows, z.channels()},
        rows_kept{tapes, kTapeRows, z.channels() + 2 * z.heads};
    const Pools p{pool(windows),     pool(windows),     pool(states),    pool(states),
                  pool(window_rows), pool(window_rows), pool(rows_kept), pool(rows_kept)};
    const PageTables tables(std::vector<int>(steps.size() > 1 ? 4 : steps[0].size(), 400), 3);
    unsigned seed = 60;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << z.key_heads << '/' << z.heads << " heads of " << z.keys << 'x'
                                        << z.values << ", step " << i);
      const HostBatch host(steps[i], tables);
      const int rows = host.batch.shape.rows;
      const bool one = z.one_kernel && host.batch.shape.longest_run <= 16 &&
                       host.batch.shape.sequences <= (host.batch.shape.longest_run == 1 ? 2 : 8) &&
                       (z.tapes_too || host.batch.tape.empty());
      const Pair in = activations({rows, z.inputs()}, ++seed), out = poisoned({rows, z.heads, z.values}),
                 out_apart = poisoned({rows, z.heads, z.values}), qkv = poisoned({rows, z.channels()}),
                 rule = poisoned({rows, z.heads, z.values});
      const auto args = [&](auto side, const Pair& to, const Pair& window, const Pair& window_tape,
                            const Pair& state, const Pair& tape) {
        const Tensor x = side(in);
        const int C = z.channels(), H = z.heads;
        return DeltaNetArgs{.conv = {.out = side(qkv),
                                     .x = x.columns(0, C),
                                     .weight = side(taps),
                                     .bias = {},
                                     .state = side(window),
                                     .tape = side(window_tape)},
                            .delta = {.out = side(rule),
                                      .qkv = side(qkv),
                                      .a = x.columns(C + z.outputs() + H, H),
                                      .b = x.columns(C + z.outputs(), H),
                                      .a_log = side(a_log),
                                      .dt_bias = side(dt_bias),
                                      .key_heads = z.key_heads,
                                      .value_heads = H,
                                      .key_dim = z.keys,
                                      .value_dim = z.values,
                                      .state = side(state),
                                      .tape = side(tape)},
                            .norm = {.out = side(to),
                                     .x = side(rule),
                                     .gate = x.columns(C, z.outputs()).reshape({rows, H, z.values}),
                                     .weight = side(weight),
                                     .eps = 1e-6F}};
      };
      const auto on_cpu = [](const Pair& t) { return t.cpu; };
      const auto on_gpu = [](const Pair& t) { return t.gpu; };
      const Batch batch = send(host);
      gpu().delta_net(args(on_gpu, out, p.window, p.window_tape, p.state, p.tape), batch);
      EXPECT_EQ(untouched(qkv), one);
      EXPECT_EQ(untouched(rule), one);
      gpu().Ops::delta_net(
          args(on_gpu, out_apart, p.window_apart, p.window_tape_apart, p.state_apart, p.tape_apart), batch);
      cpu().delta_net(args(on_cpu, out, p.window, p.window_tape, p.state, p.tape), host.batch);
      const double near = bf16() ? 1.5e-2 : 1e-4;  // three roundings on the way
      EXPECT_LT(distance(out), near);
      EXPECT_LT(distance(p.state), near);
      EXPECT_LT(distance(p.tape), near);
      EXPECT_LT(distance(p.window), 1e-6);
      EXPECT_LT(distance(p.window_tape), 1e-6);
      EXPECT_EQ(different(out, out_apart), 0) << "outputs";
      EXPECT_EQ(different(p.state, p.state_apart), 0) << "states";
      EXPECT_EQ(different(p.tape, p.tape_apart), 0) << "tapes";
      EXPECT_EQ(different(p.window, p.window_apart), 0) << "windows";
      EXPECT_EQ(different(p.window_tape, p.window_tape_apart), 0) << "tapes of windows";
    }
  }

  bool untouched(const Pair& t) {
    const std::vector<float> values = fetch(t.gpu);
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isnan(x); });
  }
  // Elements that are not the same number (or both poison).
  int different(const Pair& a, const Pair& b) {
    const std::vector<float> x = fetch(a.gpu), y = fetch(b.gpu);
    int n = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      n += x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) ? 0 : 1;
    return n;
  }
};
STRATA_PARITY(DeltaNetParity);

TEST_P(DeltaNetParity, Steps) {
  // Slots 0 .. 11, 5 the dummy one; three tapes.
  const std::vector<Step> steps = {
      // Cold, states saved also in the middle of a run.
      {{.sequence = 0, .start = 0, .rows = 1, .saves = {{0, 0}}},
       {.sequence = 1, .start = 0, .rows = 16, .saves = {{3, 6}, {15, 1}}},
       {.sequence = 2, .start = 0, .rows = 5, .saves = {{0, 7}, {4, 2}}}},
      // Decode, verify with a save for each row, a start from a shared slot, a padding sequence.
      {{.sequence = 0, .start = 1, .rows = 1, .state_in = 0, .saves = {{0, 0}}},
       {.sequence = 1, .start = 16, .rows = 3, .state_in = 1, .saves = {{0, 9}, {1, 10}, {2, 11}}},
       {.sequence = 3, .start = 4, .rows = 2, .state_in = 6, .saves = {{1, 3}}},
       {.sequence = 0, .start = 0, .rows = 2, .saves = {{1, 5}}, .padding = true}},
      // Verify with tapes: nothing replayed yet; beside it a sequence without.
      {{.sequence = 1, .start = 19, .rows = 16, .state_in = 11, .tape = 0},
       {.sequence = 2, .start = 5, .rows = 4, .state_in = 2, .tape = 1, .replay = 0, .state_out = 2},
       {.sequence = 0, .start = 2, .rows = 1, .state_in = 0, .saves = {{0, 0}}}},
      // Rows replayed, the state kept in its place.
      {{.sequence = 1, .start = 26, .rows = 5, .state_in = 11, .tape = 0, .replay = 7, .state_out = 11},
       {.sequence = 2,
        .start = 7,
        .rows = 1,
        .state_in = 2,
        .saves = {{0, 4}},
        .tape = 1,
        .replay = 2,
        .state_out = 2},
       {.sequence = 3, .start = 6, .rows = 16, .state_in = 3, .saves = {{7, 8}, {15, 3}}},
       {.sequence = 0, .start = 0, .rows = 1, .saves = {{0, 5}}, .padding = true}},
      // Or elsewhere; fewer rows replayed than taps; rows to the tape's end.
      {{.sequence = 1,
        .start = 31,
        .rows = 1,
        .state_in = 11,
        .saves = {{0, 8}},
        .tape = 0,
        .replay = 5,
        .state_out = 11},
       {.sequence = 2, .start = 8, .rows = 16, .state_in = 2, .tape = 1, .replay = 1, .state_out = 7}},
      // All rows of a tape, and a cold sequence with one.
      {{.sequence = 2, .start = 24, .rows = 16, .state_in = 7, .tape = 1, .replay = 16, .state_out = 7},
       {.sequence = 1, .start = 32, .rows = 2, .state_in = 11, .tape = 0, .replay = 1, .state_out = 9},
       {.sequence = 0, .start = 0, .rows = 4, .tape = 2, .replay = 0, .state_out = 10}},
      {{.sequence = 0,
        .start = 3,
        .rows = 1,
        .state_in = 10,
        .saves = {{0, 0}},
        .tape = 2,
        .replay = 3,
        .state_out = 10},
       {.sequence = 2, .start = 40, .rows = 9, .state_in = 7, .tape = 1, .replay = 16, .state_out = 7}},
      // A chunk beside a decode row: op by op.
      {{.sequence = 3, .start = 22, .rows = 40, .state_in = 3, .saves = {{39, 3}}},
       {.sequence = 0, .start = 4, .rows = 1, .state_in = 0, .saves = {{0, 0}}}},
      // Decode of two, and of three: op by op.
      {{.sequence = 0, .start = 5, .rows = 1, .state_in = 0, .saves = {{0, 0}}},
       {.sequence = 3, .start = 62, .rows = 1, .state_in = 3, .saves = {{0, 3}}}},
      {{.sequence = 0, .start = 6, .rows = 1, .state_in = 0, .saves = {{0, 0}}},
       {.sequence = 2, .start = 49, .rows = 1, .state_in = 7, .saves = {{0, 2}}},
       {.sequence = 3, .start = 63, .rows = 1, .state_in = 3, .saves = {{0, 3}}}},
      // Of four: one cold, one from a shared slot with two saves, one without a save, a padding sequence.
      {{.sequence = 0, .start = 0, .rows = 1, .saves = {{0, 4}}},
       {.sequence = 2, .start = 50, .rows = 1, .state_in = 6, .saves = {{0, 8}, {0, 9}}},
       {.sequence = 3, .start = 64, .rows = 1, .state_in = 3},
       {.sequence = 0, .start = 0, .rows = 1, .saves = {{0, 5}}, .padding = true}},
  };
  for (const Sizes& z :
       {Sizes{2, 2, 128, 128},
        {2, 4, 128, 128},
        {1, 4, 128, 64},
        {1, 4, 128, 128},
        {1, 8, 128, 128},
        {1, 8, 128, 64},
        {1, 8, 128, 32},
        {.key_heads = 1, .heads = 3, .keys = 128, .values = 128, .tapes_too = false},
        {.key_heads = 2, .heads = 4, .keys = 64, .values = 64, .one_kernel = false},
        {.key_heads = 1, .heads = 2, .keys = 128, .values = 128, .one_kernel = false, .width = 3}})
    check(z, steps, 12, 3);
}

// Enough heads that none is cut in pieces.
TEST_P(DeltaNetParity, ManyHeads) {
  constexpr int kSequences = 8;
  Step step;
  for (int s = 0; s < kSequences; ++s)
    step.push_back({.sequence = s, .start = 0, .rows = 1 + s % 3, .saves = {{s % 3, s}}});
  check({8, 16, 128, 128}, {step}, kSequences, 1);
}

// More blocks than the processors hold at once, step after step in the same slots: decode, and verify with tapes.
TEST_P(DeltaNetParity, ManySequences) {
  constexpr int kSequences = 40;
  std::vector<Step> steps;
  for (int i = 0; i < 3; ++i) {
    Step& step = steps.emplace_back();
    for (int s = 0; s < kSequences; ++s)
      step.push_back({.sequence = s % 4,
                      .start = i,
                      .rows = 1,
                      .state_in = i == 0 || (s + i) % 7 == 0 ? -1 : s,
                      .saves = {{0, s}}});
  }
  for (int i = 3; i < 7; ++i) {  // rows 1 .. 16 on 0 .. 16 replayed
    Step& step = steps.emplace_back();
    for (int s = 0; s < kSequences; ++s) {
      const int kept = i == 3 ? 0 : 1 + (5 * s + i - 1) % 16;  // rows of the step before
      step.push_back({.sequence = s % 4,
                      .start = 3 + i,
                      .rows = 1 + (5 * s + i) % 16,
                      .state_in = s,
                      .tape = s,
                      .replay = kept * (s % 5) / 4,
                      .state_out = s});
    }
  }
  check({8, 16, 128, 128}, steps, kSequences, kSequences);
  check({1, 8, 128, 128}, steps, kSequences, kSequences);
}

}  // namespace
}  // namespace strata::testing
