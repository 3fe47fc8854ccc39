// Registry: the model families this build knows, and loading a checkpoint as one of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/weights.h"

namespace strata {

// One row of the registry: a name and the function that lists the layers of its models.
struct Family {
  std::string name;                        // "qwen3_5_moe"
  std::vector<std::string> architectures;  // `architectures` of config.json
  std::vector<std::string> model_types;    // `model_type` of the text model; tried when no architecture fits
  std::string description;                 // one line for people
  std::vector<std::string> features;       // "MoE", "window", "MTP"
  Model (*build)(const Weights& weights);  // takes every tensor it uses, and no other
};

// In the order they are shown.
std::span<const Family> families();

// The family of a configuration; Error naming the architecture and listing those that are known.
const Family& find_family(const ModelConfig& config);

// Builds the checkpoint's model; it needs the checkpoint no longer. Tensors left over are an Error.
Model load_model(Checkpoint& checkpoint, Ops& ops, const LoadOptions& options = {});

}  // namespace strata
