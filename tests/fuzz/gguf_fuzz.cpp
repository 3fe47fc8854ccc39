// Any bytes as a GGUF file: it is parsed, its model and vocabulary described and its tensors converted, or refused with an
// Error that names the file.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "loader/gguf.h"
#include "loader/gguf_vocabulary.h"

namespace {

template <typename Call>
void checked(Call call) {
  try {
    call();
  } catch (const strata::Error& e) {
    if (std::string_view(e.what()).find("fuzz.gguf") == std::string_view::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  checked([&] {
    strata::GgufContent content = strata::parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz.gguf");
    std::size_t bytes = 0;
    for (const auto& t : content.tensors) bytes += t.bytes.size();
    if (bytes > size) std::abort();
    checked([&] { strata::gguf_vocabulary(content.metadata); });
    strata::publish_gguf(content);
    for (const auto& t : content.tensors) {
      if (!t.convert) continue;
      std::int64_t elements = 1;
      for (const std::int64_t e : t.extents) elements *= e;
      std::vector<std::byte> made(strata::bytes_of(t.dtype, elements));
      t.convert(t, made.data());
    }
  });
  return 0;
}
