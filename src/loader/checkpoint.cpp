#include "loader/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "loader/gguf.h"
#include "loader/mapped_file.h"
#include "loader/nvfp4.h"
#include "loader/safetensors.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// First parts of normal names that belong to other senses than text.
constexpr std::array kOtherSenses = {
    "visual",
    "vision_tower",
    "vision_model",
    "vision_encoder",
    "vision_embed_tokens",
    "vision_adapter",
    "vision_language_adapter",
    "multi_modal_projector",
    "mm_projector",
    "patch_merger",
    "image_newline",
    "embed_vision",
    "audio_tower",
    "embed_audio",
};

bool is_other_sense(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('.'));
  return std::find(kOtherSenses.begin(), kOtherSenses.end(), first) != kOtherSenses.end();
}

// Tables of cosines that old checkpoints saved and every engine computes.
bool is_rotary_table(std::string_view name) { return name.ends_with("rotary_emb.inv_freq"); }

std::unique_ptr<const TensorSource> open_source(const fs::path& path) {
  if (fs::is_directory(path)) {
    const auto single = path / "model.safetensors", index = path / "model.safetensors.index.json";
    if (fs::exists(single)) return Safetensors::open_file(single);
    if (fs::exists(index)) return Safetensors::open_index(index);
    if (const auto gguf = gguf_in(path)) return Gguf::open_file(*gguf);
    throw Error("{}: holds neither model.safetensors nor model.safetensors.index.json nor a .gguf file", path.string());
  }
  if (!fs::exists(path)) throw Error("{}: no such file or folder", path.string());
  if (path.extension() == ".safetensors") return Safetensors::open_file(path);
  if (path.filename().string().ends_with(".safetensors.index.json")) return Safetensors::open_index(path);
  if (path.extension() == ".gguf") return Gguf::open_file(path);
  throw Error("{}: not a checkpoint: expected a folder, a .safetensors or .gguf file or a .safetensors.index.json",
              path.string());
}

std::optional<ModelConfig> config_beside(const fs::path& path) {
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  if (!fs::exists(folder / "config.json")) return std::nullopt;
  return ModelConfig::load(folder);
}

std::vector<std::int64_t> extents_of(const Shape& shape) {
  std::vector<std::int64_t> extents(static_cast<std::size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) extents[static_cast<std::size_t>(i)] = shape[i];
  return extents;
}

std::string megabytes(std::size_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

}  // namespace

std::string normal_name(std::string_view name) {
  for (const std::string_view wrapper : {"model.language_model.", "language_model.model.", "model."}) {
    if (name.starts_with(wrapper)) return std::string(name.substr(wrapper.size()));
  }
  if (name.starts_with("language_model.lm_head."))
    name.remove_prefix(std::string_view("language_model.").size());
  return std::string(name);
}

Checkpoint Checkpoint::open(const fs::path& path, Progress progress) {
  auto source = open_source(path);
  auto config = source->config();
  if (!config) config = config_beside(path);
  if (const auto form = config ? nvfp4_form(config->text()) : std::nullopt) source = with_nvfp4(std::move(source), *form);
  return {std::move(source), std::move(config), path, std::move(progress)};
}

Checkpoint::Checkpoint(std::unique_ptr<const TensorSource> source, std::optional<ModelConfig> config,
                       fs::path path, Progress progress)
    : path_(std::move(path)),
      storage_(std::make_shared<Storage>()),
      config_(std::move(config)),
      progress_(std::move(progress)) {
  storage_->source = std::move(source);
  for (const SourceTensor& t : storage_->source->tensors()) {
    const auto [it, is_new] = tensors_.emplace(normal_name(t.name), Entry{&t});
    if (!is_new) {
      throw Error("{}: tensor {} is there twice: as {} in {} too", t.file, t.name, it->second.tensor->name,
                  it->second.tensor->file);
    }
  }
  set_aside();
  for (const auto& [name, e] : tensors_) total_bytes_ += e.tensor->bytes.size();
}

void Checkpoint::set_aside() {
  std::size_t count = 0, bytes = 0;
  for (auto it = tensors_.begin(); it != tensors_.end();) {
    if (is_other_sense(it->first)) {
      ++count;
      bytes += it->second.tensor->bytes.size();
    } else if (!is_rotary_table(it->first)) {
      ++it;
      continue;
    }
    it = tensors_.erase(it);
  }
  if (count > 0) {
    log::info("{}: {} vision and audio tensors ({}) are skipped: only the text model is loaded",
              path_.string(), count, megabytes(bytes));
  }
}

std::optional<Shape> Checkpoint::shape_of(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return std::nullopt;
  const SourceTensor& t = *it->second.tensor;
  if (t.extents.size() > Shape::kMaxRank) {
    throw Error("{}: tensor {}: shape {} has more than {} extents", t.file, t.name, to_string(t.extents),
                Shape::kMaxRank);
  }
  Shape shape;
  for (const std::int64_t e : t.extents) shape.append(e);
  return shape;
}

std::optional<DType> Checkpoint::dtype_of(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? std::nullopt : std::optional(it->second.tensor->dtype);
}

std::vector<TensorSummary> Checkpoint::list() const {
  std::vector<TensorSummary> all;
  for (const auto& [name, e] : tensors_) {
    all.push_back({name, e.tensor->dtype, e.tensor->extents, e.tensor->bytes.size()});
  }
  return all;
}

Checkpoint::Entry& Checkpoint::entry(std::string_view name, const Shape& expected, bool taken) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw Error("{}: tensor {} {} is missing", path_.string(), name, expected.to_string());
  }
  Entry& e = it->second;
  const SourceTensor& t = *e.tensor;
  if (e.consumed && !taken) throw Error("{}: tensor {} is used twice", t.file, t.name);
  if (!e.consumed && taken) throw Error("{}: tensor {} is copied before it is used", t.file, t.name);
  if (t.extents != extents_of(expected)) {
    throw Error("{}: tensor {}: shape {}, expected {}", t.file, t.name, to_string(t.extents),
                expected.to_string());
  }
  return e;
}

Tensor Checkpoint::take(std::string_view name, const Shape& expected) {
  Entry& e = entry(name, expected, false);
  e.consumed = true;
  const SourceTensor& t = *e.tensor;
  if (progress_) {
    constexpr std::size_t kStep = 8U << 20;  // bytes between two reports: 4 ms of a fast disk
    for (std::size_t at = 0; at < t.bytes.size(); at += kStep) {
      const auto piece = t.bytes.subspan(at, std::min(kStep, t.bytes.size() - at));
      touch_pages(piece);
      count(piece.size());
    }
  }
  return view(t, expected);
}

Tensor Checkpoint::again(std::string_view name, const Shape& expected) {
  return view(*entry(name, expected, true).tensor, expected);
}

Tensor Checkpoint::view(const SourceTensor& t, const Shape& expected) {
  if (t.convert) {
    const Buffer& made = storage_->copies.emplace_back(Buffer::host(bytes_of(t.dtype, expected.elements())));
    t.convert(t, made.data());
    return {made.data(), t.dtype, expected};
  }
  auto* data = const_cast<std::byte*>(t.bytes.data());
  // Block types are read byte-wise; plain ones need the alignment of their element.
  const int unit = info(t.dtype).block_elements == 1 ? info(t.dtype).block_bytes : 1;
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::size_t>(unit) != 0 || data == nullptr) {
    const Buffer& copy = storage_->copies.emplace_back(Buffer::host(t.bytes.size()));
    if (!t.bytes.empty()) std::memcpy(copy.data(), data, t.bytes.size());
    data = copy.data();
  }
  return {data, t.dtype, expected};
}

std::optional<Tensor> Checkpoint::take_if(std::string_view name, const Shape& expected) {
  return has(name) ? std::optional(take(name, expected)) : std::nullopt;
}

void Checkpoint::skip(std::string_view prefix) {
  std::size_t number = 0, bytes = 0;
  for (auto it = tensors_.lower_bound(prefix); it != tensors_.end() && it->first.starts_with(prefix); ++it) {
    if (it->second.consumed) continue;
    it->second.consumed = true;
    ++number;
    bytes += it->second.tensor->bytes.size();
  }
  if (number == 0) return;
  count(bytes);
  log::info("{}: {} tensors {}* ({}) are not used", path_.string(), number, prefix, megabytes(bytes));
}

void Checkpoint::count(std::size_t bytes) {
  done_bytes_ += bytes;
  if (progress_) progress_(done_bytes_, total_bytes_);
}

void Checkpoint::finish() const {
  constexpr std::size_t kListed = 10;
  std::size_t left = 0;
  std::string list;
  for (const auto& [name, e] : tensors_) {
    if (e.consumed) continue;
    if (left++ < kListed)
      list += fmt::format("\n  {} {} in {}", e.tensor->name, to_string(e.tensor->extents), e.tensor->file);
  }
  if (left == 0) return;
  throw Error("{}: {} tensors are left over that this model does not use:{}{}", path_.string(), left, list,
              left > kListed ? "\n  ..." : "");
}

const ModelConfig& Checkpoint::config() const {
  if (!config_) throw Error("{}: no config.json there", path_.string());
  return *config_;
}

}  // namespace strata
