// LoraAdapter: a PEFT adapter (adapter_config.json and adapter_model.safetensors) as low-rank pairs in host
// memory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strata {

// What an adapter adds to one published matrix W: scale * B A, the scale folded into B.
struct LoraTarget {
  std::string name;  // "layers.3.self_attn.q_proj", "layers.3.mlp.experts.7.up_proj",
                     // "layers.3.mlp.experts.gate_up_proj"
  int rank = 0;
  int experts = 0;         // E of a stack of matrices (PEFT's target_parameters); 0 = one matrix
  bool embedding = false;  // W is an embedding table, stored [D, V]: A has a column a token
  // A stack saved by PEFT before 0.19: A may go with the outputs of W and B with its inputs; the shapes must
  // tell.
  bool either_way = false;
  std::int64_t inputs = 0, outputs = 0;  // columns of A, rows of B
  std::vector<float> a;                  // [rank, inputs], or [E, rank, inputs]
  std::vector<float> b;                  // [outputs, rank], or [E, outputs, rank]
};

// Immutable after load; any number of banks may hold it.
struct LoraAdapter {
  std::string origin;  // the folder, for errors
  int rank = 0;        // the largest of its targets
  std::vector<LoraTarget> targets;
  std::size_t bytes() const;  // of all pairs
};

// Reads a folder as PEFT writes it. Error, naming the file and what is at fault, on anything that is not
// plain LoRA (DoRA, biases, saved modules, ...), on a tensor or an option that is not understood, on a
// missing partner or a shape or rank that does not fit. Whether the targets exist in a model is for the bank
// to say.
LoraAdapter load_lora_adapter(const std::filesystem::path& folder);

}  // namespace strata
