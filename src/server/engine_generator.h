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

 private:
  Engine& engine_;
};

}  // namespace strata
