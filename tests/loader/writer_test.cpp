// SafetensorsWriter: what is written reads back; nothing half-written is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "loader/checkpoint.h"
#include "loader/safetensors_writer.h"
#include "loader/temp_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

TEST(SafetensorsWriter, ReadsBackEveryPlainTypeAndStridedRows) {
  const TempFolder folder;
  const Buffer data = Buffer::host(4096);
  for (std::size_t i = 0; i < 4096; ++i) data.data()[i] = static_cast<std::byte>(i * 7 + 1);
  std::vector<NamedTensor> tensors;
  for (const DType d : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kF8E4M3, DType::kI8,
                        DType::kU8, DType::kI16, DType::kI32, DType::kI64, DType::kBool}) {
    tensors.push_back({fmt::format("t.{}", name(d)), data.view(d, {3, 5})});
  }
  tensors.push_back({"columns \"\u00e9\"", data.view(DType::kF32, {4, 6}).columns(1, 3)});
  tensors.push_back({"scalar", data.view(DType::kI64, {})});
  tensors.push_back({"none", data.view(DType::kF32, {0, 3})});
  write_safetensors(folder / "w.safetensors", tensors, {{"format", "pt"}});
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);

  Checkpoint c = Checkpoint::open(folder / "w.safetensors");
  for (const NamedTensor& t : tensors) {
    const Tensor back = c.take(t.name, t.tensor.shape());
    ASSERT_EQ(back.dtype(), t.tensor.dtype());
    if (t.tensor.shape().rank() < 2) continue;
    for (std::int64_t r = 0; r < back.rows(); ++r) {
      const auto row = bytes_of(back.dtype(), back.row_size());
      EXPECT_EQ(std::memcmp(back.rows_from(r, 1).raw(), t.tensor.rows_from(r, 1).raw(), row), 0) << t.name;
    }
  }
  c.finish();
}

TEST(SafetensorsWriter, AnUnfinishedFileIsRemoved) {
  const TempFolder folder;
  const Buffer data = Buffer::host(64);
  {
    SafetensorsWriter writer(folder / "w.safetensors");
    writer.declare("a", DType::kF32, {4});
    writer.declare("b", DType::kF32, {4});
    writer.write(data.view(DType::kF32, {4}));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesTwiceTheSameNameAndBadPlaces) {
  const TempFolder folder;
  const Buffer data = Buffer::host(64);
  const Tensor t = data.view(DType::kF32, {4});
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder / "w.safetensors", {{"a", t}, {"a", t}});
              }),
              testing::HasSubstr("tensor a is declared twice"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder / "no" / "w.safetensors", {{"a", t}});
              }),
              testing::HasSubstr("cannot be written"));
}

TEST(SafetensorsWriterDeathTest, AnotherShapeThanDeclaredIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const TempFolder folder;
  const Buffer data = Buffer::host(64);
  EXPECT_DEATH(
      {
        SafetensorsWriter writer(folder / "w.safetensors");
        writer.declare("a", DType::kF32, {4});
        writer.write(data.view(DType::kF32, {3}));
      },
      "a: declared f32 \\[4\\], written f32 \\[3\\]");
}

}  // namespace
}  // namespace strata
