// GGUF and Hugging Face checkpoints of the same weights give the same logits; FP8 checkpoints load; quantised ones are near.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>

#include "comparison.h"
#include "loader/gguf_export.h"
#include "loader/safetensors.h"
#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"
#include "model_fixture.h"

namespace strata::test {
namespace {

namespace fs = std::filesystem;

// Logits of every row of the golden model's 65-token prompt, by what lies at `path`.
Rows logits_of(const fs::path& path, const fs::path& golden, const LoadOptions& options = {}) {
  const Ints prompt = Reference(golden / "reference.safetensors").ints("ids.t65");
  LoadedModel loaded(path, {.threads = 2}, options);
  const int pages = static_cast<int>(prompt.size()) / kPageTokens + 1;
  const Pools pools(loaded.model, pages, 1, 0);
  const Piece piece{.tokens = prompt, .pages = iota(0, pages)};
  return loaded.run(pools, std::span(&piece, 1)).logits;
}

// The golden model under another name, so that both sides compute their rotary tables alike.
fs::path link_to(const TempFolder& folder, const fs::path& golden) {
  fs::create_directory_symlink(golden, folder / "hf");
  return folder / "hf";
}

double largest(const Rows& rows) {
  double most = 0;
  for (const auto& row : rows) {
    for (const float x : row) most = std::max(most, std::abs(static_cast<double>(x)));
  }
  return most;
}

class GgufModels : public testing::TestWithParam<const char*> {};

TEST_P(GgufModels, GiveTheLogitsOfTheSafetensors) {
  const TempFolder folder;
  const fs::path golden = golden_folder() / GetParam();
  const fs::path hf = link_to(folder, golden);
  const Rows want = logits_of(hf, golden);
  ASSERT_GT(largest(want), 0.1);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    export_gguf(hf, folder / "m.gguf", {.type = type});
    EXPECT_LT(relative_error(logits_of(folder / "m.gguf", golden), want), 3e-6) << name(type);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufModels,
                         testing::Values("llama", "llama3_rope", "qwen2", "qwen3", "qwen3_real", "qwen3_moe", "qwen3_next", "qwen3_5",
                                         "qwen3_5_moe", "qwen3_5_moe_real", "smollm3", "gemma3", "gemma4", "gemma4_moe", "gpt_oss",
                                         "minimax_m2", "deepseek_v3", "mistral4", "nemotron_h", "granitemoehybrid"),
                         [](const auto& test) { return test.param; });

TEST(Quantised, FilesAndLoadTimeQuantisationAgree) {
  const TempFolder folder;
  const fs::path golden = golden_folder() / "qwen3_5_moe_real";
  const fs::path hf = link_to(folder, golden);
  const Rows want = logits_of(hf, golden);
  // (random weights spread their errors, those of the inputs as 8-bit numbers too, more than trained ones)
  for (const auto& [type, error] : {std::pair{DType::kQ8_0, 0.2}, {DType::kQ4_1, 0.7}, {DType::kQ6_K, 0.25}, {DType::kQ4_K, 0.7}}) {
    export_gguf(hf, folder / "m.gguf", {.type = type, .embedding = type});
    const Rows file = logits_of(folder / "m.gguf", golden), loaded = logits_of(hf, golden, {.weights = type});
    EXPECT_LT(relative_error(file, want), error) << name(type);
    EXPECT_LT(relative_error(loaded, want), error) << name(type);
  }
}

// The golden model without what its first block's mixer gives: the planted fault.
fs::path without_first_mixer(const fs::path& golden, const fs::path& to) {
  const auto file = Safetensors::open_file(golden / "model.safetensors");
  std::vector<NamedTensor> tensors;
  std::deque<std::vector<std::byte>> zeros;  // of layer 0 and of an MTP head's
  for (const SourceTensor& t : file->tensors()) {
    Shape shape;
    for (const std::int64_t n : t.extents) shape.append(n);
    auto* data = const_cast<std::byte*>(t.bytes.data());
    const bool mixer = t.name.ends_with("out_proj.weight") || t.name.ends_with("self_attn.o_proj.weight");
    if (mixer && t.name.find("layers.0.") != std::string::npos) {
      data = zeros.emplace_back(t.bytes.size()).data();
    }
    tensors.push_back({t.name, Tensor(data, t.dtype, shape)});
  }
  EXPECT_FALSE(zeros.empty()) << "no mixer to leave out";
  fs::create_directories(to);
  write_safetensors(to / "model.safetensors", tensors);
  fs::copy_file(golden / "config.json", to / "config.json");
  return to;
}

// Bits taken off at load (--weights) move the logits of every family a little: far less than a matrix that is
// wrong.
class QuantisedFamilies : public testing::TestWithParam<std::string> {};

TEST_P(QuantisedFamilies, StayNear) {
  const TempFolder folder;
  const fs::path golden = golden_folder() / GetParam();
  const fs::path hf = link_to(folder, golden);
  const Rows want = logits_of(hf, golden);
  const double q8 = relative_error(logits_of(hf, golden, {.weights = DType::kQ8_0}), want);
  const double q4 = relative_error(logits_of(hf, golden, {.weights = DType::kQ4_K}), want);
  const double fault = relative_error(logits_of(without_first_mixer(golden, folder / "fault"), golden), want);
  std::printf("%s: q8_0 %.4f, q4_k %.4f, without a matrix %.4f\n", GetParam().c_str(), q8, q4, fault);
  EXPECT_GT(q8, 1e-5) << "it is quantised";
  EXPECT_LT(q8, 0.25 * fault);
  EXPECT_LT(q4, fault);
  EXPECT_LT(q8, q4);
}

INSTANTIATE_TEST_SUITE_P(Golden, QuantisedFamilies, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

// The golden model with its large matrices in FP8 and a scale for each block of 128 x 128, as published FP8 checkpoints are.
void write_fp8(const fs::path& golden, const fs::path& to) {
  Checkpoint c = Checkpoint::open(golden);
  std::deque<Buffer> kept;
  std::vector<NamedTensor> tensors;
  std::size_t matrices = 0;
  for (const TensorSummary& t : c.list()) {
    const Shape shape = *c.shape_of(t.name);
    const Tensor data = c.take(t.name, shape);
    const bool large = shape.rank() >= 2 && shape[-1] >= 128 && shape[-2] >= 32 && t.name.find("embed") == std::string::npos &&
                       t.name.find("lm_head") == std::string::npos && t.name.find("mlp.gate.") == std::string::npos;
    if (!large) {
      tensors.push_back({t.name, data});
      continue;
    }
    ++matrices;
    const std::int64_t stack = shape.rank() == 3 ? shape[0] : 1, rows = shape[-2], columns = shape[-1];
    const std::int64_t row_blocks = (rows + 127) / 128, blocks = (columns + 127) / 128;
    const Buffer& bytes = kept.emplace_back(Buffer::host(static_cast<std::size_t>(shape.elements())));
    const Buffer& numbers = kept.emplace_back(Buffer::host(static_cast<std::size_t>(stack * row_blocks * blocks) * 4));
    const Tensor out = bytes.view(DType::kF8E4M3, shape);
    const Tensor scales = numbers.view(DType::kF32, stack > 1 ? Shape{stack, row_blocks, blocks} : Shape{row_blocks, blocks});
    for (std::int64_t e = 0; e < stack; ++e) {
      for (std::int64_t b = 0; b < row_blocks * blocks; ++b) {
        const auto each = [&](auto visit) {
          for (std::int64_t r = b / blocks * 128; r < std::min(rows, b / blocks * 128 + 128); ++r) {
            for (std::int64_t k = b % blocks * 128; k < std::min(columns, b % blocks * 128 + 128); ++k) visit((e * rows + r) * columns + k);
          }
        };
        float peak = 0;
        each([&](std::int64_t i) { peak = std::max(peak, std::abs(to_float(data.data<BFloat16>()[i]))); });
        const float scale = scales.data<float>()[e * row_blocks * blocks + b] = peak > 0 ? peak / 448 : 1;
        each([&](std::int64_t i) { out.data<std::uint8_t>()[i] = float_to_f8e4m3(to_float(data.data<BFloat16>()[i]) / scale); });
      }
    }
    tensors.push_back({t.name, out});
    tensors.push_back({t.name + "_scale_inv", scales});
  }
  ASSERT_GT(matrices, 4U);
  fs::create_directories(to);
  write_safetensors(to / "model.safetensors", tensors);
  fs::copy_file(golden / "config.json", to / "config.json");
}

class Fp8 : public testing::TestWithParam<const char*> {};

TEST_P(Fp8, CheckpointsLoadAndAnswerNearly) {
  const TempFolder folder;
  const fs::path golden = golden_folder() / GetParam();
  const fs::path hf = link_to(folder, golden);
  write_fp8(golden, folder / "fp8");
  const Rows want = logits_of(hf, golden), got = logits_of(folder / "fp8", golden);
  EXPECT_LT(relative_error(got, want), 0.2);
  EXPECT_GT(relative_error(got, want), 1e-4) << "it is FP8 that was loaded";
  // The same values written out as bf16 lose no more than that rounding.
  export_gguf(folder / "fp8", folder / "m.gguf", {.type = DType::kF32});
  EXPECT_LT(relative_error(logits_of(folder / "m.gguf", golden), got), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, Fp8, testing::Values("qwen3_5_moe_real", "qwen3_real"), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace strata::test
