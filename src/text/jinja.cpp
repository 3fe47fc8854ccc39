// Parsing and rendering, with errors turned into the project's kinds.
#include "text/jinja.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"
#include "text/jinja_resolver.h"
#include "text/jinja_unicode.h"

namespace strata::jinja {

Template Template::parse(std::string_view source) {
  if (!is_valid_utf8(source)) throw Error("template is not valid UTF-8");
  try {
    auto code = std::make_shared<TemplateCode>();
    code->body = Parser(source).parse();
    resolve(*code);
    return Template(std::move(code));
  } catch (const SyntaxError& error) {
    throw Error("line {}: {}", error.line, error.what());
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& context,
                                     const RenderOptions& options) const {
  Interpreter interpreter(*code_, context, options);
  try {
    return interpreter.run();
  } catch (const RenderError& error) {
    return bad_request(fmt::format("line {}: {}", interpreter.line(), error.what()));
  }
}

}  // namespace strata::jinja
