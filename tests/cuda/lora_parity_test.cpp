// lora and expert_lora beside the CPU; rows of the base keep their bits; adapters change while the table stays where it is.
#include "cuda/parity.h"

namespace strata::testing {
namespace {

class LoraParity : public Parity {
 protected:
  // The same pair on both sides.
  struct Both {
    LoraPair cpu, gpu;
  };
  struct PartSize {
    std::int64_t n, rank, output;
  };

  Both pair(int experts, std::int64_t inputs, const std::vector<PartSize>& parts, unsigned seed, bool embedding = false) {
    const std::int64_t E = std::max(experts, 1);
    std::int64_t lines = 0;
    for (const PartSize& p : parts) lines += p.rank;
    Both both;
    load(both.cpu.a, both.gpu.a, experts, embedding ? Shape{inputs, lines} : Shape{E * lines, inputs}, seed);
    std::int64_t line = 0;
    for (const PartSize& p : parts) {
      LoraPart cpu{.line = line, .output = p.output}, gpu{.line = line, .output = p.output};
      load(cpu.b, gpu.b, experts, {E * p.n, p.rank}, ++seed);
      both.cpu.parts.push_back(std::move(cpu));
      both.gpu.parts.push_back(std::move(gpu));
      line += p.rank;
    }
    return both;
  }

  void load(Weight& on_cpu, Weight& on_gpu, int experts, const Shape& shape, unsigned seed) {
    const HostTensor values = random_tensor(shape, seed, 0.3F);
    HostMatrix matrix{Tensor(values)};
    matrix.experts = experts;
    on_cpu = cpu().load(matrix, DType::kF32);
    on_gpu = gpu().load(matrix, DType::kF32);
  }

  void set(LoraTable& on_cpu, LoraTable& on_gpu, int slot, const Both* both) {
    cpu().set_lora(on_cpu, slot, both == nullptr ? nullptr : &both->cpu);
    gpu().set_lora(on_gpu, slot, both == nullptr ? nullptr : &both->gpu);
  }

  // Rows without an adapter have on the GPU what they had before.
  void expect_base_kept(const std::vector<float>& before, const std::vector<float>& after, const std::vector<int>& adapters, std::size_t choices) {
    const std::size_t width = before.size() / (adapters.size() * choices);
    for (std::size_t t = 0; t < adapters.size(); ++t) {
      if (adapters[t] >= 0) continue;
      const std::size_t from = t * choices * width;
      EXPECT_EQ(std::memcmp(before.data() + from, after.data() + from, choices * width * sizeof(float)), 0) << "row " << t;
    }
  }
};
STRATA_PARITY(LoraParity);

TEST_P(LoraParity, Linear) {
  for (const auto& [rows, inputs] : {std::pair{1, 37}, {5, 64}, {70, 1000}}) {
    const Both one = pair(0, inputs, {{37, 4, 3}, {65, 17, 40}, {1, 1, 149}}, 1), two = pair(0, inputs, {{300, 33, 0}}, 20);
    LoraTable on_cpu(3, 33), on_gpu(3, 33);
    set(on_cpu, on_gpu, 0, &one);
    set(on_cpu, on_gpu, 1, nullptr);
    set(on_cpu, on_gpu, 2, &two);
    std::vector<int> numbers;
    for (int t = 0; t < rows; ++t) numbers.push_back((t + 1) % 4 - 1);
    const Pair x = activations({rows, inputs}, 3), out = activations({rows, 300}, 4), adapters = ints(numbers, {rows});
    for (int round = 0; round < 2; ++round) {
      const std::vector<float> before = fetch(out.gpu);
      cpu().lora(out.cpu, x.cpu, on_cpu, adapters.cpu);
      gpu().lora(out.gpu, x.gpu, on_gpu, adapters.gpu);
      EXPECT_LT(distance(out), tolerance()) << rows << "x" << inputs << " round " << round;
      expect_base_kept(before, fetch(out.gpu), numbers, 1);
      set(on_cpu, on_gpu, 1, &one);  // another adapter in an empty slot, and one gone
      set(on_cpu, on_gpu, 0, nullptr);
    }
  }
}

TEST_P(LoraParity, Embedding) {
  const Both both = pair(0, 53, {{35, 5, 0}}, 1, true);
  LoraTable on_cpu(1, 8, true), on_gpu(1, 8, true);
  set(on_cpu, on_gpu, 0, &both);
  const std::vector<int> numbers{0, -1, 0, 0};
  const Pair tokens = ints({52, 3, 0, 17}, {4}), out = activations({4, 35}, 4), adapters = ints(numbers, {4});
  const std::vector<float> before = fetch(out.gpu);
  cpu().lora(out.cpu, tokens.cpu, on_cpu, adapters.cpu);
  gpu().lora(out.gpu, tokens.gpu, on_gpu, adapters.gpu);
  EXPECT_LT(distance(out), tolerance());
  expect_base_kept(before, fetch(out.gpu), numbers, 1);
}

TEST_P(LoraParity, Experts) {
  const int experts = 6, k = 3;
  for (const auto& [rows, wide] : {std::pair{1, false}, {9, true}, {40, false}}) {
    const Both one = pair(experts, 39, {{30, 4, 0}, {36, 9, 30}}, 1), two = pair(experts, 39, {{66, 2, 0}}, 20);
    LoraTable on_cpu(2, 13), on_gpu(2, 13);
    set(on_cpu, on_gpu, 0, &one);
    set(on_cpu, on_gpu, 1, &two);
    const Scratch on_one(cpu().arena()), on_other(gpu().arena());
    const Pair logits = both(random_tensor({rows, experts}, 5), DType::kF32);
    const Routing here = cpu().route({.logits = logits.cpu}, k), there = gpu().route({.logits = logits.gpu}, k);
    std::vector<int> numbers;
    for (int t = 0; t < rows; ++t) numbers.push_back((t + 1) % 3 - 1);
    const Pair x = activations({wide ? rows * k : rows, 39}, 3), out = activations({rows * k, 66}, 4), adapters = ints(numbers, {rows});
    const std::vector<float> before = fetch(out.gpu);
    cpu().expert_lora(out.cpu, x.cpu, here, on_cpu, adapters.cpu);
    gpu().expert_lora(out.gpu, x.gpu, there, on_gpu, adapters.gpu);
    EXPECT_LT(distance(out), tolerance()) << rows;
    expect_base_kept(before, fetch(out.gpu), numbers, k);
  }
}

}  // namespace
}  // namespace strata::testing
