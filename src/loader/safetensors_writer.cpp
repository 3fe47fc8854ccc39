#include "loader/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace strata {
namespace {

// The format's own names; block types have none.
std::string_view format_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
    default:
      break;
  }
  STRATA_CHECK(false, "safetensors has no type {}", name(dtype));
  return {};
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::map<std::string, std::string> metadata)
    : path_(std::move(path)), part_(path_.string() + ".part"), metadata_(std::move(metadata)) {
  out_.open(part_, std::ios::binary | std::ios::trunc);
  if (!out_) throw Error("{}: cannot be written", part_.string());
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!out_.is_open()) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void SafetensorsWriter::declare(const std::string& name, DType dtype, const Shape& shape) {
  STRATA_CHECK(written_ == 0 && out_.tellp() == 0, "declare {} after the first write", name);
  declared_.push_back({name, dtype, shape});
}

void SafetensorsWriter::write_header() {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  std::size_t at = 0;
  std::set<std::string_view> names;
  for (const Declared& d : declared_) {
    const std::size_t bytes = bytes_of(d.dtype, d.shape.elements());
    auto extents = nlohmann::ordered_json::array();
    for (int i = 0; i < d.shape.rank(); ++i) extents.push_back(d.shape[i]);
    if (!names.insert(d.name).second) throw Error("{}: tensor {} is declared twice", path_.string(), d.name);
    header[d.name] = {
        {"dtype", format_name(d.dtype)}, {"shape", extents}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of 8 bytes
  const std::uint64_t length = text.size();
  out_.write(reinterpret_cast<const char*>(&length), sizeof length);
  out_.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void SafetensorsWriter::write(const Tensor& tensor) {
  STRATA_CHECK(written_ < declared_.size(), "{} tensors declared, one more written", declared_.size());
  if (written_ == 0) write_header();
  const Declared& d = declared_[written_++];
  STRATA_CHECK(tensor.dtype() == d.dtype && tensor.shape() == d.shape, "{}: declared {} {}, written {} {}",
               d.name, name(d.dtype), d.shape.to_string(), name(tensor.dtype()), tensor.shape().to_string());
  STRATA_CHECK(tensor.device() == Device::kCpu, "{} is not in host memory", d.name);
  const auto put = [&](const std::byte* data, std::size_t bytes) {
    out_.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  if (tensor.shape().rank() == 0 || tensor.contiguous()) {
    put(tensor.raw(), tensor.bytes());
    return;
  }
  for (std::int64_t r = 0; r < tensor.rows(); ++r) {
    put(tensor.raw() + bytes_of(d.dtype, r * tensor.stride()), bytes_of(d.dtype, tensor.row_size()));
  }
}

void SafetensorsWriter::close() {
  STRATA_CHECK(written_ == declared_.size(), "{} tensors declared, {} written", declared_.size(), written_);
  if (declared_.empty()) write_header();
  out_.close();
  if (!out_) throw Error("{}: cannot be written (is the disk full?)", part_.string());
  std::filesystem::rename(part_, path_);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer(path, metadata);
  for (const NamedTensor& t : tensors) writer.declare(t.name, t.tensor.dtype(), t.tensor.shape());
  for (const NamedTensor& t : tensors) writer.write(t.tensor);
  writer.close();
}

}  // namespace strata
