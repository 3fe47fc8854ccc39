// Every family: an adapter on all matrices it can add to gives what the model with the adapter merged into
// its weights gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "comparison.h"
#include "loader/checkpoint.h"
#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"
#include "model/lora_bank.h"
#include "tensor/convert.h"

namespace strata::test {
namespace {

constexpr int kRank = 3;

// "layers.3.mlp.experts.7.up_proj" -> "layers.3.mlp.experts.*.up_proj", if `names` has that.
std::string with_star(const std::string& name, const std::set<std::string>& names) {
  for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    const std::size_t before = name.rfind('.', dot - 1);
    std::string starred = name.substr(0, before + 1) + "*" + name.substr(dot);
    if (before != std::string::npos && names.contains(starred)) return starred;
  }
  return "";
}

std::vector<float> normals(std::size_t n, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

// An adapter on everything in a checkpoint that `names` has, and the checkpoint with it merged.
class Merged {
 public:
  // `inputs_first`: stacks lie [E, K, N] (gpt_oss).
  Merged(const std::filesystem::path& folder, const std::filesystem::path& to,
         const std::vector<std::string>& names, bool inputs_first)
      : names_(names.begin(), names.end()), left_(names.begin(), names.end()), inputs_first_(inputs_first) {
    const auto file = Safetensors::open_file(folder / "model.safetensors");
    const bool tied = std::none_of(file->tensors().begin(), file->tensors().end(),
                                   [](const auto& t) { return t.name.ends_with("lm_head.weight"); });
    if (tied) left_.erase("lm_head");
    std::vector<NamedTensor> out;
    for (const SourceTensor& t : file->tensors()) {
      Shape shape;
      for (const std::int64_t n : t.extents) shape.append(n);
      out.push_back({t.name, merge(t, shape, tied)});
    }
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(folder / "config.json", to / "config.json");
    write_safetensors(to / "model.safetensors", out);
  }

  LoraAdapter adapter{.origin = "a random adapter"};
  // Names of whole matrices that the checkpoint has not.
  std::vector<std::string> left() const {
    std::vector<std::string> out;
    const auto plain = [](const std::string& n) {
      return n.find('*') == std::string::npos && n.find(".experts.") == std::string::npos;
    };
    std::copy_if(left_.begin(), left_.end(), std::back_inserter(out), plain);
    return out;
  }

 private:
  Tensor merge(const SourceTensor& t, const Shape& shape, bool tied) {
    std::string name = normal_name(t.name);
    if (name.ends_with(".weight")) name.erase(name.size() - 7);
    const bool known = names_.contains(name),
               embedding = name == "embed_tokens" || name.ends_with(".embeddings");
    const std::string starred = known ? "" : with_star(name, names_);
    left_.erase(known ? name : starred);
    if ((!known && starred.empty()) || (tied && embedding)) {
      Buffer& same = kept_.emplace_back(Buffer::host(std::max<std::size_t>(t.bytes.size(), 1)));
      std::copy(t.bytes.begin(), t.bytes.end(), same.data());
      return same.view(t.dtype, shape);
    }
    const bool stack = shape.rank() == 3;
    const std::int64_t E = stack ? shape[0] : 1, rows = shape[-2], columns = shape[-1];
    const bool turned = stack && inputs_first_;
    const std::int64_t N = turned ? columns : rows, K = turned ? rows : columns;
    LoraTarget target{.name = name,
                      .rank = kRank,
                      .experts = stack ? static_cast<int>(E) : 0,
                      .embedding = embedding,
                      .inputs = embedding ? N : K,
                      .outputs = embedding ? K : N,
                      .a = {},
                      .b = {}};
    target.a = normals(static_cast<std::size_t>(E * kRank * target.inputs),
                       1 / std::sqrt(static_cast<float>(K)), random_);
    target.b = normals(static_cast<std::size_t>(E * kRank * target.outputs), 0.2F, random_);
    Buffer& buffer =
        kept_.emplace_back(Buffer::host(static_cast<std::size_t>(shape.elements()) * sizeof(float)));
    const Tensor out = buffer.view(DType::kF32, shape);
    row_to_f32(t.dtype, t.bytes.data(), shape.elements(), out.data<float>());
    for (std::int64_t e = 0; e < E; ++e) {
      for (std::int64_t n = 0; n < target.outputs; ++n) {
        for (std::int64_t k = 0; k < target.inputs; ++k) {
          double delta = 0;
          for (std::int64_t r = 0; r < kRank; ++r) {
            delta += static_cast<double>(
                         target.b[static_cast<std::size_t>((e * target.outputs + n) * kRank + r)]) *
                     target.a[static_cast<std::size_t>((e * kRank + r) * target.inputs + k)];
          }
          const bool across = embedding || turned;  // stored with the inputs first
          out.data<float>()[e * N * K + (across ? k * target.outputs + n : n * target.inputs + k)] +=
              static_cast<float>(delta);
        }
      }
    }
    adapter.targets.push_back(std::move(target));
    return out;
  }

  std::set<std::string> names_, left_;
  bool inputs_first_;
  std::deque<Buffer> kept_;
  std::mt19937 random_{1};
};

class LoraFamily : public testing::TestWithParam<std::string> {};

TEST_P(LoraFamily, EqualsTheMergedModel) {
  const TempFolder folder;
  std::filesystem::create_directory_symlink(golden_folder() / GetParam(), folder / "base");
  LoadedModel base(folder / "base", {.threads = 2});
  LoraBank bank(base.model, base.ops, {.rank = kRank});
  const Merged merged(golden_folder() / GetParam(), folder / "merged", bank.names(), GetParam() == "gpt_oss");
  EXPECT_EQ(merged.left(), std::vector<std::string>()) << "not found in the checkpoint";
  bank.put(0, merged.adapter);
  base.lora = &bank.tables();
  LoadedModel want(folder / "merged", {.threads = 2});

  Piece piece{.tokens = Reference(golden_folder() / GetParam() / "reference.safetensors").ints("ids.t65"),
              .pages = iota(0, 2)};
  const Pools pools(base.model, 2, 1, 0);
  const Rows plain = base.run(pools, std::span(&piece, 1)).logits,
             expected = want.run(pools, std::span(&piece, 1)).logits;
  piece.adapter = 0;
  const Rows got = base.run(pools, std::span(&piece, 1)).logits;
  const double scale = deviation(expected), off = worst(got, expected, scale);
  EXPECT_LT(off, kTolerance);
  EXPECT_GT(worst(plain, expected, scale), 100 * kTolerance) << "the adapter does little";
  std::printf("  %-18s %3zu targets, largest error in standard deviations: logits %.1e\n", GetParam().c_str(),
              merged.adapter.targets.size(), off);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraFamily, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

// A published stack of experts and its experts one by one are the same weights under two names.
TEST(LoraExperts, StackAndSingleMatricesAgree) {
  LoadedModel base(golden_folder() / "qwen3_5_moe", {.threads = 2});
  LoraBank bank(base.model, base.ops, {.adapters = 2, .rank = kRank});
  base.lora = &bank.tables();
  const std::string experts = "layers.0.mlp.experts.";
  const Reference ref(golden_folder() / "qwen3_5_moe/reference.safetensors");
  std::int64_t D = base.model.hidden_size, F = 0;
  int E = 0;
  for (const ExpertLinear* m : base.model.linears().experts) {
    if (m->stack() != experts + "down_proj") continue;
    F = m->inputs();
    E = static_cast<int>(m->weight().experts());
  }
  ASSERT_GT(E, 1);
  std::mt19937 random(5);
  LoraTarget stack{.name = experts + "gate_up_proj",
                   .rank = kRank,
                   .experts = E,
                   .inputs = D,
                   .outputs = 2 * F,
                   .a = {},
                   .b = {}};
  stack.a = normals(static_cast<std::size_t>(E * kRank * D), 0.3F, random);
  stack.b = normals(static_cast<std::size_t>(E * kRank * 2 * F), 0.3F, random);
  LoraAdapter single{.origin = "single"};
  for (int e = 0; e < E; ++e) {
    for (const bool up : {false, true}) {
      const auto a = stack.a.begin() + e * kRank * D,
                 b = stack.b.begin() + (e * 2 + (up ? 1 : 0)) * F * kRank;
      single.targets.push_back({.name = experts + std::to_string(e) + (up ? ".up_proj" : ".gate_proj"),
                                .rank = kRank,
                                .inputs = D,
                                .outputs = F,
                                .a = {a, a + kRank * D},
                                .b = {b, b + F * kRank}});
    }
  }
  bank.put(0, {.origin = "stack", .targets = {stack}});
  bank.put(1, single);
  const Ints tokens = ref.ints("ids.t65");
  const Pools pools(base.model, 2, 1, 0);
  Piece piece{.tokens = tokens, .pages = iota(0, 2)};
  Rows rows[3];
  for (int i = 0; i < 3; ++i) {
    piece.adapter = i - 1;
    rows[i] = base.run(pools, std::span(&piece, 1)).logits;
  }
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_EQ(rows[1], rows[2]);
}

// PEFT before 0.19 took the axes of stacks the other way round.
TEST(LoraExperts, OldAxes) {
  LoadedModel base(golden_folder() / "qwen3_moe", {.threads = 1});
  LoraBank bank(base.model, base.ops, {.adapters = 2, .rank = kRank});
  std::mt19937 random(5);
  const std::int64_t D = base.model.hidden_size, F = base.model.linears().experts[1]->inputs();
  const int E = static_cast<int>(base.model.linears().experts[1]->weight().experts());
  ASSERT_NE(D, F);
  LoraTarget now{.name = "layers.0.mlp.experts.down_proj",
                 .rank = kRank,
                 .experts = E,
                 .inputs = F,
                 .outputs = D,
                 .a = {},
                 .b = {}};
  now.a = normals(static_cast<std::size_t>(E * kRank * F), 0.3F, random);
  now.b = normals(static_cast<std::size_t>(E * kRank * D), 0.3F, random);
  LoraTarget old = now;  // A [E, rank, outputs], B [E, inputs, rank]
  std::swap(old.inputs, old.outputs);
  old.a.swap(old.b);
  for (int e = 0; e < E; ++e) {
    for (int r = 0; r < kRank; ++r) {
      for (std::int64_t d = 0; d < D; ++d)
        old.a[static_cast<std::size_t>((e * kRank + r) * D + d)] =
            now.b[static_cast<std::size_t>((e * D + d) * kRank + r)];
      for (std::int64_t f = 0; f < F; ++f)
        old.b[static_cast<std::size_t>((e * F + f) * kRank + r)] =
            now.a[static_cast<std::size_t>((e * kRank + r) * F + f)];
    }
  }
  bank.put(0, {.origin = "now", .targets = {now}});
  EXPECT_NE(error_of([&] { bank.check({.origin = "old", .targets = {old}}); }).find("A and B are for"),
            std::string::npos);
  old.either_way = true;
  bank.put(1, {.origin = "old", .targets = {old}});
  base.lora = &bank.tables();
  const Pools pools(base.model, 2, 1, 0);
  Piece piece{.tokens = {5, 6, 7}, .pages = iota(0, 2), .adapter = 0};
  const Rows want = base.run(pools, std::span(&piece, 1)).logits;
  piece.adapter = 1;
  EXPECT_EQ(base.run(pools, std::span(&piece, 1)).logits, want);
}

TEST(LoraBank, RefusesWhatDoesNotFitByName) {
  LoadedModel base(golden_folder() / "qwen3_5_moe", {.threads = 1});
  LoraBank bank(base.model, base.ops, {.rank = 4});
  const std::int64_t D = base.model.hidden_size;
  const auto target = [](const std::string& name, int rank, int experts, std::int64_t inputs,
                         std::int64_t outputs) {
    const auto n = static_cast<std::size_t>(rank * std::max(experts, 1));
    return LoraTarget{.name = name,
                      .rank = rank,
                      .experts = experts,
                      .inputs = inputs,
                      .outputs = outputs,
                      .a = std::vector<float>(n * static_cast<std::size_t>(inputs)),
                      .b = std::vector<float>(n * static_cast<std::size_t>(outputs))};
  };
  const auto error = [&](const LoraTarget& t) {
    return error_of([&] { bank.put(0, {.origin = "folder", .targets = {t}}); });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(error(target("layers.0.linear_attn.in_proj_y", 2, 0, D, D)),
                  "folder: layers.0.linear_attn.in_proj_y: the model has no matrix"));
  EXPECT_TRUE(has(error(target("layers.0.linear_attn.out_proj", 5, 0, D, D)), "rank is 5, at most 4"));
  EXPECT_TRUE(has(error(target("layers.0.linear_attn.out_proj", 2, 0, D + 1, D)),
                  fmt::format("A and B are for {} inputs", D + 1)));
  EXPECT_TRUE(has(error(target("layers.0.mlp.experts.99.gate_proj", 2, 0, D, D)), "expert 99 of"));
  EXPECT_TRUE(has(error(target("layers.0.mlp.experts.gate_up_proj", 2, 3, D, D)), "3 experts"));
  EXPECT_TRUE(has(error(target("embed_tokens", 2, 0, D, D)), "lora_embedding_A"));
  EXPECT_TRUE(has(error_of([&] { LoraBank(base.model, base.ops, {.rank = 257}); }), "257"));
  EXPECT_EQ(bank.bytes(0), 0U);
}

}  // namespace
}  // namespace strata::test
