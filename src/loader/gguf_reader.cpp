#include "loader/gguf_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"

namespace strata {
namespace {

// Element types by their number in the file.
constexpr std::array<std::pair<std::uint32_t, DType>, 21> kTypes = {{
    {0, DType::kF32},   {1, DType::kF16},   {2, DType::kQ4_0},  {3, DType::kQ4_1},   {6, DType::kQ5_0},   {7, DType::kQ5_1},
    {8, DType::kQ8_0},  {10, DType::kQ2_K}, {11, DType::kQ3_K}, {12, DType::kQ4_K},  {13, DType::kQ5_K},  {14, DType::kQ6_K},
    {20, DType::kIQ4_NL}, {23, DType::kIQ4_XS}, {24, DType::kI8}, {25, DType::kI16}, {26, DType::kI32}, {27, DType::kI64},
    {28, DType::kF64},  {30, DType::kBF16}, {39, DType::kMXFP4},
}};

enum ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

std::size_t bytes_of_value(std::uint32_t type) {
  static constexpr std::array<std::size_t, 13> kBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};  // a text: at least its length
  return type < kBytes.size() ? kBytes[type] : 0;
}

// Reads forward through the file, never past its end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& origin) : file_(file), origin_(origin) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return file_.size() - at_; }

  template <typename T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view read_text(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  std::span<const std::byte> take(std::uint64_t bytes, std::string_view what) {
    if (bytes > left()) throw Error("{}: truncated in {}: {} bytes wanted at {}, {} are there", origin_, what, bytes, at_, left());
    at_ += bytes;
    return file_.subspan(at_ - bytes, bytes);
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

// An integer, or a double where it does not fit.
GgufValue of_unsigned(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return static_cast<double>(value);
  return static_cast<std::int64_t>(value);
}

GgufValue read_scalar(Cursor& in, std::uint32_t type, std::string_view key) {
  switch (type) {
    case kU8: return std::int64_t{in.read<std::uint8_t>(key)};
    case kI8: return std::int64_t{in.read<std::int8_t>(key)};
    case kU16: return std::int64_t{in.read<std::uint16_t>(key)};
    case kI16: return std::int64_t{in.read<std::int16_t>(key)};
    case kU32: return std::int64_t{in.read<std::uint32_t>(key)};
    case kI32: return std::int64_t{in.read<std::int32_t>(key)};
    case kU64: return of_unsigned(in.read<std::uint64_t>(key));
    case kI64: return in.read<std::int64_t>(key);
    case kF32: return double{in.read<float>(key)};
    case kF64: return in.read<double>(key);
    case kBool: return in.read<std::uint8_t>(key) != 0;
    default: return in.read_text(key);
  }
}

GgufValue read_array(Cursor& in, std::string_view key, const std::string& origin) {
  const auto type = in.read<std::uint32_t>(key);
  const auto count = in.read<std::uint64_t>(key);
  const std::size_t each = bytes_of_value(type);
  if (each == 0) throw Error("{}: key {}: a list of values of type {} is not supported", origin, key, type);
  if (count > in.left() / each) throw Error("{}: key {}: a list of {} values in the {} bytes left", origin, key, count, in.left());
  GgufInts ints;
  GgufFloats floats;
  GgufTexts texts;
  GgufBools bools;
  for (std::uint64_t i = 0; i < count; ++i) {
    const GgufValue value = read_scalar(in, type, key);
    if (const auto* n = std::get_if<std::int64_t>(&value)) ints.push_back(*n);
    if (const auto* b = std::get_if<bool>(&value)) bools.push_back(*b);
    if (const auto* f = std::get_if<double>(&value)) floats.push_back(*f);
    if (const auto* t = std::get_if<std::string_view>(&value)) texts.push_back(*t);
  }
  if (!ints.empty() && !floats.empty()) throw Error("{}: key {}: a list with integers beyond 63 bits", origin, key);
  if (type == kText) return texts;
  if (type == kBool) return bools;
  if (type == kF32 || type == kF64 || !floats.empty()) return floats;
  return ints;
}

void read_metadata(Cursor& in, std::uint64_t count, GgufMetadata& to) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view key = in.read_text("the metadata");
    if (key.empty() || key.size() > 65535) throw Error("{}: a key of {} bytes", to.origin(), key.size());
    const auto type = in.read<std::uint32_t>(key);
    if (type > kF64) throw Error("{}: key {}: unknown value type {}", to.origin(), key, type);
    to.add(key, type == kArray ? read_array(in, key, to.origin()) : read_scalar(in, type, key));
  }
}

// A tensor whose place is not yet checked against the others.
struct Placed {
  SourceTensor tensor;
  std::uint64_t offset = 0, bytes = 0;
};

Placed read_tensor(Cursor& in, const std::string& origin) {
  Placed p;
  p.tensor.name = in.read_text("the tensor list");
  p.tensor.file = origin;
  const auto fail = [&](const std::string& why) { return Error("{}: tensor {}: {}", origin, p.tensor.name, why); };
  if (p.tensor.name.empty()) throw Error("{}: a tensor without a name", origin);
  const auto rank = in.read<std::uint32_t>(p.tensor.name);
  if (rank == 0 || rank > Shape::kMaxRank) throw fail(fmt::format("{} extents", rank));
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = in.read<std::uint64_t>(p.tensor.name);
    constexpr std::uint64_t kMax = std::uint64_t{1} << 56;  // so that bytes never overflow: no element is above 64 bits
    if (extent == 0 || extent > kMax / elements) throw fail(fmt::format("an extent of {}", extent));
    elements *= extent;
    p.tensor.extents.push_back(static_cast<std::int64_t>(extent));
  }
  std::reverse(p.tensor.extents.begin(), p.tensor.extents.end());  // the file has the innermost first
  const auto type = in.read<std::uint32_t>(p.tensor.name);
  const auto dtype = dtype_of_gguf(type);
  if (!dtype) throw fail(fmt::format("element type {} is not supported", type));
  p.tensor.dtype = *dtype;
  const DTypeInfo& kind = info(*dtype);
  if (p.tensor.extents.back() % kind.block_elements != 0) {
    throw fail(fmt::format("rows of {} elements are not whole {} blocks of {}", p.tensor.extents.back(), kind.name, kind.block_elements));
  }
  p.bytes = elements / static_cast<std::uint64_t>(kind.block_elements) * static_cast<std::uint64_t>(kind.block_bytes);
  p.offset = in.read<std::uint64_t>(p.tensor.name);
  return p;
}

std::uint64_t round_up(std::uint64_t n, std::uint64_t step) { return (n + step - 1) / step * step; }

// Gives every tensor its bytes of `data`.
void place(std::vector<Placed>& tensors, std::span<const std::byte> data, std::size_t alignment, const std::string& origin) {
  std::sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
  std::uint64_t end = 0;
  std::set<std::string_view> names;
  for (Placed& p : tensors) {
    const auto fail = [&](const std::string& why) { return Error("{}: tensor {}: {}", origin, p.tensor.name, why); };
    if (!names.insert(p.tensor.name).second) throw fail("is there twice");
    if (p.offset != round_up(end, alignment)) {
      throw fail(fmt::format("its data begin at {}, expected at {} (alignment {})", p.offset, round_up(end, alignment), alignment));
    }
    if (p.bytes > data.size() || p.offset > data.size() - p.bytes) {
      throw fail(fmt::format("truncated: its data [{}, {}) are past the file's {} bytes of data", p.offset, p.offset + p.bytes, data.size()));
    }
    p.tensor.bytes = data.subspan(p.offset, p.bytes);
    end = p.offset + p.bytes;
  }
  if (data.size() > round_up(end, alignment)) {
    throw Error("{}: {} bytes follow the last tensor", origin, data.size() - end);
  }
}

}  // namespace

std::optional<DType> dtype_of_gguf(std::uint32_t type) {
  for (const auto& [number, dtype] : kTypes) {
    if (number == type) return dtype;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> gguf_type_of(DType type) {
  for (const auto& [number, dtype] : kTypes) {
    if (dtype == type) return number;
  }
  return std::nullopt;
}

GgufContent parse_gguf(std::span<const std::byte> file, const std::string& origin) {
  Cursor in(file, origin);
  if (in.read<std::array<char, 4>>("the header") != std::array{'G', 'G', 'U', 'F'}) throw Error("{}: not a GGUF file", origin);
  const auto version = in.read<std::uint32_t>("the header");
  if (version != 2 && version != 3) {
    throw Error("{}: GGUF version {} is not supported{}", origin, version,
                version != 0 && version % 65536 == 0 ? " (a big-endian file)" : " (2 and 3 are)");
  }
  const auto tensor_count = in.read<std::uint64_t>("the header"), key_count = in.read<std::uint64_t>("the header");
  GgufContent out{GgufMetadata(origin), {}};
  read_metadata(in, key_count, out.metadata);

  const std::int64_t alignment = out.metadata.get_int("general.alignment", kGgufAlignment);
  if (alignment <= 0 || alignment > (1 << 20) || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    throw Error("{}: general.alignment is {}", origin, alignment);
  }
  std::vector<Placed> tensors;
  for (std::uint64_t i = 0; i < tensor_count; ++i) tensors.push_back(read_tensor(in, origin));
  const std::size_t data = round_up(in.at(), static_cast<std::uint64_t>(alignment));
  place(tensors, data <= file.size() ? file.subspan(data) : file.last(0), static_cast<std::size_t>(alignment), origin);
  out.tensors.reserve(tensors.size());
  for (Placed& p : tensors) out.tensors.push_back(std::move(p.tensor));
  return out;
}

}  // namespace strata
