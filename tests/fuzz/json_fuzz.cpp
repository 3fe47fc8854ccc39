// Any text as a config.json: it becomes a ModelConfig, or an Error that names the file.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "loader/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto json = strata::Json::parse({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const strata::ModelConfig config(json, json);
    if (config.text().has("rope_theta") && config.text().get_float("rope_theta") == 1.0) return 0;
    config.text().get_int("hidden_size", 1);
  } catch (const strata::Error& e) {
    if (!std::string_view(e.what()).starts_with("fuzz.json: ")) std::abort();
  }
  return 0;
}
