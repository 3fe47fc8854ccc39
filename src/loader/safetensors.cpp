#include "loader/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace strata {
namespace {

using simdjson::dom::element;

std::optional<DType> dtype_named(std::string_view name) {
  static const std::map<std::string_view, DType> kTypes = {
      {"F64", DType::kF64}, {"F32", DType::kF32},   {"F16", DType::kF16},        {"BF16", DType::kBF16},
      {"I64", DType::kI64}, {"I32", DType::kI32},   {"I16", DType::kI16},        {"I8", DType::kI8},
      {"U8", DType::kU8},   {"BOOL", DType::kBool}, {"F8_E4M3", DType::kF8E4M3},
  };
  const auto it = kTypes.find(name);
  return it == kTypes.end() ? std::nullopt : std::optional(it->second);
}

// One tensor's description, with offsets into the data still unchecked against the others.
struct Described {
  SourceTensor tensor;
  std::uint64_t begin = 0, end = 0;
};

// Bytes of the extents, or nothing when that overflows 63 bits.
std::optional<std::uint64_t> checked_bytes(const SourceTensor& t) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  auto n = static_cast<std::uint64_t>(info(t.dtype).block_bytes);
  for (const std::int64_t extent : t.extents) {
    const auto e = static_cast<std::uint64_t>(extent);
    if (e != 0 && n > kMax / e) return std::nullopt;
    n *= e;
  }
  return n;
}

Described describe(std::string_view name, const element& value, const std::string& origin) {
  const auto fail = [&](const std::string& why) -> Error {
    return Error("{}: tensor {}: {}", origin, name, why);
  };
  Described d;
  d.tensor.name = name;
  d.tensor.file = origin;
  if (!value.is_object()) throw fail("its description is not an object");
  std::string_view dtype;
  if (value["dtype"].get(dtype) != simdjson::SUCCESS) throw fail("has no dtype");
  const auto known = dtype_named(dtype);
  if (!known) throw fail(fmt::format("unknown dtype {}", dtype));
  d.tensor.dtype = *known;

  simdjson::dom::array shape, offsets;
  if (value["shape"].get(shape) != simdjson::SUCCESS) throw fail("has no shape");
  for (const element extent : shape) {
    std::int64_t e = 0;
    if (extent.get(e) != simdjson::SUCCESS || e < 0) throw fail("an extent of its shape is not a size");
    d.tensor.extents.push_back(e);
  }
  if (value["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
      offsets.at(0).get(d.begin) != simdjson::SUCCESS || offsets.at(1).get(d.end) != simdjson::SUCCESS) {
    throw fail("data_offsets are not two sizes");
  }
  if (d.begin > d.end) throw fail(fmt::format("data range [{}, {}) is out of order", d.begin, d.end));
  const auto need = checked_bytes(d.tensor);
  if (!need) throw fail(fmt::format("shape {} is absurdly large", to_string(d.tensor.extents)));
  if (*need != d.end - d.begin) {
    throw fail(fmt::format("shape {} of {} needs {} bytes, its data range [{}, {}) has {}",
                           to_string(d.tensor.extents), dtype, *need, d.begin, d.end, d.end - d.begin));
  }
  return d;
}

// The JSON of the header, or the reason why there is none.
std::string_view header_text(std::span<const std::byte> file, const std::string& origin) {
  std::uint64_t length = 0;
  if (file.empty()) throw Error("{}: the file is empty", origin);
  if (file.size() < sizeof length)
    throw Error("{}: {} bytes are too short for a safetensors file", origin, file.size());
  std::memcpy(&length, file.data(), sizeof length);  // little-endian, as every machine we run on
  if (length > kMaxSafetensorsHeader) {
    throw Error("{}: header of {} bytes, at most {} are allowed (is this a safetensors file?)", origin,
                length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - sizeof length) {
    throw Error("{}: truncated: header of {} bytes in a file of {}", origin, length, file.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);
  if (!text.starts_with('{')) throw Error("{}: the header does not begin with an object", origin);
  return text;
}

// Every byte of the data belongs to exactly one tensor.
void check_ranges(const std::vector<Described>& sorted, std::uint64_t data_bytes, const std::string& origin) {
  std::uint64_t at = 0;
  const Described* previous = nullptr;
  for (const Described& d : sorted) {
    if (d.end > data_bytes) {
      throw Error("{}: truncated: tensor {} ends at byte {} of the data, the file has {}", origin,
                  d.tensor.name, d.end, data_bytes);
    }
    if (d.begin < at) {
      throw Error("{}: tensor {}: data range [{}, {}) overlaps that of {}", origin, d.tensor.name, d.begin,
                  d.end, previous->tensor.name);
    }
    if (d.begin > at) {
      throw Error("{}: gap of {} bytes before tensor {}", origin, d.begin - at, d.tensor.name);
    }
    at = d.end;
    previous = &d;
  }
  if (at != data_bytes)
    throw Error("{}: {} bytes after the last tensor belong to none", origin, data_bytes - at);
}

}  // namespace

std::string to_string(std::span<const std::int64_t> extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

std::vector<SourceTensor> parse_safetensors(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text = header_text(file, origin);
  simdjson::dom::parser parser(kMaxSafetensorsHeader);
  simdjson::dom::object header;
  if (const auto error = parser.parse(text.data(), text.size()).get(header); error != simdjson::SUCCESS) {
    throw Error("{}: header: {}", origin, simdjson::error_message(error));
  }
  std::vector<Described> described;
  std::set<std::string_view> names;
  for (const auto [name, value] : header) {
    if (name == "__metadata__") continue;
    if (!names.insert(name).second) throw Error("{}: tensor {} is described twice", origin, name);
    described.push_back(describe(name, value, origin));
  }
  std::sort(described.begin(), described.end(), [](const Described& a, const Described& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  const auto data = file.subspan(sizeof(std::uint64_t) + text.size());
  check_ranges(described, data.size(), origin);
  std::vector<SourceTensor> tensors;
  tensors.reserve(described.size());
  for (Described& d : described) {
    d.tensor.bytes = data.subspan(d.begin, d.end - d.begin);
    tensors.push_back(std::move(d.tensor));
  }
  return tensors;
}

void Safetensors::add_file(const std::filesystem::path& file) {
  const MappedFile& mapped = files_.emplace_back(file);
  auto tensors = parse_safetensors(mapped.bytes(), file.string());
  tensors_.insert(tensors_.end(), std::make_move_iterator(tensors.begin()),
                  std::make_move_iterator(tensors.end()));
}

std::unique_ptr<Safetensors> Safetensors::open_file(const std::filesystem::path& file) {
  auto source = std::make_unique<Safetensors>();
  source->add_file(file);
  return source;
}

std::unique_ptr<Safetensors> Safetensors::open_index(const std::filesystem::path& index) {
  const Json map = Json::load(index).at("weight_map");
  std::map<std::string, std::set<std::string>> shards;  // file -> tensors it must hold
  for (const std::string& name : map.keys()) {
    const std::string file = map.get_string(name);
    if (file.empty() || file != std::filesystem::path(file).filename() || file == "." || file == "..") {
      throw Error("{}: tensor {}: shard \"{}\" is not a plain file name", index.string(), name, file);
    }
    shards[file].insert(name);
  }
  auto source = std::make_unique<Safetensors>();
  for (auto& [file, expected] : shards) {
    const auto path = index.parent_path() / file;
    if (!std::filesystem::exists(path)) {
      throw Error("{}: shard missing, {} names it for {} tensors, for example {}", path.string(),
                  index.string(), expected.size(), *expected.begin());
    }
    const std::size_t first = source->tensors_.size();
    source->add_file(path);
    for (std::size_t i = first; i < source->tensors_.size(); ++i) {
      const std::string& name = source->tensors_[i].name;
      if (expected.erase(name) == 0) {
        throw Error("{}: tensor {} is not listed for this shard in {}", path.string(), name, index.string());
      }
    }
    if (!expected.empty()) {
      throw Error("{}: {} tensors that {} lists for this shard are missing, first {}", path.string(),
                  expected.size(), index.string(), *expected.begin());
    }
  }
  return source;
}

}  // namespace strata
