// A Jinja2 template engine that renders chat templates as Python's jinja2 does in its immutable sandbox.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata::jinja {

struct TemplateCode;

struct RenderOptions {
  // Evaluated nodes plus bytes searched / 64: an end to a template that would never stop, after about a
  // second.
  size_t max_steps = 50'000'000;
  // Text and lists made on the way, all together: hundreds of times what the longest prompts take.
  size_t max_bytes = size_t{1} << 30;
  // Nested calls, blocks and expressions.
  int max_depth = 1000;
  // What strftime_now() shows, in local time; the clock if absent.
  std::optional<std::time_t> now;
};

// A parsed template: trim_blocks and lstrip_blocks on, break and continue, {% generation %}, tojson,
// raise_exception and strftime_now as chat templates expect them. Immutable: any number of threads may render
// it at once.
class Template {
 public:
  // Throws Error "line N: what is wrong".
  static Template parse(std::string_view source);

  // `context`: an object whose members are the template's variables. The error names the line.
  Result<std::string> render(const nlohmann::ordered_json& context, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const TemplateCode> code) : code_(std::move(code)) {}
  std::shared_ptr<const TemplateCode> code_;
};

}  // namespace strata::jinja
