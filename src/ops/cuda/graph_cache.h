// GraphCache: steps of one shape recorded once as a CUDA graph and replayed afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <list>

#include "ops/batch.h"
#include "ops/cuda/stream.h"

struct CUgraphExec_st;

namespace strata::cuda {

// One thread. The first step of a shape runs eagerly (it grows the arena), the second is recorded, later ones replay the
// recording. A step must enqueue the same work at the same addresses whenever its shape is the same; what differs
// from step to step is data at fixed addresses (BatchUpload). Holds at most `limit` graphs, dropping the one unused longest.
class GraphCache {
 public:
  GraphCache(Stream stream, int limit) : stream_(stream), limit_(limit) {}
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  void run(const BatchShape& shape, const std::function<void()>& step);
  void clear();
  int size() const { return static_cast<int>(entries_.size()); }
  std::int64_t replays() const { return replays_; }

 private:
  struct Entry {
    BatchShape shape;
    CUgraphExec_st* graph = nullptr;  // null until the second step of the shape
  };
  void record(Entry& entry, const std::function<void()>& step);

  Stream stream_;
  int limit_;
  std::int64_t replays_ = 0;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace strata::cuda
