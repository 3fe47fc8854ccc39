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
};

}  // namespace strata
