// How vectors of codes and scales come out of packed blocks, included once for each instruction set, inside its namespace and target.
//
// The includer defines kBytes (of a vector), kFullUnsigned (whether dot takes bytes above 127), the vectors U8, U16, I32, F32 of
// kBytes, and: I32 dot(I32, U8 unsigned w, int four x), I32 dot_signed(I32, U8 signed w, int four x), F32 fma(F32, F32, F32),
// F32 halves(const std::byte*), F32 signed_bytes(const std::byte*), F32 unsigned_bytes(const std::byte*), F32 exponents(const
// std::byte*) (E8M0, halved), F32 all(float), U8 look_up(U8 table, U8 index), U8 table_of(const std::int8_t* sixteen, int add).

constexpr int kLanes = kBytes / 4;
constexpr int kVectors = kPanelOutputs / kLanes;

inline U8 load(const std::byte* p) {
  U8 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Bits [shift, shift + width) of each byte moved to bit `to`.
template <int kWidth>
inline U8 field(U8 v, int shift, int to) {
  const int by = shift - to;
  const U16 w = by >= 0 ? (U16)v >> by : (U16)v << -by;
  const auto mask = static_cast<std::uint8_t>(((1 << kWidth) - 1) << to);
  return (U8)w & mask;
}

template <int kWidth>
inline U8 plane(const std::byte* at, int quad, int vector, int to) {
  const std::byte* p = at + vector * kBytes;
  if constexpr (kWidth == 4) return field<4>(load(p + quad % 4 * 64), quad / 4 * 4, to);
  if constexpr (kWidth == 2) return field<2>(load(p + quad / 4 * 64), quad % 4 * 2, to);
  return field<1>(load(p), quad, to);
}

template <DType kType>
struct Kind {
  static constexpr QuantLayout kLayout = quant_layout(kType);
  static constexpr bool kByteCodes = kLayout.low == 8 || kLayout.table;  // codes of a full signed byte
  static constexpr int kBias = kByteCodes ? (kFullUnsigned ? 128 : 0) : kLayout.bias;

  // The 16 bytes a lane group of four needs for `quad`, ready for add().
  static inline U8 quad(const std::byte* codes, int q, int vector, U8 table) {
    if constexpr (kLayout.low == 8) {
      const U8 v = load(codes + q * 64 + vector * kBytes);
      return kFullUnsigned ? v ^ static_cast<std::uint8_t>(0x80) : v;
    }
    U8 v = plane<kLayout.low>(codes, q, vector, 0);
    if constexpr (kLayout.high > 0) v |= plane<kLayout.high>(codes + kLayout.low * 64, q, vector, kLayout.low);
    if constexpr (kLayout.table) return look_up(table, v);
    return v;
  }

  static inline I32 add(I32 sum, U8 w, int x) {
    if constexpr (kByteCodes && !kFullUnsigned) return dot_signed(sum, w, x);
    return dot(sum, w, x);
  }
};

// Scale and offset vectors of group g of a unit.
template <DType kType>
inline F32 scale_of(const std::byte* unit, int g, int vector) {
  constexpr QuantLayout kLayout = quant_layout(kType);
  if constexpr (kLayout.e8m0) return exponents(unit + vector * kLanes);
  const F32 d = halves(unit + vector * kLanes * 2);
  if constexpr (kLayout.unit == 32) return d;
  return d * signed_bytes(unit + (kLayout.offset ? 64 : 32) + 16 * g + vector * kLanes);
}

template <DType kType>
inline F32 offset_of(const std::byte* unit, int g, int vector) {
  constexpr QuantLayout kLayout = quant_layout(kType);
  const F32 d = halves(unit + 32 + vector * kLanes * 2);
  if constexpr (kLayout.unit == 32) return d;
  return -(d * unsigned_bytes(unit + 64 + 16 * (kLayout.groups() + g) + vector * kLanes));
}

inline void finish(const QuantProduct& p, std::int64_t n, const F32* sums, float* out) {
  float values[kPanelOutputs];
  std::memcpy(values, sums, sizeof(values));
  const std::int64_t count = n + kPanelOutputs <= p.outputs ? kPanelOutputs : p.outputs - n;
  for (std::int64_t i = 0; i < count; ++i) out[n + i] = p.bias != nullptr ? values[i] + p.bias[n + i] : values[i];
}
