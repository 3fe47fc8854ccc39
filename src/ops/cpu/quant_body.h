// The body of the quantised products, included once for each instruction set, inside its namespace and target.
//
// The includer defines kBytes (of a vector), kFullUnsigned (whether dot takes bytes above 127), the vectors U8, U16, I32, F32 of
// kBytes, and: I32 dot(I32, U8 unsigned w, int four x), I32 dot_signed(I32, U8 signed w, int four x), F32 fma(F32, F32, F32),
// F32 halves(const std::byte*), F32 signed_bytes(const std::byte*), F32 unsigned_bytes(const std::byte*), F32 exponents(const
// std::byte*) (E8M0, halved), U8 look_up(U8 table, U8 index), U8 table_of(const std::int8_t* sixteen, int add).

constexpr int kLanes = kBytes / 4;
constexpr int kVectors = kPanelOutputs / kLanes;

inline U8 load(const std::byte* p) {
  U8 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline F32 all(float x) { return F32{} + x; }  // 0 + x: -0 becomes +0, which no product here can tell

// Bits [shift, shift + width) of each byte moved to bit `to`.
template <int kWidth>
inline U8 field(U8 v, int shift, int to) {
  const int by = shift - to;
  const U16 w = by >= 0 ? (U16)v >> by : (U16)v << -by;
  return (U8)w & static_cast<std::uint8_t>(((1 << kWidth) - 1) << to);
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

constexpr int kAhead = 1024;  // bytes of a panel fetched ahead of their use

template <DType kType, int kRows, int kPanels>
void tile(const QuantProduct& p, std::int64_t first, int row) {
  using Type = Kind<kType>;
  constexpr QuantLayout kLayout = Type::kLayout;
  constexpr int kWide = kPanels * kVectors;
  const QuantRows x = p.x.from(row);
  const std::int64_t inputs = x.inputs, groups = inputs / kLayout.group;
  const std::size_t bytes = quant_panel_bytes(kType, inputs);
  const std::byte* units = p.weights + static_cast<std::size_t>(first) * bytes;
  U8 table{};
  if constexpr (kLayout.table) table = table_of(quant_table(kType).data(), Type::kBias);
  F32 sum[kRows][kWide] = {};
  for (std::int64_t k = 0; k < inputs; k += 32) {
    const int in = static_cast<int>(k % kLayout.unit);
    const std::byte* codes = units + kLayout.scale_bytes() + in / 32 * kLayout.code_bytes();
    for (int half = 0; half < 32 / kLayout.group; ++half) {
      const std::int64_t g = k / kLayout.group + half;
      I32 dots[kRows][kWide];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < kWide; ++v) dots[r][v] = I32{} + x.start[r * groups + g];
      }
#pragma GCC unroll 8
      for (int i = 0; i < kLayout.group / 4; ++i) {
        const int q = kLayout.group == 16 && half == 1 ? i + 4 : i;
        int four[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) std::memcpy(&four[r], x.codes + r * inputs + k + q * 4, 4);
#pragma GCC unroll 8
        for (int v = 0; v < kWide; ++v) {
          const U8 w = Type::quad(codes + static_cast<std::size_t>(v / kVectors) * bytes, q, v % kVectors, table);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) dots[r][v] = Type::add(dots[r][v], w, four[r]);
        }
      }
#pragma GCC unroll 8
      for (int v = 0; v < kWide; ++v) {
        const std::byte* unit = units + static_cast<std::size_t>(v / kVectors) * bytes;
        const int in_unit = static_cast<int>(g) % kLayout.groups();
        const F32 scale = scale_of<kType>(unit, in_unit, v % kVectors);
        F32 offset{};
        if constexpr (kLayout.offset) offset = offset_of<kType>(unit, in_unit, v % kVectors);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F32 both = scale * all(x.scale[r * (inputs / 32) + k / 32]);
          sum[r][v] = fma(__builtin_convertvector(dots[r][v], F32), both, sum[r][v]);
          if constexpr (kLayout.offset) sum[r][v] = fma(offset, all(x.shift[r * groups + g]), sum[r][v]);
        }
      }
    }
    if constexpr (kRows == 1) {
#pragma GCC unroll 8
      for (int i = 0; i < kPanels; ++i) {
        for (int b = 0; b < kLayout.code_bytes(); b += 64) __builtin_prefetch(codes + static_cast<std::size_t>(i) * bytes + kAhead + b);
      }
    }
    if (in + 32 == kLayout.unit) units += kLayout.unit_bytes();
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kPanels; ++i) finish(p, (first + i) * kPanelOutputs, sum[r] + i * kVectors, p.out[row + r]);
  }
}

constexpr int kTileRows = kVectors == 1 ? 8 : 3;  // sums and dots in 32 registers of 16 lanes, or 16 of 8

template <DType kType, int kRows>
void row_tile(const QuantProduct& p, int row) {
  constexpr int kWide = kVectors > 1 ? 1 : kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  std::int64_t i = p.first_panel;
  const std::int64_t end = i + p.panels;
  for (; i + kWide <= end; i += kWide) tile<kType, kRows, kWide>(p, i, row);
  if constexpr (kWide > 1) {
    for (; i < end; ++i) tile<kType, kRows, 1>(p, i, row);
  }
}

template <DType kType>
void product_of(const QuantProduct& p) {
  for (int row = 0; row < p.rows; row += kTileRows) {
    switch (p.rows - row < kTileRows ? p.rows - row : kTileRows) {
      case 1: row_tile<kType, 1>(p, row); break;
      case 2: row_tile<kType, 2>(p, row); break;
      case 3: row_tile<kType, 3>(p, row); break;
#if QUANT_TILE_ROWS == 8
      case 4: row_tile<kType, 4>(p, row); break;
      case 5: row_tile<kType, 5>(p, row); break;
      case 6: row_tile<kType, 6>(p, row); break;
      case 7: row_tile<kType, 7>(p, row); break;
      default: row_tile<kType, 8>(p, row); break;
#else
      default: break;
#endif
    }
  }
}

template <DType kType>
void quantize_for(const float* x, const QuantRows& to) {
  quantize_activations<Kind<kType>::kLayout.group>(x, Kind<kType>::kBias, to);
}

#define STRATA_EACH_QUANT(CASE)                                                                                       \
  CASE(kQ4_0) CASE(kQ4_1) CASE(kQ5_0) CASE(kQ5_1) CASE(kQ8_0) CASE(kQ2_K) CASE(kQ3_K) CASE(kQ4_K) CASE(kQ5_K) CASE(kQ6_K) \
  CASE(kIQ4_NL) CASE(kIQ4_XS) CASE(kMXFP4)

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
