// The engine as the server's generator.
#pragma once

#include <utility>

#include "server/generator.h"

namespace strata {

// The engine itself, which must outlive this.
class EngineGenerator final : public Generator {
 public:
  explicit EngineGenerator(Engine& engine) : engine_(engine) {}
  const ModelInfo& info() const override { return engine_.info(); }
  Result<RequestId> submit(Request request, EventSink sink) override {
    return engine_.submit(std::move(request), std::move(sink));
  }
  void abort(RequestId id) override { engine_.abort(id); }
  EngineMetrics metrics() const override { return engine_.metrics(); }
  bool healthy() const override { return engine_.healthy(); }
  Result<std::monostate> load_adapter(const std::string& name, const std::filesystem::path& folder,
                                      bool replace) override {
    return engine_.load_adapter(name, folder, replace);
  }
  bool unload_adapter(const std::string& name) override { return engine_.unload_adapter(name); }
  std::vector<std::string> adapters() const override { return engine_.adapters(); }

 private:
  Engine& engine_;
};

}  // namespace strata
