#include "model/model.h"

namespace strata {

std::vector<StateSpec> Model::states() const {
  std::vector<StateSpec> specs;
  specs.reserve(layers.size());
  for (const NamedLayer& l : layers) specs.push_back(l.layer->state());
  return specs;
}

Linears Model::linears() const {
  Linears all;
  for (const NamedLayer& l : layers) l.layer->linears(all);
  all.add(*head);
  return all;
}

ModelOutput Model::forward(const Batch& batch, std::span<const Memory> memory, Ops& ops, Tensor hidden,
                           const Observer& observer) const {
  STRATA_CHECK(memory.size() == layers.size(), "memory of {} layers, model has {}", memory.size(),
               layers.size());
  const std::int64_t T = batch.shape.rows, D = hidden_size;
  const Tensor x = ops.make({T, D}, DType::kF32);
  ops.embed(x, batch.tokens, *embedding, embedding_scale);
  if (!batch.adapters.empty()) {
    if (const LoraTable* table = batch.lora->find(embedding.get()))
      ops.lora(x, batch.tokens, *table, batch.adapters);
  }
  if (fusion) {
    STRATA_CHECK(!hidden.empty() && hidden.rows() == T,
                 "an MTP head needs a hidden state for each of {} rows", T);
    const Tensor e = ops.make({T, D}), h = ops.make({T, D}), both = ops.make({T, 2 * D});
    ops.rms_norm(e, x, fusion->embedding_norm.weight, fusion->embedding_norm.eps);
    ops.rms_norm(h, hidden, fusion->hidden_norm.weight, fusion->hidden_norm.eps);
    ops.concat(both, e, h);
    fusion->fc(x, both, batch, ops);
  }

  const auto residual = make_residual ? make_residual(x, ops) : std::make_unique<Residual>(x, ops);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (observer) observer(i, residual->flush());
    layers[i].layer->forward(*residual, batch, memory[i], ops);
  }
  if (observer) observer(layers.size(), residual->flush());

  ModelOutput out{.hidden = residual->finish(norm), .logits = {}};
  if (batch.shape.logit_rows > 0) {
    const Tensor picked = ops.make({batch.shape.logit_rows, D});
    ops.gather_rows(picked, out.hidden, batch.logit_rows);
    Batch logits_of = batch;
    logits_of.adapters = batch.logit_adapters;
    out.logits = (*head)(picked, logits_of, ops, DType::kF32);
    if (logit_scale != 1 || logit_softcap != 0) ops.scale(out.logits, logit_scale, logit_softcap);
  }
  return out;
}

}  // namespace strata
