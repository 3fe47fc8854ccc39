#include "loader/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace strata {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = regular && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int cause = errno;
  close(fd);
  if (!regular) throw Error("{}: not a regular file", path.string());
  if (data == MAP_FAILED) throw Error("{}: cannot be mapped: {}", path.string(), std::strerror(cause));
  if (data != nullptr) bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void touch_pages(std::span<const std::byte> bytes) {
  static const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (bytes.empty()) return;
  const std::byte* begin = bytes.data() - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage;
  const auto length = static_cast<std::size_t>(bytes.data() + bytes.size() - begin);
  madvise(const_cast<std::byte*>(begin), length, MADV_WILLNEED);  // a hint: reading below does the work
  for (std::size_t i = 0; i < length; i += kPage) {
    [[maybe_unused]] const volatile std::byte read = *static_cast<const volatile std::byte*>(begin + i);
  }
}

}  // namespace strata
