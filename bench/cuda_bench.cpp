// Times the CUDA kernels on the shapes of published models: cuda_bench [name part ...] prints one line each, with the share
// of the memory or arithmetic ceiling. Inputs are random and taken in turn, so that nothing large is served by the cache.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/batch_upload.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/draw.h"

namespace strata {
namespace {

constexpr double kBytesPerSecond = 4.245e12;  // device copy, measured on an H200
constexpr double kFlopsPerSecond = 794e12;    // bf16 matrix product 8192^3, measured on an H200
constexpr std::size_t kTurnBytes = std::size_t{400} << 20;  // inputs of a turn-around: well past the 50 MB cache

class Bench {
 public:
  explicit Bench(std::vector<std::string> wanted) : wanted_(std::move(wanted)), ops_(CudaOptions{}), upload_(ops_, 16 << 20) {
    constexpr std::size_t kNoise = 64 << 20;
    noise_ = ops_.allocate(kNoise);
    std::vector<std::uint16_t> host(kNoise / 2);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> some(1 << 16);
    for (auto& x : some) x = to_bfloat16(normal(random)).bits;
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = some[(i * 2654435761U >> 7) & 0xffff];
    ops_.copy_to_device(noise_.view(DType::kBF16, {static_cast<std::int64_t>(host.size())}), host.data());
    ops_.synchronize();
  }

  bool wanted(const std::string& name) const {
    return wanted_.empty() ||
           std::any_of(wanted_.begin(), wanted_.end(), [&](const auto& w) { return name.find(w) != std::string::npos; });
  }
  CudaOps& ops() { return ops_; }
  cuda::BatchUpload& upload() { return upload_; }

  // Device memory of random bf16 numbers (as f32 or f8: some finite numbers).
  Tensor noise(const Shape& shape, DType dtype = DType::kBF16) {
    kept_.push_back(ops_.allocate(bytes_of(dtype, shape.elements()) + 256));
    Buffer& b = kept_.back();
    const std::size_t bytes = bytes_of(dtype, shape.elements());
    if (dtype == DType::kF8E4M3) {
      cuda::check_cuda(cudaMemsetAsync(b.data(), 0x35, bytes, ops_.stream()), "fill");
    } else {
      for (std::size_t at = 0; at < bytes; at += noise_.bytes())
        cuda::check_cuda(cudaMemcpyAsync(b.data() + at, noise_.data(), std::min(noise_.bytes(), bytes - at), cudaMemcpyDeviceToDevice, ops_.stream()), "fill");
    }
    ops_.synchronize();
    return b.view(dtype, shape);
  }
  Weight weight(DType dtype, const Shape& shape) {
    if (info(dtype).block_elements > 1) {
      HostMatrix matrix;  // nothing behind it
      matrix.experts = shape.rank() == 3 ? static_cast<int>(shape[0]) : 0;
      matrix.pieces.push_back({Tensor(reinterpret_cast<std::byte*>(64), dtype, {shape.elements() / shape[-1], shape[-1]}), {}, false});
      Weight w = maker_.load(matrix, {});
      maker_.synchronize();
      return w;
    }
    Weight w;
    w.dtype = dtype;
    w.shape = shape;
    const std::int64_t rows = shape.elements() / shape[-1];
    w.data = noise({rows, shape[-1]}, dtype);
    if (dtype == DType::kF8E4M3) {
      w.scales = noise({rows / 128, (shape[-1] + 127) / 128}, DType::kF32);
    }
    return w;
  }
  Tensor ints(const std::vector<int>& values, const Shape& shape) {
    kept_.push_back(ops_.allocate(values.size() * sizeof(int) + 256));
    const Tensor t = kept_.back().view(DType::kI32, shape);
    ops_.copy_to_device(t, values.data());
    ops_.synchronize();
    return t;
  }
  void drop() { kept_.clear(); }

  // Median time of one call in a graph of `calls` calls.
  double time(const std::function<void(int)>& call, int calls) {
    for (int i = 0; i < std::min(calls, 3); ++i) call(i);
    ops_.synchronize();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda::check_cuda(cudaStreamBeginCapture(ops_.stream(), cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) call(i);
    cuda::check_cuda(cudaStreamEndCapture(ops_.stream(), &graph), "capture");
    cuda::check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < 9; ++i) {
      cudaEventRecord(begin, ops_.stream());
      cuda::check_cuda(cudaGraphLaunch(exec, ops_.stream()), "launch");
      cudaEventRecord(end, ops_.stream());
      cuda::check_cuda(cudaEventSynchronize(end), "run");
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      times.push_back(ms);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3 / calls;
  }

  // Times and prints; bytes and flops of one call.
  void line(const std::string& name, double bytes, double flops, const std::function<void(int)>& call, int calls = 20) {
    const double t = time(call, calls), floor = std::max(bytes / kBytesPerSecond, flops / kFlopsPerSecond);
    std::printf("%-52s %9.1f us  floor %8.1f  %5.1f %%  %6.2f TB/s %7.1f TFLOP/s\n", name.c_str(), t * 1e6, floor * 1e6,
                100 * floor / t, bytes / t * 1e-12, flops / t * 1e-12);
    std::fflush(stdout);
  }
  static int turns(double bytes) { return std::clamp(static_cast<int>(static_cast<double>(kTurnBytes) / bytes) + 1, 2, 24); }

 private:
  std::vector<std::string> wanted_;
  CudaOps ops_, maker_{CudaOptions{.dummy_weights = true}};
  cuda::BatchUpload upload_;
  Buffer noise_;
  std::deque<Buffer> kept_;
};

std::string type_name(DType dtype) { return dtype == DType::kF8E4M3 ? "f8" : std::string(name(dtype)); }
double bytes_each(DType dtype) { return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements; }

void bench_linear(Bench& b, DType dtype, int rows, int inputs, int outputs) {
  const std::string name = fmt::format("linear {} m={} {}->{}", type_name(dtype), rows, inputs, outputs);
  if (!b.wanted(name)) return;
  const double weights = static_cast<double>(outputs) * inputs * bytes_each(dtype);
  const int turns = rows <= 256 ? Bench::turns(weights) : 2;
  std::vector<Weight> w;
  for (int i = 0; i < turns; ++i) w.push_back(b.weight(dtype, {outputs, inputs}));
  const Tensor x = b.noise({rows, inputs}), out = b.noise({rows, outputs});
  b.line(name, weights + 2.0 * rows * (inputs + outputs), 2.0 * rows * inputs * outputs,
         [&](int i) { b.ops().linear(out, x, w[static_cast<std::size_t>(i % turns)], {}); }, rows > 1024 ? 6 : 2 * turns);
  b.drop();
}

void bench_experts(Bench& b, DType dtype, int rows) {
  constexpr int kExperts = 256, kInputs = 2048, kHidden = 512, kChosen = 8;
  const std::string name = fmt::format("moe {} 256x512 top 8 m={}", type_name(dtype), rows);
  if (!b.wanted(name)) return;
  const int turns = rows < 64 ? 4 : 1;
  std::vector<Weight> up, down;
  std::vector<Tensor> logits;
  for (int i = 0; i < turns; ++i) {
    up.push_back(b.weight(dtype, {kExperts, 2 * kHidden, kInputs}));
    down.push_back(b.weight(dtype, {kExperts, kInputs, kHidden}));
    std::mt19937 random(static_cast<unsigned>(i + 5));
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows * kExperts));
    for (float& v : values) v = normal(random);
    const Tensor t = b.noise({rows, kExperts}, DType::kF32);
    b.ops().copy_to_device(t, values.data());
    b.ops().synchronize();
    logits.push_back(t);
  }
  const Tensor x = b.noise({rows, kInputs}), out = b.noise({rows, kInputs});
  const double touched = kExperts * (1 - std::pow(1 - 1.0 / kExperts * kChosen, rows));
  const double weights = touched * 3.0 * kInputs * kHidden * bytes_each(dtype);
  b.line(name, weights + 4.0 * rows * kInputs, 6.0 * rows * kChosen * kInputs * kHidden, [&](int i) {
    const auto turn = static_cast<std::size_t>(i % turns);
    const Scratch scratch(b.ops().arena());
    const Routing routing = b.ops().route({.logits = logits[turn]}, kChosen);
    const Tensor hidden = b.ops().make({rows * kChosen, kHidden}), y = b.ops().make({rows * kChosen, kInputs});
    b.ops().expert_linear_glu(hidden, x, routing, up[turn], {}, Activation::kSilu, 0);
    b.ops().expert_linear(y, hidden, routing, down[turn], {});
    b.ops().combine(out, y, routing, {}, {});
  }, rows > 1024 ? 4 : 12);
  b.drop();
}

// `sequences` of `run` rows after `past` tokens. Pages are shared out in order.
Batch batch_of(Bench& b, int sequences, int run, int past, bool tapes = false) {
  Batch host;
  std::vector<int> positions, sequence, first{0}, start, table, slots, state_in, saves, tape, replay, out;
  const int pages = (past + run + kPageTokens - 1) / kPageTokens;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < run; ++i) {
      positions.push_back(past + i);
      sequence.push_back(s);
      slots.push_back((s * pages + (past + i) / kPageTokens) * kPageTokens + (past + i) % kPageTokens);
    }
    first.push_back((s + 1) * run);
    start.push_back(past);
    for (int p = 0; p < pages; ++p) table.push_back(s * pages + p);
    state_in.push_back(past > 0 ? s : -1);
    if (!tapes) saves.insert(saves.end(), {(s + 1) * run - 1, s});
    tape.push_back(s), replay.push_back(run / 2), out.push_back(s);
  }
  const auto rows = static_cast<std::int64_t>(positions.size()), count = static_cast<std::int64_t>(sequences);
  host.shape = {sequences * run, sequences, 0, static_cast<int>(saves.size() / 2), run, past + run};
  const auto view = [](std::vector<int>& v, const Shape& shape) { return Tensor(v.data(), DType::kI32, shape); };
  host.positions = view(positions, {rows}), host.sequence = view(sequence, {rows}), host.first = view(first, {count + 1});
  host.start = view(start, {count}), host.page_table = view(table, {count, pages}), host.kv_slots = view(slots, {rows});
  host.state_in = view(state_in, {count});
  if (!saves.empty()) host.saves = view(saves, {static_cast<std::int64_t>(saves.size() / 2), 2});
  if (tapes) host.tape = view(tape, {count}), host.replay = view(replay, {count}), host.state_out = view(out, {count});
  const Batch batch = b.upload().send(host);
  b.ops().synchronize();
  return batch;
}

void bench_delta(Bench& b, int key_heads, int heads, int sequences, int run, int past, bool tapes) {
  constexpr int K = 128, V = 128;
  const std::string name = fmt::format("gdn {}/{} {} x {} rows{}", key_heads, heads, sequences, run, tapes ? " tapes" : "");
  if (!b.wanted(name)) return;
  const Batch batch = batch_of(b, sequences, run, past, tapes);
  const std::int64_t rows = batch.shape.rows;
  const int qkv = 2 * key_heads * K + heads * V, tape = qkv + 2 * heads;
  const double state = 4.0 * sequences * heads * K * V;
  const int turns = run > 64 ? 1 : Bench::turns(state);
  std::vector<Tensor> states;
  for (int i = 0; i < turns; ++i) states.push_back(b.noise({sequences, heads, K, V}, DType::kF32));
  const Tensor in = b.noise({rows, tape}), out = b.noise({rows, heads, V}), zero = b.noise({heads}, DType::kF32),
               tape_rows = tapes ? b.noise({sequences, kTapeRows, tape}, DType::kF32) : Tensor();
  const double io = static_cast<double>(rows) * 2 * (qkv + heads * V), chunk = 64;
  const double flops = run < 64 ? 0 : static_cast<double>(rows) * heads * 2 * (3.0 * K * V + 2 * chunk * K + 2 * chunk * V);
  b.line(name, state * (past > 0 ? 2 : 1) + io, flops, [&](int i) {
    b.ops().gated_delta({.out = out, .qkv = in.columns(0, qkv), .a = in.columns(qkv, heads), .b = in.columns(qkv + heads, heads),
                         .a_log = zero, .dt_bias = zero, .key_heads = key_heads, .value_heads = heads, .key_dim = K, .value_dim = V,
                         .state = states[static_cast<std::size_t>(i % turns)], .tape = tape_rows}, batch);
  }, run > 64 ? 3 : 2 * turns);
  b.drop();
}

// The convolution, delta rule and gated norm of a layer, in one op and in three.
void bench_delta_net(Bench& b, int key_heads, int heads, int sequences, int run, bool tapes) {
  constexpr int K = 128, V = 128;
  for (const bool apart : {false, true}) {
    const std::string name =
        fmt::format("delta_net {}/{} {} x {} rows{}{}", key_heads, heads, sequences, run, tapes ? " tapes" : "", apart ? ", three ops" : "");
    if (!b.wanted(name)) continue;
    const Batch batch = batch_of(b, sequences, run, 64, tapes);
    const std::int64_t rows = batch.shape.rows;
    const int C = 2 * key_heads * K + heads * V, values = heads * V;
    const double state = 4.0 * sequences * (heads * K * V + 3 * C);
    const int turns = Bench::turns(state);
    std::vector<Tensor> states, windows;
    for (int i = 0; i < turns; ++i) {
      states.push_back(b.noise({sequences, heads, K, V}, DType::kF32));
      windows.push_back(b.noise({sequences, C, 3}, DType::kF32));
    }
    const Tensor in = b.noise({rows, C + values + 2 * heads}), qkv = b.noise({rows, C}), out = b.noise({rows, heads, V}),
                 zero = b.noise({heads}, DType::kF32), taps = b.noise({C, 4}, DType::kF32), weight = b.noise({V}, DType::kF32),
                 window_tape = tapes ? b.noise({sequences, kTapeRows, C}, DType::kF32) : Tensor(),
                 tape = tapes ? b.noise({sequences, kTapeRows, C + 2 * heads}, DType::kF32) : Tensor();
    b.line(name, 2 * state + static_cast<double>(rows) * 2 * (C + 2 * values), 0, [&](int i) {
      const auto turn = static_cast<std::size_t>(i % turns);
      const DeltaNetArgs args{
          .conv = {.out = qkv, .x = in.columns(0, C), .weight = taps, .bias = {}, .state = windows[turn], .tape = window_tape},
          .delta = {.out = out, .qkv = qkv, .a = in.columns(C + values + heads, heads), .b = in.columns(C + values, heads), .a_log = zero,
                    .dt_bias = zero, .key_heads = key_heads, .value_heads = heads, .key_dim = K, .value_dim = V, .state = states[turn],
                    .tape = tape},
          .norm = {.out = out, .x = out, .gate = in.columns(C, values).reshape({rows, heads, V}), .weight = weight}};
      apart ? b.ops().Ops::delta_net(args, batch) : b.ops().delta_net(args, batch);
    }, 2 * turns);
    b.drop();
  }
}

void bench_attention(Bench& b, int heads, int kv_heads, int dim, int sequences, int run, int past) {
  const std::string name = fmt::format("attention {}/{} of {}, {} x {} rows after {}", heads, kv_heads, dim, sequences, run, past);
  if (!b.wanted(name)) return;
  const Batch batch = batch_of(b, sequences, run, past);
  const std::int64_t pages = static_cast<std::int64_t>(sequences) * ((past + run + kPageTokens - 1) / kPageTokens), rows = batch.shape.rows;
  const double kv_bytes = 2.0 * sequences * (past + run) * kv_heads * dim * 2;
  const int turns = run > 64 ? 1 : std::min(Bench::turns(kv_bytes), 8);
  std::vector<KvView> kv;
  for (int i = 0; i < turns; ++i)
    kv.push_back({b.noise({pages, kPageTokens, kv_heads, dim}), b.noise({pages, kPageTokens, kv_heads, dim}), {}});
  const Tensor q = b.noise({rows, heads, dim}), out = b.noise({rows, heads, dim});
  const double seen = static_cast<double>(run) * past + 0.5 * run * (run + 1.0);
  b.line(name, kv_bytes + 4.0 * static_cast<double>(rows) * heads * dim, 4.0 * sequences * seen * heads * dim, [&](int i) {
    b.ops().attention({.out = out, .q = q, .kv = kv[static_cast<std::size_t>(i % turns)], .scale = 0.0625F}, batch);
  }, run > 64 ? 3 : 2 * turns);
  b.drop();
}

// A norm and the product that takes it, and a mixture from the residual stream on: as the backend does them, and op by op.
void bench_from_the_stream(Bench& b, int rows) {
  constexpr int kWidth = 2048, kOutputs = 12288, kExperts = 256, kHidden = 512, kChosen = 8;
  const std::string product = fmt::format("norm_linear f8 {}x{} m={}", kOutputs, kWidth, rows), mixture = fmt::format("mixture from the stream f8 m={}", rows);
  if (!b.wanted(product) && !b.wanted(mixture)) return;
  const auto in_both_ways = [&](const std::string& name, double bytes, const std::function<void(int, bool)>& call) {
    if (!b.wanted(name)) return;
    b.line(name, bytes, 0, [&](int i) { call(i, false); });
    b.line(name + ", op by op", bytes, 0, [&](int i) { call(i, true); });
  };
  Ops& ops = b.ops();
  const Tensor x = b.noise({rows, kWidth}, DType::kF32), normed = b.noise({rows, kWidth}), delta = b.noise({rows, kWidth});
  const AddNorm norm{.out = normed, .x = x, .delta = delta, .scale = 1e-6F, .weight = b.noise({kWidth}, DType::kF32), .eps = 1e-6F};
  std::deque<Weight> w;
  for (int i = 0; i < 8; ++i) w.push_back(b.weight(DType::kF8E4M3, {kOutputs, kWidth}));
  const Tensor out = b.noise({rows, kOutputs});
  in_both_ways(product, double{kOutputs} * kWidth, [&](int i, bool in_steps) {
    const Weight& of = w[static_cast<std::size_t>(i % 8)];
    in_steps ? ops.Ops::norm_linear(out, norm, of, {}) : ops.norm_linear(out, norm, of, {});
  });
  const Weight router = b.weight(DType::kBF16, {kExperts + 1, kWidth}), in = b.weight(DType::kF8E4M3, {kExperts, 2 * kHidden, kWidth}),
               down = b.weight(DType::kF8E4M3, {kExperts, kWidth, kHidden}), shared_in = b.weight(DType::kF8E4M3, {2 * kHidden, kWidth}),
               shared_down = b.weight(DType::kF8E4M3, {kWidth, kHidden});
  const Tensor routed = b.noise({rows, kExperts + 1}, DType::kF32), mixed = b.noise({rows, kWidth});
  in_both_ways(mixture, 3.0 * kWidth * kHidden * std::min(kExperts, rows * kChosen), [&](int, bool in_steps) {
    MoeArgs args{.out = mixed, .x = normed, .norm = norm, .router = &router, .routed = routed, .route = {.logits = routed.columns(0, kExperts)},
                 .k = kChosen, .in = &in, .down = &down, .shared_in = &shared_in, .shared_down = &shared_down, .shared_gate = routed.columns(kExperts, 1)};
    if (in_steps) {
      ops.normalise(norm);
      ops.linear(routed, normed, router, {});
      args.norm = {}, args.router = nullptr;
    }
    ops.moe(args);
  });
  b.drop();
}

void bench_rows(Bench& b, int rows) {
  constexpr int kWidth = 2048, kChannels = 8192;
  const Batch batch = batch_of(b, rows >= 1024 ? 1 : rows, rows >= 1024 ? rows : 1, 1024);
  const auto add = [&](const std::string& name, double bytes, const std::function<void(int)>& call) {
    if (b.wanted(name)) b.line(name, bytes, 0, call);
  };
  const Tensor x = b.noise({rows, kWidth}), y = b.noise({rows, kWidth}), w = b.noise({kWidth}, DType::kF32), out = b.noise({rows, kWidth});
  add(fmt::format("add_rms_norm {} x {}", rows, kWidth), 8.0 * rows * kWidth, [&](int) { b.ops().add_rms_norm(out, x, y, 1, w, 1e-6F); });
  const Tensor c = b.noise({rows, kChannels}), conv_out = b.noise({rows, kChannels}), taps = b.noise({kChannels, 4}, DType::kF32),
               state = b.noise({rows, kChannels, 3}, DType::kF32);
  add(fmt::format("causal_conv {} x {}", rows, kChannels), 4.0 * rows * kChannels, [&](int) {
    b.ops().causal_conv({.out = conv_out, .x = c, .weight = taps, .bias = {}, .state = state, .tape = {}}, batch);
  });
  const Tensor o = b.noise({rows, 32, 128}), z = b.noise({rows, 32, 128}), norm = b.noise({128}, DType::kF32);
  add(fmt::format("gated_norm {} x 32 x 128", rows), 6.0 * rows * 4096, [&](int) { b.ops().gated_norm({.out = o, .x = o, .gate = z, .weight = norm}); });
  const Tensor logits = b.noise({rows, 256}, DType::kF32);
  add(fmt::format("route {} x 256 top 8", rows), 4.0 * rows * 256, [&](int) {
    const Scratch scratch(b.ops().arena());
    b.ops().route({.logits = logits}, 8);
  });
  b.drop();
}

// A token a row from the logits of a large vocabulary, which lie in the cache where they fit.
void bench_draw(Bench& b, int rows) {
  constexpr int kVocab = 248320;
  struct Way {
    const char* name;
    float temperature;  // of logits with a deviation of 1; models' have more
    int top_k;
    float top_p;
  };
  for (const Way& way : {Way{"best", 0, 0, 1}, {"all", 0.15F, 0, 1}, {"top-p 0.95", 0.15F, 0, 0.95F}, {"top-k 20, top-p 0.95", 0.15F, 20, 0.95F},
                         {"top-k 200, top-p 0.95", 0.15F, 200, 0.95F}}) {
    const std::string name = fmt::format("draw {} x {}, {}", rows, kVocab, way.name);
    if (!b.wanted(name)) continue;
    std::vector<cuda::DrawJob> jobs(static_cast<std::size_t>(rows));
    for (int i = 0; i < rows; ++i) {
      jobs[static_cast<std::size_t>(i)] = {.uniform = (i + 0.5) / rows, .row = i, .place = i, .top_k = way.top_k, .temperature = way.temperature, .top_p = way.top_p,
                                           .min_p = 0, .first_edit = 0, .edits = 0, .first_mask_word = -1, .score = -1, .logprobs = -1};
    }
    std::vector<int> words(jobs.size() * sizeof(cuda::DrawJob) / sizeof(int));
    std::memcpy(words.data(), jobs.data(), jobs.size() * sizeof(cuda::DrawJob));
    const Tensor logits = b.noise({rows, kVocab}, DType::kF32), on_device = b.ints(words, {static_cast<std::int64_t>(words.size())}),
                 results = b.noise({rows, static_cast<std::int64_t>(sizeof(cuda::DrawResult) / 4)}, DType::kF32), kept = b.noise({4096}, DType::kF32);
    cuda::DrawView view;
    view.logits = logits.data<float>();
    view.stride = kVocab;
    view.vocab = kVocab;
    view.count = rows;
    view.jobs = reinterpret_cast<const cuda::DrawJob*>(on_device.raw());
    view.results = reinterpret_cast<cuda::DrawResult*>(results.raw());
    view.kept = {reinterpret_cast<int*>(kept.raw()), 4095};
    b.line(name, 4.0 * rows * kVocab, 0, [&](int) { way.temperature > 0 ? cuda::launch_draw(view, b.ops().stream()) : cuda::launch_best(view, b.ops().stream()); });
    b.drop();
  }
}

void run(Bench& b) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kQ4_0, DType::kNVFP4}) {
    for (const int rows : {1, 4, 16, 64}) bench_linear(b, dtype, rows, 2048, 12288);
    for (const int rows : {1, 16}) bench_linear(b, dtype, rows, 4096, 2048);
    for (const int rows : {1, 16}) bench_linear(b, dtype, rows, 2048, 1024);
    bench_linear(b, dtype, 1, 2048, 248320);
    for (const int rows : {128, 256, 1024, 8192}) bench_linear(b, dtype, rows, 2048, 12288);
    bench_linear(b, dtype, 8192, 4096, 2048);
    bench_linear(b, dtype, 8192, 8192, 8192);
    for (const int rows : {1, 4, 16, 64, 256, 1024, 8192}) bench_experts(b, dtype, rows);
  }
  for (const int rows : {1, 2, 64}) bench_from_the_stream(b, rows);
  for (const int n : {1, 16, 64, 128, 256}) bench_delta(b, 16, 32, n, 1, 64, false);
  bench_delta(b, 16, 32, 64, 4, 64, true);
  bench_delta(b, 16, 32, 64, 8, 64, true);
  for (const int n : {1, 2, 4, 16, 64, 256}) bench_delta_net(b, 16, 32, n, 1, false);
  for (const int n : {1, 4, 8, 64}) bench_delta_net(b, 16, 32, n, 4, true);
  for (const int n : {1024, 8192}) bench_delta(b, 16, 32, 1, n, 0, false);
  bench_delta(b, 16, 32, 8, 1024, 0, false);
  for (const auto& [heads, kv_heads, dim] : {std::tuple{16, 2, 256}, {32, 8, 128}}) {
    for (const auto& [n, past] : {std::pair{1, 1024}, {1, 8191}, {1, 65535}, {64, 1023}, {64, 8191}}) bench_attention(b, heads, kv_heads, dim, n, 1, past);
    bench_attention(b, heads, kv_heads, dim, 16, 4, 8188);
    for (const int n : {2048, 8192}) bench_attention(b, heads, kv_heads, dim, 1, n, 0);
  }
  for (const int rows : {1, 64, 8192}) bench_rows(b, rows);
  for (const int rows : {1, 4, 64, 1024}) bench_draw(b, rows);
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  strata::Bench bench({argv + 1, argv + argc});
  strata::run(bench);
}
