// Every fault a safetensors file can have is an Error naming the file and the tensor.
#include "loader/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/temp_folder.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<SourceTensor> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "m.safetensors");
}

std::string fault_of(const std::string& file) {
  return error_of([&] { parse(file); });
}

// The description of one tensor.
std::string described(const std::string& name, const std::string& dtype, const std::string& shape, int begin,
                      int end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin,
                     end);
}

std::string file_of(const std::string& tensors, std::size_t data) {
  return safetensors_bytes(fmt::format("{{{}}}", tensors), std::string(data, 'x'));
}

TEST(Safetensors, GivesTensorsInTheOrderOfTheirData) {
  const std::string header =
      fmt::format(R"({{{},{},"__metadata__":{{"format":"pt"}}}}  )", described("late", "BF16", "[3]", 8, 14),
                  described("early", "F32", "[2,1]", 0, 8));
  const std::string file = safetensors_bytes(header, "abcdefghABCDEF");
  const auto tensors = parse(file);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "early");
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_THAT(tensors[0].extents, testing::ElementsAre(2, 1));
  EXPECT_EQ(tensors[1].name, "late");
  EXPECT_EQ(static_cast<char>(tensors[1].bytes[5]), 'F');
}

TEST(Safetensors, ScalarsEmptyTensorsAndEmptyFilesOfNoTensorsAreRight) {
  EXPECT_EQ(parse(file_of(described("s", "I64", "[]", 0, 8), 8)).size(), 1U);
  EXPECT_EQ(parse(file_of(described("z", "F8_E4M3", "[0,5]", 0, 0), 0)).size(), 1U);
  EXPECT_EQ(parse(file_of("", 0)).size(), 0U);
  EXPECT_THAT(parse(file_of(described("v", "U8", "[1,1,1,1,2]", 0, 2), 2))[0].extents, testing::SizeIs(5));
}

TEST(SafetensorsFaults, OfTheFrame) {
  EXPECT_EQ(fault_of(""), "m.safetensors: the file is empty");
  EXPECT_THAT(fault_of("1234567"), HasSubstr("m.safetensors: 7 bytes are too short"));
  EXPECT_THAT(fault_of(std::string(8, '\0')), HasSubstr("does not begin with an object"));
  EXPECT_THAT(fault_of(std::string("\x00\xe1\xf5\x05\0\0\0\0{}", 10)),
              HasSubstr("truncated: header of 100000000"));
  EXPECT_THAT(fault_of(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
              HasSubstr("at most 100000000 are allowed"));
  EXPECT_THAT(fault_of(std::string(8, '\xff') + "{}"), HasSubstr("header of 18446744073709551615 bytes"));
  const std::string whole = file_of(described("a", "F32", "[2]", 0, 8), 8);
  EXPECT_EQ(fault_of(whole), "");
  for (std::size_t n = 0; n < whole.size(); ++n) {  // truncated anywhere
    EXPECT_THAT(fault_of(whole.substr(0, n)), StartsWith("m.safetensors: ")) << n;
  }
}

TEST(SafetensorsFaults, OfTheJson) {
  const auto header = [](const std::string& text) { return fault_of(safetensors_bytes(text, "")); };
  EXPECT_THAT(header("[]"), HasSubstr("does not begin with an object"));
  EXPECT_THAT(header("{\"a\":}"), StartsWith("m.safetensors: header: "));
  EXPECT_THAT(header("{} {}"), StartsWith("m.safetensors: header: "));
  EXPECT_THAT(header("{\"a\xff\":1}"), HasSubstr("UTF-8"));
  EXPECT_THAT(header("{\"a\":" + std::string(1'000'000, '[')), StartsWith("m.safetensors: header: "));
}

TEST(SafetensorsFaults, OfADescription) {
  const auto one = [](const std::string& value) {
    return fault_of(file_of(fmt::format("\"w\":{}", value), 8));
  };
  EXPECT_EQ(one("7"), "m.safetensors: tensor w: its description is not an object");
  EXPECT_EQ(one(R"({"shape":[2],"data_offsets":[0,8]})"), "m.safetensors: tensor w: has no dtype");
  EXPECT_EQ(one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"),
            "m.safetensors: tensor w: unknown dtype F31");
  EXPECT_EQ(one(R"({"dtype":"F32","data_offsets":[0,8]})"), "m.safetensors: tensor w: has no shape");
  for (const char* extent : {"-2", "2.0", "\"2\"", "9223372036854775808"}) {
    EXPECT_THAT(one(fmt::format(R"({{"dtype":"F32","shape":[{}],"data_offsets":[0,8]}})", extent)),
                HasSubstr("tensor w: an extent of its shape is not a size"));
  }
  for (const char* range : {"[0]", "[0,4,8]", "[-8,8]", "[0,8.5]", "8"}) {
    EXPECT_THAT(one(fmt::format(R"({{"dtype":"F32","shape":[2],"data_offsets":{}}})", range)),
                HasSubstr("tensor w: data_offsets are not two sizes"));
  }
  EXPECT_THAT(
      fault_of(file_of(described("w", "F32", "[2]", 0, 8) + "," + described("w", "F32", "[0]", 8, 8), 8)),
      HasSubstr("tensor w is described twice"));
}

TEST(SafetensorsFaults, OfSizes) {
  EXPECT_THAT(fault_of(file_of(described("w", "F32", "[3]", 0, 8), 8)),
              HasSubstr("tensor w: shape [3] of F32 needs 12 bytes, its data range [0, 8) has 8"));
  EXPECT_THAT(fault_of(file_of(described("w", "U8", "[4294967296,4294967296]", 0, 8), 8)),
              HasSubstr("tensor w: shape [4294967296, 4294967296] is absurdly large"));
  EXPECT_THAT(fault_of(file_of(described("w", "F64", "[1152921504606846977]", 0, 8), 8)),
              HasSubstr("absurdly large"));
  EXPECT_THAT(fault_of(file_of(described("w", "F32", "[2]", 8, 0), 8)),
              HasSubstr("tensor w: data range [8, 0) is out of order"));
}

TEST(SafetensorsFaults, OfRanges) {
  const std::string a = described("a", "F32", "[2]", 0, 8);
  EXPECT_THAT(fault_of(file_of(a + "," + described("b", "F32", "[2]", 4, 12), 12)),
              HasSubstr("tensor b: data range [4, 12) overlaps that of a"));
  EXPECT_THAT(fault_of(file_of(a + "," + described("b", "F32", "[2]", 0, 8), 8)),
              HasSubstr("tensor b: data range [0, 8) overlaps that of a"));
  EXPECT_THAT(fault_of(file_of(a + "," + described("b", "U8", "[2]", 9, 11), 11)),
              HasSubstr("gap of 1 bytes before tensor b"));
  EXPECT_THAT(fault_of(file_of(described("b", "U8", "[2]", 9, 11), 11)),
              HasSubstr("gap of 9 bytes before tensor b"));
  EXPECT_THAT(fault_of(file_of(a, 9)), HasSubstr("1 bytes after the last tensor belong to none"));
  EXPECT_THAT(fault_of(file_of(a, 7)),
              HasSubstr("truncated: tensor a ends at byte 8 of the data, the file has 7"));
}

TEST(SafetensorsFiles, ThatAreNotThereOrNotFiles) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { Safetensors::open_file(folder / "no.safetensors"); }),
              AllOf(HasSubstr("no.safetensors"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { Safetensors::open_file(folder.path()); }), HasSubstr("not a regular file"));
  const auto empty = folder.write("empty.safetensors", "");
  EXPECT_EQ(error_of([&] { Safetensors::open_file(empty); }), empty.string() + ": the file is empty");
}

class Index : public testing::Test {
 protected:
  Index() {
    folder_.write("one.safetensors", file_of(described("a", "F32", "[2]", 0, 8), 8));
    folder_.write("two.safetensors",
                  file_of(described("b", "U8", "[2]", 0, 2) + "," + described("c", "U8", "[1]", 2, 3), 3));
  }
  std::string fault(const std::string& map) {
    const auto index = folder_.write("m.safetensors.index.json", fmt::format("{{\"weight_map\":{}}}", map));
    return error_of([&] { count_ = Safetensors::open_index(index)->tensors().size(); });
  }
  TempFolder folder_;
  std::size_t count_ = 0;
};

TEST_F(Index, JoinsItsShards) {
  EXPECT_EQ(fault(R"({"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})"), "");
  EXPECT_EQ(count_, 3U);
}

TEST_F(Index, AndShardsMustAgree) {
  EXPECT_THAT(fault(R"({"a":"one.safetensors","b":"2.safetensors","c":"2.safetensors"})"),
              AllOf(HasSubstr("2.safetensors: shard missing"), HasSubstr("for 2 tensors, for example b")));
  EXPECT_THAT(fault(R"({"a":"one.safetensors","b":"two.safetensors"})"),
              HasSubstr("two.safetensors: tensor c is not listed for this shard"));
  EXPECT_THAT(
      fault(R"({"a":"one.safetensors","d":"one.safetensors","b":"two.safetensors","c":"two.safetensors"})"),
      AllOf(HasSubstr("one.safetensors: 1 tensors"), HasSubstr("missing, first d")));
  EXPECT_THAT(fault(R"({"a":"../one.safetensors"})"),
              HasSubstr("tensor a: shard \"../one.safetensors\" is not a plain"));
  EXPECT_THAT(fault(R"({"a":""})"), HasSubstr("is not a plain file name"));
  EXPECT_THAT(fault(R"({"a":3})"), HasSubstr("weight_map.a: expected a string"));
  EXPECT_THAT(fault("null"), HasSubstr("m.safetensors.index.json: weight_map: missing"));
  EXPECT_THAT(fault("{"), HasSubstr("not valid JSON"));
}

TEST_F(Index, ATensorInTwoShardsIsAFault) {
  folder_.write("one.safetensors", file_of(described("b", "F32", "[2]", 0, 8), 8));
  EXPECT_THAT(fault(R"({"b":"one.safetensors","c":"two.safetensors"})"),
              HasSubstr("two.safetensors: tensor b is not listed for this shard"));
}

}  // namespace
}  // namespace strata
