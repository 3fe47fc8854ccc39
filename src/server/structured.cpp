#include "server/structured.h"

namespace strata {

Result<std::shared_ptr<Constraint>> read_response_format(const Service& service, const Json* format) {
  if (!format) return nullptr;
  Fields fields(*format, "response_format.");
  const auto type = fields.text("type");
  const Json* outer = fields.object("json_schema");
  if (fields.failed()) return fields.error();
  if (!type) return bad_request("response_format.type is missing", "response_format.type");
  if (*type == "text") return nullptr;
  Json schema{{"type", "object"}};
  if (*type == "json_schema") {
    const Json* inner = outer ? outer : format;  // the responses API has the schema one level higher
    Fields described(*inner, outer ? "response_format.json_schema." : "response_format.");
    const Json* given = described.object("schema");
    if (described.failed()) return described.error();
    if (!given) return bad_request("response_format has no schema", "response_format");
    schema = *given;
  } else if (*type != "json_object") {
    return bad_request("response_format.type must be text, json_object or json_schema",
                       "response_format.type");
  }
  if (!service.make_constraint)
    return bad_request("this server cannot enforce response_format " + *type, "response_format");
  return service.make_constraint(schema);
}

}  // namespace strata
