// Handlers that load and unload LoRA adapters while the server runs.
#include <fmt/format.h>

#include <algorithm>

#include "server/handlers.h"
#include "server/json_edge.h"

namespace strata {

void load_lora_adapter(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  const auto name = fields.text("lora_name"), path = fields.text("lora_path");
  const bool replace = fields.flag("load_inplace").value_or(false);
  if (!name || name->empty()) fields.fail("lora_name", "must be there");
  if (!path || path->empty()) fields.fail("lora_path", "must be there");
  if (fields.failed()) return refuse(exchange, ApiError::from(fields.error().value()));
  if (std::find(service.names.begin(), service.names.end(), *name) != service.names.end())
    return refuse(exchange, {400, fmt::format("{:?} is the base model's name", *name), "lora_name", {}});
  auto load = [generator = service.generator, exchange, name = *name, path = *path, replace] {
    auto loaded = generator->load_adapter(name, path, replace);
    exchange->post([exchange, name, loaded = std::move(loaded)] {
      if (!loaded) return refuse(exchange, ApiError::from(loaded.error()));
      exchange->respond(json_response(Json{{"status", "ok"}, {"lora_name", name}}));
    });
  };
  if (service.background) return service.background(std::move(load));
  load();
}

void unload_lora_adapter(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const auto body = parse_json(exchange->request().body);
  if (!body) return refuse(exchange, ApiError::from(body.error()));
  Fields fields(*body);
  const auto name = fields.text("lora_name");
  if (!name) fields.fail("lora_name", "must be there");
  if (fields.failed()) return refuse(exchange, ApiError::from(fields.error().value()));
  if (!service.generator->unload_adapter(*name))
    return refuse(exchange, {404, fmt::format("there is no adapter {:?}", *name), "lora_name", {}});
  exchange->respond(json_response(Json{{"status", "ok"}, {"lora_name", *name}}));
}

}  // namespace strata
