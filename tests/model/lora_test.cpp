// Adapters in whole models: recorded outputs of PEFT, the same bits however rows are cut and mixed, a base
// that is not touched, and for every family the same outputs as with the adapter merged into the weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "comparison.h"
#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"
#include "model/lora_bank.h"
#include "player.h"
#include "tensor/convert.h"

namespace strata::test {
namespace {

// Unpacked by tests/model/CMakeLists.txt from tests/golden/lora.tar.xz; the largest base's are made by
// tools/make_lora_fixtures.py into the same folder.
std::filesystem::path lora_folder() { return STRATA_LORA_GOLDENS; }

struct Case {
  std::string base, kind;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.base << " " << c.kind; }
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* base :
       {"llama", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_real", "qwen3_moe", "qwen3_next"}) {
    for (const char* kind : {"attn", "ffn", "all"}) out.push_back({base, kind});
  }
  return out;
}

// Their outputs were made with the rotary tables as they are, unlike those of the bases.
std::unique_ptr<CpuOps> plain_ops() { return std::make_unique<CpuOps>(CpuOptions{.threads = 2}); }

// A base with two adapters: slot 0 the case's, slot 1 another of the same base.
class LoraGolden : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(folder()))
      GTEST_SKIP() << folder() << " is not there: tools/make_lora_fixtures.py makes it";
    base_.emplace(golden_folder() / GetParam().base, plain_ops());
    bank_.emplace(base_->model, base_->ops, LoraLimits{.adapters = 3, .rank = 16});
    bank_->put(0, load_lora_adapter(folder()));
    bank_->put(1, load_lora_adapter(folder().parent_path() / (GetParam().kind == "all" ? "attn" : "all")));
  }
  std::filesystem::path folder() const { return lora_folder() / GetParam().base / GetParam().kind; }

  // All rows at once, without neighbours.
  Rows alone(Player& player, const Ints& tokens, int adapter) {
    Track track = player.open(tokens);
    track.adapter = adapter;
    player.chunk(track, track.left());
    player.step();
    player.close(track);
    return track.logits;
  }

  std::optional<LoadedModel> base_;
  std::optional<LoraBank> bank_;
};

TEST_P(LoraGolden, MatchesPeft) {
  base_->lora = &bank_->tables();
  const Reference ids(golden_folder() / GetParam().base / "reference.safetensors"),
      ref(folder() / "reference.safetensors");
  double most = 0;
  for (const std::string name : {"t3", "t65"}) {
    const Ints tokens = ids.ints("ids." + name);
    const Pools pools(base_->model, pages_for(tokens.size()), 1, 0);
    const Piece piece{.tokens = tokens, .pages = iota(0, pages_for(tokens.size())), .adapter = 0};
    const Rows want = ref.rows("logits." + name);
    most = std::max(most, worst(base_->run(pools, std::span(&piece, 1)).logits, want, deviation(want)));
  }
  EXPECT_LT(most, kTolerance);
  check_greedy(*base_, ids.ints("ids.t3"), ref.ints("greedy.t3"), ref.floats("greedy_gap.t3"), 0);
  std::printf("  %-16s %-4s largest error in standard deviations: logits %.1e\n", GetParam().base.c_str(),
              GetParam().kind.c_str(), most);
}

TEST_P(LoraGolden, SameBitsHoweverCutAndMixed) {
  constexpr int kTokens = 100;
  const Ints tokens = random_tokens(kTokens, base_->model.vocab_size, 1),
             second = random_tokens(70, base_->model.vocab_size, 2);
  Player player(*base_, 40, 80, 8);
  const Rows base = alone(player, tokens, -1);  // before there is a bank
  base_->lora = &bank_->tables();
  const Rows want = alone(player, tokens, 0), other = alone(player, second, 1);
  Track without{.tokens = tokens, .logits = base};
  EXPECT_EQ(different(without, want), kTokens) << "the adapter changes nothing";
  EXPECT_EQ(different(without, alone(player, tokens, -1)), 0) << "a bank changes the base";
  EXPECT_EQ(different(without, alone(player, tokens, 2)), 0) << "an empty slot changes the base";

  for (const int rows : {1, 17, 64}) {
    Track track = player.open(tokens);
    track.adapter = 0;
    while (!track.done()) {
      player.chunk(track, rows);
      player.step();
    }
    EXPECT_EQ(different(track, want), 0) << "chunks of " << rows;
    player.close(track);
  }
  // Together: this adapter in chunks, verifying and decoding; the base; another adapter; padding.
  for (const Drafts how : {Drafts::kEager, Drafts::kLazy}) {
    Track track = player.open(tokens), plain = player.open(tokens), stranger = player.open(second);
    track.adapter = 0;
    stranger.adapter = 1;
    for (int step = 0; !track.done() || !plain.done() || !stranger.done(); ++step) {
      const auto advance = [&](Track& t, int turn) {
        if (t.done()) return;
        if (t.computed == 0 || turn % 3 == 0) {
          player.chunk(t, 1 + turn * 7 % 15);
        } else {
          player.verify(t, turn % 6, turn % 4, how);
        }
      };
      advance(plain, step);
      advance(track, step + 1);
      if (step % 2 == 0) player.padding(2);
      advance(stranger, step + 2);
      player.step();
    }
    EXPECT_EQ(different(track, want), 0) << "beside others";
    EXPECT_EQ(different(plain, base), 0) << "the base beside adapters";
    EXPECT_EQ(different(stranger, other), 0) << "the other adapter";
    for (Track* t : {&track, &plain, &stranger}) player.close(*t);
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, LoraGolden, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.base + "_" + test.param.kind; });

// Whether published FP8 checkpoints keep a tensor in f8.
bool kept_in_f8(std::string_view name, const Shape& shape) {
  constexpr std::string_view kEndings[] = {"_proj", "_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight"};
  return shape.rank() >= 2 && !name.starts_with("mtp.") &&
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view e) { return name.ends_with(e); });
}

// The model with its projections as FP8 checkpoints keep them: e4m3 with a scale for 128 x 128.
void write_fp8(const std::filesystem::path& from, const std::filesystem::path& to) {
  const auto index = from / "model.safetensors.index.json";
  const auto file = std::filesystem::exists(index) ? Safetensors::open_index(index)
                                                   : Safetensors::open_file(from / "model.safetensors");
  std::vector<NamedTensor> out;
  std::deque<Buffer> kept;
  for (const SourceTensor& t : file->tensors()) {
    Shape shape;
    for (const std::int64_t n : t.extents) shape.append(n);
    if (!kept_in_f8(t.name, shape)) {
      out.push_back({t.name, Tensor(const_cast<std::byte*>(t.bytes.data()), t.dtype, shape)});
      continue;
    }
    const std::int64_t E = shape.rank() == 3 ? shape[0] : 1, N = shape[-2], K = shape[-1],
                       rows = (N + 127) / 128, columns = (K + 127) / 128;
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    row_to_f32(t.dtype, t.bytes.data(), shape.elements(), values.data());
    const Tensor narrow = kept.emplace_back(Buffer::host(values.size())).view(DType::kF8E4M3, shape);
    const Shape scales_shape = shape.rank() == 3 ? Shape{E, rows, columns} : Shape{rows, columns};
    const Tensor scales =
        kept.emplace_back(Buffer::host(static_cast<std::size_t>(scales_shape.elements()) * sizeof(float)))
            .view(DType::kF32, scales_shape);
    const auto scale_of = [&](std::size_t i) -> float& {
      const auto at = static_cast<std::int64_t>(i), e = at / (N * K), n = at / K % N, k = at % K;
      return scales.data<float>()[(e * rows + n / 128) * columns + k / 128];
    };
    for (std::size_t i = 0; i < values.size(); ++i)
      scale_of(i) = std::max(scale_of(i), std::abs(values[i]) / 448);
    for (std::size_t i = 0; i < values.size(); ++i)
      narrow.data<std::uint8_t>()[i] = float_to_f8e4m3(values[i] / scale_of(i));
    out.push_back({t.name, narrow});
    out.push_back({t.name + "_scale_inv", scales});
  }
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(from / "config.json", to / "config.json");
  write_safetensors(to / "model.safetensors", out);
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

std::vector<float> flat(const Rows& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

// The trained model with its trained adapters, and one golden model: in others, of random weights, the rounding of the base alone takes
// most of the room (llama's logits in FP8 have a cosine of 0.993 to those in bf16 before there is an adapter).
struct QuantisedCase {
  std::string name;
  std::filesystem::path base, adapter;
  const char* ids;
  double most_like_base;  // the adapter changes the logits at least that much
  friend void PrintTo(const QuantisedCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<QuantisedCase> quantised_cases() {
  const std::filesystem::path trained = STRATA_SOURCE_DIR "/models/tiny-hybrid";
  return {{"qwen3", golden_folder() / "qwen3", lora_folder() / "qwen3/all", "ids.t65", 0.9},
          {"polite", trained, trained / "lora/polite", "ids.p65", 0.9},
          {"bracket", trained, trained / "lora/bracket", "ids.p65", 0.96}};
}

class LoraQuantised : public testing::TestWithParam<QuantisedCase> {};

TEST_P(LoraQuantised, AnswersAsTheBf16Base) {
  const QuantisedCase& c = GetParam();
  const TempFolder folder;
  write_fp8(c.base, folder / "fp8");
  std::filesystem::create_directory_symlink(c.base, folder / "bf16");
  const LoraAdapter adapter = load_lora_adapter(c.adapter);
  const auto logits = [&](const char* name, const LoadOptions& options, int slot) {
    LoadedModel loaded(folder / name, CpuOptions{.threads = 2}, options);
    LoraBank bank(loaded.model, loaded.ops, {.rank = 16});
    bank.put(0, adapter);
    loaded.lora = &bank.tables();
    const Piece piece{.tokens = Reference(c.base / "reference.safetensors").ints(c.ids),
                      .pages = iota(0, 2),
                      .adapter = slot};
    const Pools pools(loaded.model, 2, 1, 0);
    return loaded.run(pools, std::span(&piece, 1)).logits;
  };
  const Rows want = logits("bf16", {}, 0), base = logits("bf16", {}, -1);
  const std::pair<const char*, LoadOptions> others[] = {{"fp8", {}}, {"bf16", {.weights = DType::kQ8_0}}};
  for (const auto& [name, options] : others) {
    const Rows got = logits(name, options, 0);
    const double near = cosine(flat(got), flat(want)), far = cosine(flat(got), flat(base)),
                 rounding = cosine(flat(logits(name, options, -1)), flat(base));
    std::printf(
        "  %s %s with an adapter: cosine of the logits to bf16 %.5f, to the base %.2f, of the bases %.5f\n",
        c.name.c_str(), options.weights ? "q8_0" : name, near, far, rounding);
    EXPECT_GT(near, 0.99) << name;
    EXPECT_LT(far, c.most_like_base) << name << ": the adapter does little";
  }
}

INSTANTIATE_TEST_SUITE_P(Bases, LoraQuantised, testing::ValuesIn(quantised_cases()),
                         [](const auto& test) { return test.param.name; });

// Planted faults: what the golden comparison must see.
class LoraFaults : public testing::Test {
 protected:
  double off(const LoraAdapter& adapter) {
    LoraBank bank(base_.model, base_.ops, {.rank = 16});
    bank.put(0, adapter);
    base_.lora = &bank.tables();
    const Reference ids(golden_folder() / "qwen3_next/reference.safetensors"),
        ref(lora_folder() / "qwen3_next/all/reference.safetensors");
    const Piece piece{.tokens = ids.ints("ids.t65"), .pages = iota(0, 2), .adapter = 0};
    const Pools pools(base_.model, 2, 1, 0);
    const Rows want = ref.rows("logits.t65");
    return worst(base_.run(pools, std::span(&piece, 1)).logits, want, deviation(want));
  }
  LoadedModel base_{golden_folder() / "qwen3_next", plain_ops()};
  LoraAdapter adapter_ = load_lora_adapter(lora_folder() / "qwen3_next/all");
};

TEST_F(LoraFaults, NoneIsClose) { EXPECT_LT(off(adapter_), kTolerance); }

TEST_F(LoraFaults, EveryTargetCounts) {
  for (std::size_t i = 0; i < adapter_.targets.size(); ++i) {
    LoraAdapter without = adapter_;
    without.targets.erase(without.targets.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_GT(off(without), kTolerance) << adapter_.targets[i].name;
  }
}

TEST_F(LoraFaults, WrongOrderOfPackedRows) {
  for (LoraTarget& t : adapter_.targets) {
    if (t.name != "layers.0.linear_attn.in_proj_qkvz") continue;
    std::rotate(t.b.begin(), t.b.begin() + t.rank, t.b.end());  // each row gets the next one's
    EXPECT_GT(off(adapter_), kTolerance);
    return;
  }
  FAIL() << "no packed projection";
}

TEST_F(LoraFaults, WrongExpert) {
  for (LoraTarget& t : adapter_.targets) {
    if (t.name != "layers.1.mlp.experts.gate_up_proj") continue;
    ASSERT_GT(t.experts, 1);
    std::rotate(t.a.begin(), t.a.begin() + t.rank * t.inputs, t.a.end());
    EXPECT_GT(off(adapter_), kTolerance);
    return;
  }
  FAIL() << "no experts";
}

}  // namespace
}  // namespace strata::test
