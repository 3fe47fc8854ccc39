// From a type known at run time to product_of<kType> and quantize_activations, included after them for each instruction
// set.

template <DType kType>
void quantize_for(const float* x, const QuantRows& to) {
  quantize_activations<Kind<kType>::kLayout.group>(x, Kind<kType>::kBias, to);
}

void product(const QuantProduct& p) {
  switch (p.dtype) {
#define CASE(name) \
  case DType::name: return product_of<DType::name>(p);
    STRATA_EACH_QUANT(CASE)
#undef CASE
    default: return;
  }
}

void quantize(DType weights, const float* x, const QuantRows& to) {
  switch (weights) {
#define CASE(name) \
  case DType::name: return quantize_for<DType::name>(x, to);
    STRATA_EACH_QUANT(CASE)
#undef CASE
    default: return;
  }
}
