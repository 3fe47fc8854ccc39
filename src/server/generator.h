// What the server needs of an engine, so that tests can put a scripted one in its place.
#pragma once

#include "runtime/engine.h"

namespace strata {

// Safe to call from any thread, as Engine is.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual const ModelInfo& info() const = 0;
  virtual Result<RequestId> submit(Request request, EventSink sink) = 0;
  virtual void abort(RequestId id) = 0;
  virtual EngineMetrics metrics() const = 0;
  virtual bool healthy() const = 0;
  // As Engine's.
  virtual Result<std::monostate> load_adapter(const std::string& name, const std::filesystem::path& folder,
                                              bool replace) = 0;
  virtual bool unload_adapter(const std::string& name) = 0;
  virtual std::vector<std::string> adapters() const = 0;
};

}  // namespace strata
