// Any bytes as a safetensors file: it is parsed, or refused with an Error that names the file.
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "loader/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto tensors = strata::parse_safetensors(file, "fuzz.safetensors");
    std::size_t bytes = 0;
    for (const auto& t : tensors) {
      bytes += t.bytes.size();
      for (const std::byte b : t.bytes) bytes += static_cast<std::size_t>(b) & 0;  // every byte may be read
    }
    if (bytes + sizeof(std::uint64_t) > size) std::abort();
  } catch (const strata::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz.safetensors: ")) std::abort();
  }
  return 0;
}
