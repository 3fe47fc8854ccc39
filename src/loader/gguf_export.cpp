#include "loader/gguf_export.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "loader/gguf.h"
#include "loader/gguf_config.h"
#include "loader/gguf_export_metadata.h"
#include "loader/gguf_layout.h"
#include "loader/gguf_plan.h"
#include "tensor/convert.h"
#include "tensor/quant.h"

namespace strata {
namespace {

using Math = TensorLayout::Math;

double bits(DType type) { return 8.0 * info(type).block_bytes / info(type).block_elements; }

// general.file_type of llama.cpp, which tools show.
std::int64_t file_type(DType type) {
  switch (type) {
    case DType::kF32: return 0;
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ4_1: return 3;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kQ5_1: return 9;
    case DType::kQ2_K: return 10;
    case DType::kQ3_K: return 11;
    case DType::kQ4_K: return 14;
    case DType::kQ5_K: return 16;
    case DType::kQ6_K: return 18;
    case DType::kIQ4_NL: return 25;
    case DType::kIQ4_XS: return 30;
    case DType::kBF16: return 32;
    case DType::kMXFP4: return 38;
    default: throw Error("{} is not a type to write a GGUF file in", name(type));
  }
}

bool in_place(std::optional<DType> from, DType to, const TensorLayout& l) { return from == to && l.runs.empty() && l.math == Math::kNone; }

// Calls work(i) for i in [0, count) on several threads; the first Error is thrown again.
template <typename Work>
void spread(int threads, std::int64_t count, Work work) {
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    constexpr std::int64_t kStep = 16;
    for (std::int64_t first; (first = next.fetch_add(kStep)) < count;) {
      try {
        for (std::int64_t i = first; i < std::min(count, first + kStep); ++i) work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

// Writes one planned tensor, some rows at a time.
void write_tensor(const GgufPlanned& p, const TensorLayout& l, DType type, PublishedRows& rows, const GgufExportOptions& options, GgufWriter& out) {
  std::vector<std::pair<const GgufPiece*, std::int64_t>> published;  // (piece, row in it) of each row
  for (const GgufPiece& piece : p.pieces) {
    rows.take(piece);
    for (std::int64_t r = 0; r < piece.count; ++r) published.emplace_back(&piece, r);
  }
  const auto count = static_cast<std::int64_t>(published.size());
  const std::int64_t columns = rows.row_size(p.pieces.front());
  const std::size_t bytes = bytes_of(type, columns);
  const std::int64_t at_once = std::max<std::int64_t>(1, (std::int64_t{16} << 20) / std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes)));
  std::vector<std::byte> buffer(bytes * static_cast<std::size_t>(std::min(count, at_once)));
  for (std::int64_t first = 0; first < count; first += at_once) {
    const std::int64_t now = std::min(at_once, count - first);
    spread(options.threads, now, [&](std::int64_t i) {
      const std::int64_t at = l.rows.empty() ? first + i : l.rows[static_cast<std::size_t>(first + i)];
      const auto& [piece, row] = published[static_cast<std::size_t>(at)];
      std::byte* to = buffer.data() + static_cast<std::size_t>(i) * bytes;
      if (in_place(rows.stored(*piece), type, l)) {
        rows.raw(*piece, row, to);
        return;
      }
      std::vector<float> values(static_cast<std::size_t>(columns)), ordered(values.size());
      rows.read(*piece, row, values.data());
      to_file_row(l, values.data(), ordered.data(), columns);
      try {
        row_from_f32(type, ordered.data(), columns, to);
      } catch (const Error& e) {
        throw Error("tensor {}, row {}: {}", piece->name, row, e.what());
      }
    });
    out.write({buffer.data(), bytes * static_cast<std::size_t>(now)});
  }
}

// False when there was no vocabulary.
bool set_metadata(GgufWriter& out, const std::filesystem::path& in, const Checkpoint& checkpoint, const GgufModel& model, std::int64_t vocab,
                  DType type) {
  bool vocabulary = true;
  const bool folder = std::filesystem::is_directory(in);
  const auto gguf = folder ? gguf_in(in) : in.extension() == ".gguf" ? std::optional(in) : std::nullopt;
  if (gguf && !(folder && std::filesystem::exists(in / "config.json"))) {
    const auto source = Gguf::open_file(*gguf);
    for (const auto& [key, value] : source->metadata().values()) {
      if (!key.starts_with("split.") && key != "general.alignment") out.set(key, value);
    }
  } else {
    set_gguf_config(out, checkpoint.config(), model);
    vocabulary = set_gguf_vocabulary(out, folder ? in : in.parent_path(), checkpoint.config(), vocab);
  }
  out.set("general.file_type", file_type(type));
  out.set("general.quantization_version", std::int64_t{2});
  return vocabulary;
}

}  // namespace

DType export_type(const GgufTensorName& n, const Shape& shape, const GgufExportOptions& options) {
  const bool router = n.file.find("ffn_gate_inp") != std::string::npos;
  const bool gates = n.layout == GgufLayout::kHeadRows || n.file.find("ssm_ba.") != std::string::npos;  // two rows a head
  const bool column = n.layout == GgufLayout::kColumn || n.layout == GgufLayout::kDecayColumn || n.layout == GgufLayout::kGroups;
  const bool small = n.file.ends_with(".bias") || n.layout == GgufLayout::kConv || router || gates || column;
  if (shape.rank() < 2 || small) return DType::kF32;
  DType type = options.type;
  if (n.file == "token_embd.weight" || n.file == "output.weight") {
    constexpr double kLeast = 6;  // bits: coarser tables are heard in every token
    const DType fine = shape[-1] % info(DType::kQ6_K).block_elements == 0 ? DType::kQ6_K : DType::kQ8_0;
    type = options.embedding.value_or(bits(type) < kLeast ? fine : type);
  }
  return fitting_type(type, shape[-1]);
}

GgufExportSummary export_gguf(const std::filesystem::path& in, const std::filesystem::path& path, const GgufExportOptions& options) {
  Checkpoint checkpoint = Checkpoint::open(in);
  const ModelConfig& config = checkpoint.config();
  const GgufModel model(gguf_arch_of(config).arch, config.text());
  if (config.text().get_bool("tie_word_embeddings", false)) checkpoint.skip("lm_head.weight");
  const std::vector<GgufPlanned> plan = plan_gguf(checkpoint, model, config.text());
  if (plan.empty() || plan.front().name.file != "token_embd.weight") throw Error("{}: tensor embed_tokens.weight is missing", in.string());

  GgufWriter out(path);
  GgufExportSummary summary;
  summary.vocabulary = set_metadata(out, in, checkpoint, model, plan.front().shape[0], options.type);
  const std::vector<float> factors = gguf_rope_factors(config, gguf_global_head_dim(config, model));
  if (!factors.empty()) out.declare(kGgufRopeFactors, DType::kF32, {static_cast<std::int64_t>(factors.size())});
  std::vector<DType> types;
  for (const GgufPlanned& p : plan) {
    DType& type = types.emplace_back(export_type(p.name, p.shape, options));
    const bool packed = p.pieces.front().view == GgufPiece::View::kMxfp4;
    if (packed && bits(type) >= bits(DType::kMXFP4)) type = DType::kMXFP4;  // more bits would say no more
    out.declare(p.name.file, type, p.shape);
    summary.bytes_after += bytes_of(type, p.shape.elements());
    const bool fits = p.shape[-1] % info(options.type).block_elements == 0;
    if (!fits && type != DType::kF32) ++summary.coarser;
  }
  summary.tensors = plan.size();
  summary.bytes_before = checkpoint.total_bytes();

  PublishedRows rows(checkpoint);
  if (!factors.empty()) out.write(std::as_bytes(std::span(factors)));
  std::size_t done = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    write_tensor(plan[i], layout_of(plan[i].name.layout, model), types[i], rows, options, out);
    done += bytes_of(types[i], plan[i].shape.elements());
    if (options.progress) options.progress(done, summary.bytes_after);
  }
  checkpoint.finish();
  out.close();
  return summary;
}

}  // namespace strata
