// MappedFile: a whole file, mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace strata {

// Owns the mapping; views of bytes() live as long as it does. Move only; any thread may read.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws Error naming the file and the cause
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;  // empty for an empty file
};

// Reads `bytes` of a mapping into memory ahead of use (a whole number of pages around them).
void touch_pages(std::span<const std::byte> bytes);

}  // namespace strata
