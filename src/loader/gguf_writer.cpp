#include "loader/gguf_writer.h"

#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "loader/gguf_reader.h"

namespace strata {
namespace {

enum ValueType : std::uint32_t { kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kText = 8, kArray = 9, kI64 = 11 };

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& to, std::string_view text) {
  put<std::uint64_t>(to, text.size());
  to += text;
}

template <typename List, typename Put>
void put_list(std::string& to, ValueType type, const List& list, Put put_one) {
  put<std::uint32_t>(to, kArray);
  put<std::uint32_t>(to, type);
  put<std::uint64_t>(to, list.size());
  for (const auto& item : list) put_one(item);
}

// Type and value.
struct Encoder {
  std::string out;

  void operator()(std::int64_t v) {
    if (v >= 0 && v <= std::numeric_limits<std::uint32_t>::max()) {
      put<std::uint32_t>(out, kU32);
      put(out, static_cast<std::uint32_t>(v));
    } else if (v < 0 && v >= std::numeric_limits<std::int32_t>::min()) {
      put<std::uint32_t>(out, kI32);
      put(out, static_cast<std::int32_t>(v));
    } else {
      put<std::uint32_t>(out, kI64);
      put(out, v);
    }
  }
  void operator()(double v) {
    put<std::uint32_t>(out, kF32);
    put(out, static_cast<float>(v));
  }
  void operator()(bool v) {
    put<std::uint32_t>(out, kBool);
    put<std::uint8_t>(out, v ? 1 : 0);
  }
  void operator()(std::string_view v) {
    put<std::uint32_t>(out, kText);
    put_text(out, v);
  }
  void operator()(const GgufInts& v) {
    put_list(out, kI32, v, [&](std::int64_t x) { put(out, static_cast<std::int32_t>(x)); });
  }
  void operator()(const GgufFloats& v) {
    put_list(out, kF32, v, [&](double x) { put(out, static_cast<float>(x)); });
  }
  void operator()(const GgufTexts& v) {
    put_list(out, kText, v, [&](std::string_view x) { put_text(out, x); });
  }
  void operator()(const GgufBools& v) {
    put_list(out, kBool, v, [&](bool x) { put<std::uint8_t>(out, x ? 1 : 0); });
  }
};

std::size_t round_up(std::size_t n) { return (n + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment; }

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path) : path_(std::move(path)), part_(path_.string() + ".part") {
  out_.open(part_, std::ios::binary | std::ios::trunc);
  if (!out_) throw Error("{}: cannot be written", part_.string());
}

GgufWriter::~GgufWriter() {
  if (!out_.is_open()) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void GgufWriter::set(const std::string& key, const GgufValue& value) {
  STRATA_CHECK(!begun_, "{} is set after the first write", key);
  Encoder encoder;
  std::visit(encoder, value);
  values_[key] = std::move(encoder.out);
}

void GgufWriter::declare(const std::string& name, DType dtype, const Shape& shape) {
  STRATA_CHECK(!begun_, "declare {} after the first write", name);
  STRATA_CHECK(shape.rank() > 0 && shape[-1] % info(dtype).block_elements == 0, "{} {} as {}", name, shape.to_string(),
               strata::name(dtype));
  const std::size_t at = declared_.empty() ? 0 : declared_.back().offset + bytes_of(declared_.back().dtype, declared_.back().shape.elements());
  declared_.push_back({name, dtype, shape, round_up(at)});
}

void GgufWriter::write_header() {
  begun_ = true;
  std::string header("GGUF");
  put<std::uint32_t>(header, 3);
  put<std::uint64_t>(header, declared_.size());
  put<std::uint64_t>(header, values_.size());
  for (const auto& [key, value] : values_) {
    put_text(header, key);
    header += value;
  }
  for (const Declared& d : declared_) {
    const auto type = gguf_type_of(d.dtype);
    if (!type) throw Error("{}: tensor {}: GGUF has no type {}", path_.string(), d.name, name(d.dtype));
    put_text(header, d.name);
    put(header, static_cast<std::uint32_t>(d.shape.rank()));
    for (int i = d.shape.rank() - 1; i >= 0; --i) put(header, static_cast<std::uint64_t>(d.shape[i]));
    put(header, *type);
    put(header, static_cast<std::uint64_t>(d.offset));
  }
  header.resize(round_up(header.size()), '\0');
  out_.write(header.data(), static_cast<std::streamsize>(header.size()));
}

void GgufWriter::pad(std::size_t to) {
  for (; written_ < to; ++written_) out_.put('\0');
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  if (!begun_) write_header();
  while (!bytes.empty()) {
    STRATA_CHECK(current_ < declared_.size(), "{} bytes beyond the {} tensors declared", bytes.size(), declared_.size());
    const Declared& d = declared_[current_];
    if (written_ < d.offset) pad(d.offset);
    const std::size_t left = d.offset + bytes_of(d.dtype, d.shape.elements()) - written_, now = std::min(left, bytes.size());
    out_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(now));
    written_ += now;
    bytes = bytes.subspan(now);
    if (now == left) ++current_;
  }
}

void GgufWriter::close() {
  if (!begun_) write_header();
  STRATA_CHECK(current_ == declared_.size(), "{} tensors declared, {} written", declared_.size(), current_);
  pad(round_up(written_));
  out_.close();
  if (!out_) throw Error("{}: cannot be written (is the disk full?)", part_.string());
  std::filesystem::rename(part_, path_);
}

}  // namespace strata
