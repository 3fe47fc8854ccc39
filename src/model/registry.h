// Registry: the model families this build knows, and loading a checkpoint as one of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/weights.h"

namespace strata {

// A key of config.json that changes the mathematics, and the values of it that a family computes:
// "silu|swish", "false", "1"; "null" where it computes none. A list has to hold nothing else. Absent and null
// are fine.
struct ConfigRule {
  std::string key, allowed;
};

// One row of the registry: a name and the function that lists the layers of its models.
struct Family {
  std::string name;                        // "qwen3_5_moe"
  std::vector<std::string> architectures;  // `architectures` of config.json
  std::vector<std::string> model_types;    // `model_type` of the text model; tried when no architecture fits
  std::string description;                 // one line for people
  std::vector<std::string> features;       // "MoE", "window", "MTP"
  Model (*build)(const Weights& weights);  // takes every tensor it uses, and no other
  // What the reference implementation takes where config.json lacks a key (published files rely on it), as a
  // JSON object.
  std::string defaults = "{}";
  std::vector<ConfigRule> rules = {};  // what else would be ignored and is refused instead
};

// In the order they are shown.
std::span<const Family> families();

// The family of a configuration: the text model's model_type decides, else the architecture. Error naming
// both and listing the architectures that are known.
const Family& find_family(const ModelConfig& config);

// The configuration a family builds from: its defaults under config.json's keys. Error naming the key and its
// value when it asks for what the family, or this engine (quantization_config), does not compute.
Json checked_config(const Family& family, const ModelConfig& config);

// Builds the checkpoint's model; it needs the checkpoint no longer. Tensors left over are an Error.
Model load_model(Checkpoint& checkpoint, Ops& ops, const LoadOptions& options = {});

}  // namespace strata
