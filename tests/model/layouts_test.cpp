// The layouts experts are published in: one by one, stacked, fused, transposed and MXFP4 load to the same
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "comparison.h"
#include "loader/gguf_export.h"
#include "loader/temp_folder.h"
#include "model_copy.h"
#include "tensor/quant.h"

namespace strata::test {
namespace {

void append(const Tensor& from, std::byte*& to) {
  std::memcpy(to, from.raw(), from.bytes());
  to += from.bytes();
}

// Qwen3-MoE's experts are published one by one: [F, D], [F, D] and [D, F] for each of 8.
Rows qwen3_moe_with(const TempFolder& folder, const std::string& layout) {
  Copy model("qwen3_moe");
  const bool fused = layout == "fused";
  for (int layer = 0; layer < 3 && layout != "published"; ++layer) {
    const std::string experts = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    const auto one = [&](int e, const std::string& part) {
      return model.take(experts + std::to_string(e) + "." + part + "_proj.weight");
    };
    std::byte* gate = fused ? model.make(experts + "gate_up_proj", DType::kBF16, {8, 64, 64}).raw()
                            : model.make(experts + "gate_proj", DType::kBF16, {8, 32, 64}).raw();
    std::byte* up = fused ? nullptr : model.make(experts + "up_proj", DType::kBF16, {8, 32, 64}).raw();
    std::byte* down = model.make(experts + "down_proj", DType::kBF16, {8, 64, 32}).raw();
    for (int e = 0; e < 8; ++e) {
      append(one(e, "gate"), gate);
      append(one(e, "up"), fused ? gate : up);
      append(one(e, "down"), down);
    }
  }
  return model.logits(folder, layout);
}

TEST(ExpertLayouts, GiveTheSameBits) {
  const TempFolder folder;
  const Rows published = qwen3_moe_with(folder, "published");
  EXPECT_EQ(qwen3_moe_with(folder, "stacked"), published);
  EXPECT_EQ(qwen3_moe_with(folder, "fused"), published);
}

// gpt-oss: expert matrices [E, K, N] become MXFP4 blocks [E, N, K / 32, 16] with exponents beside them, or,
// for comparison, what those blocks mean in bf16. `swap`: the planted fault, the two halves of a block's
// bytes changed over.
Rows gpt_oss_with(const TempFolder& folder, const std::string& name, bool blocks, bool swap = false) {
  Copy model("gpt_oss");
  for (int layer = 0; layer < 4; ++layer) {
    for (const std::string part : {"gate_up_proj", "down_proj"}) {
      const std::string full = "model.layers." + std::to_string(layer) + ".mlp.experts." + part;
      const Tensor plain = model.take(full);
      const std::int64_t E = plain[0], K = plain[1], N = plain[2], groups = K / 32;
      const Tensor to = blocks ? model.make(full + "_blocks", DType::kU8, {E, N, groups, 16})
                               : model.make(full, DType::kBF16, {E, K, N});
      const Tensor exponents = blocks ? model.make(full + "_scales", DType::kU8, {E, N, groups}) : Tensor{};
      std::vector<float> row(static_cast<std::size_t>(K));
      std::vector<std::byte> packed(bytes_of(DType::kMXFP4, K));
      for (std::int64_t e = 0; e < E; ++e) {
        for (std::int64_t n = 0; n < N; ++n) {
          for (std::int64_t k = 0; k < K; ++k)
            row[static_cast<std::size_t>(k)] = to_float(plain.row<BFloat16>(e)[k * N + n]);
          quantize_row(DType::kMXFP4, row.data(), K, packed.data());
          dequantize_row(DType::kMXFP4, packed.data(), K, row.data());
          for (std::int64_t k = 0; k < K && !blocks; ++k)
            to.row<BFloat16>(e)[k * N + n] = to_bfloat16(row[static_cast<std::size_t>(k)]);
          for (std::int64_t g = 0; g < groups && blocks; ++g) {
            const auto* block = reinterpret_cast<const std::uint8_t*>(packed.data()) + 17 * g;
            exponents.row<std::uint8_t>(e)[n * groups + g] = block[0];
            const auto element = [&](int i) { return i < 16 ? block[1 + i] & 15 : block[1 + i - 16] >> 4; };
            for (int i = 0; i < 16; ++i) {
              to.row<std::uint8_t>(e)[(n * groups + g) * 16 + i] = static_cast<std::uint8_t>(
                  element(2 * i + (swap ? 1 : 0)) | element(2 * i + (swap ? 0 : 1)) << 4);
            }
          }
        }
      }
    }
  }
  return model.logits(folder, name);
}

TEST(ExpertLayouts, Mxfp4BlocksMeanWhatTheirValuesSay) {
  const TempFolder folder;
  const Rows plain = gpt_oss_with(folder, "plain", false);
  EXPECT_LT(relative_error(gpt_oss_with(folder, "blocks", true), plain),
            0.02);  // products quantise the activations to 8 bits
  EXPECT_GT(relative_error(gpt_oss_with(folder, "swapped", true, true), plain), 0.1);
}

// In GGUF the blocks are the same: not one is quantised again, whatever finer type the rest takes.
TEST(ExpertLayouts, Mxfp4BlocksKeepTheirBitsInGguf) {
  const TempFolder folder;
  const Rows published = gpt_oss_with(folder, "blocks", true);
  export_gguf(folder / "blocks", folder / "m.gguf", {.type = DType::kF32});
  const Checkpoint file = Checkpoint::open(folder / "m.gguf");
  for (const char* part : {"gate", "up", "down"}) {
    EXPECT_EQ(file.dtype_of("layers.0.mlp.experts." + std::string(part) + "_proj.weight"), DType::kMXFP4);
  }
  LoadedModel loaded(folder / "m.gguf", {.threads = 1});
  const Pools pools(loaded.model, 2, 1, 0);
  const Piece piece{.tokens = Reference(golden_folder() / "gpt_oss" / "reference.safetensors").ints("ids.t65"),
                    .pages = iota(0, 2)};
  EXPECT_LT(relative_error(loaded.run(pools, std::span(&piece, 1)).logits, published), 3e-6);
}

TEST(ExpertLayouts, AMissingExpertIsNamed) {
  const TempFolder folder;
  Copy model("qwen3_moe");
  model.take("model.layers.1.mlp.experts.6.up_proj.weight");
  try {
    model.logits(folder, "missing");
    FAIL() << "accepted";
  } catch (const std::exception& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("layers.1.mlp.experts.6.up_proj.weight"),
                                         testing::HasSubstr("missing")));
  }
}

}  // namespace
}  // namespace strata::test
