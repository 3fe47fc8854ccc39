#include "ops/cuda/graph_cache.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "ops/cuda/cuda_error.h"

namespace strata::cuda {
namespace {

void release(CUgraphExec_st* graph) {
  if (graph != nullptr) cudaGraphExecDestroy(graph);
}

}  // namespace

GraphCache::~GraphCache() { clear(); }

void GraphCache::clear() {
  for (const Entry& e : entries_) release(e.graph);
  entries_.clear();
}

void GraphCache::run(const BatchShape& shape, const std::function<void()>& step) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.shape == shape; });
  if (found == entries_.end()) {
    step();
    entries_.push_front({shape, nullptr});
    if (size() > limit_) {
      release(entries_.back().graph);
      entries_.pop_back();
    }
    return;
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (found->graph == nullptr) {
    record(*found, step);
  } else {
    ++replays_;
  }
  check_cuda(cudaGraphLaunch(found->graph, stream_), "graph launch");
}

void GraphCache::record(Entry& entry, const std::function<void()>& step) {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
  step();
  check_cuda(cudaStreamEndCapture(stream_, &graph), "end capture");
  const cudaError_t made = cudaGraphInstantiate(&entry.graph, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(made, "graph instantiation");
}

}  // namespace strata::cuda
