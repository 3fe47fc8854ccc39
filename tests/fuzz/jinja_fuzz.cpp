// Any text as a chat template: it parses and renders, or the error names a line; never a crash, a hang or a leak.
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto context = nlohmann::ordered_json::parse(R"({"messages": [{"role": "user", "content": "Hé <b>"},
    {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"a": [1, 2.5, true]}}]}],
    "tools": [], "n": 3, "s": "a,b c", "add_generation_prompt": true})");
  strata::jinja::RenderOptions options;
  options.max_steps = 20'000;
  options.max_bytes = 1'000'000;
  options.now = 0;
  try {
    const auto code = strata::jinja::Template::parse({reinterpret_cast<const char*>(data), size});
    const auto text = code.render(context, options);
    if (!text && !text.error().message.starts_with("line ")) std::abort();
  } catch (const strata::Error& e) {
    const std::string_view what = e.what();
    if (!what.starts_with("line ") && what != "template is not valid UTF-8") std::abort();
  }
  return 0;
}
