#include "loader/gguf.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "loader/gguf_config.h"
#include "loader/gguf_layout.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// "name-00002-of-00003.gguf" taken apart.
struct PartName {
  std::string stem;
  int number, count;
};

std::optional<PartName> part_name(const std::string& file) {
  constexpr std::string_view kEnd = ".gguf", kPattern = "-00000-of-00000";
  if (!file.ends_with(kEnd) || file.size() <= kPattern.size() + kEnd.size()) return std::nullopt;
  const std::size_t at = file.size() - kEnd.size() - kPattern.size();
  for (std::size_t i = 0; i < kPattern.size(); ++i) {
    const char c = file[at + i];
    if (kPattern[i] == '0' ? c < '0' || c > '9' : c != kPattern[i]) return std::nullopt;
  }
  return PartName{file.substr(0, at), std::stoi(file.substr(at + 1, 5)), std::stoi(file.substr(at + 10, 5))};
}

// "blk.61.x" in a model of 61 layers.
bool is_behind_the_last(std::string_view name, std::int64_t layers) {
  if (!name.starts_with("blk.")) return false;
  const std::string number(name.substr(4, name.find('.', 4) - 4));
  if (number.empty() || number.size() > 6 || number.find_first_not_of("0123456789") != std::string::npos) return false;
  return std::stoll(number) >= layers;
}

std::string part_file(const PartName& p, int number) { return fmt::format("{}-{:05}-of-{:05}.gguf", p.stem, number, p.count); }

}  // namespace

std::vector<fs::path> gguf_parts(const fs::path& file) {
  const auto part = part_name(file.filename().string());
  if (!part) return {file};
  if (part->number < 1 || part->number > part->count) throw Error("{}: part {} of {}", file.string(), part->number, part->count);
  std::vector<fs::path> parts;
  for (int i = 1; i <= part->count; ++i) {
    parts.push_back(file.parent_path() / part_file(*part, i));
    if (!fs::exists(parts.back())) throw Error("{}: part missing, {} is part {} of {}", parts.back().string(), file.string(), part->number, part->count);
  }
  return parts;
}

std::optional<fs::path> gguf_in(const fs::path& folder) {
  std::set<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto part = part_name(entry.path().filename().string());
    models.insert(part ? folder / part_file(*part, 1) : entry.path());
  }
  if (models.empty()) return std::nullopt;
  if (models.size() > 1) {
    throw Error("{}: holds {} GGUF files, for example {} and {}: name one", folder.string(), models.size(),
                models.begin()->filename().string(), std::next(models.begin())->filename().string());
  }
  return *models.begin();
}

ModelConfig publish_gguf(GgufContent& content) {
  const ModelConfig config = config_of_gguf(content);
  const std::string arch = content.metadata.get_text("general.architecture");
  const auto known = std::find_if(kGgufArchs.begin(), kGgufArchs.end(), [&](const GgufArchName& a) { return a.file == arch; });
  const GgufModel model(known->arch, config.text());
  const bool drafts = content.metadata.get_int(arch + ".nextn_predict_layers", 0) > 0;
  const std::vector<GgufTensorName> names = gguf_names(model);
  std::map<std::string_view, const GgufTensorName*> by_file;
  for (const GgufTensorName& n : names) by_file.emplace(n.file, &n);
  std::erase_if(content.tensors, [](const SourceTensor& t) { return t.name == kGgufRopeFactors; });  // the configuration has them
  for (SourceTensor& t : content.tensors) {
    if (const auto it = by_file.find(t.name); it != by_file.end()) {
      to_published(t, it->second->published, layout_of(it->second->layout, model));
    } else if (drafts && is_behind_the_last(t.name, model.layers + model.mtp_layers)) {
      t.name = "mtp." + t.name;  // drafting blocks that no published name is known of: families may leave them out
    }
  }
  return config;
}

std::unique_ptr<Gguf> Gguf::open_file(const fs::path& file) { return std::make_unique<Gguf>(gguf_parts(file)); }

Gguf::Gguf(const std::vector<fs::path>& parts) : content_{GgufMetadata(parts.front().string()), {}} {
  files_.reserve(parts.size());
  const auto count = static_cast<std::int64_t>(parts.size());
  std::set<std::string, std::less<>> names;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string path = parts[static_cast<std::size_t>(i)].string();
    GgufContent part = parse_gguf(files_.emplace_back(path).bytes(), path);
    if (const std::int64_t said = part.metadata.get_int("split.count", 1); said != count && (count > 1 || said > 1)) {
      throw Error("{}: is of a model in {} parts, {} are there (a part keeps its name, -00001-of-{:05}.gguf)", path, said, count, said);
    }
    if (count > 1 && part.metadata.get_int("split.no") != i) {
      throw Error("{}: split.no is {}, expected {}", path, part.metadata.get_int("split.no"), i);
    }
    for (const SourceTensor& t : part.tensors) {
      if (!names.insert(t.name).second) throw Error("{}: tensor {} is in an earlier part too", path, t.name);
    }
    if (i == 0) {
      content_ = std::move(part);
    } else {
      content_.tensors.insert(content_.tensors.end(), std::make_move_iterator(part.tensors.begin()), std::make_move_iterator(part.tensors.end()));
    }
  }
  const auto found = static_cast<std::int64_t>(content_.tensors.size());
  if (const std::int64_t said = content_.metadata.get_int("split.tensors.count", found); said != found) {
    throw Error("{}: the parts hold {} tensors of {}", parts.front().string(), found, said);
  }
  config_ = publish_gguf(content_);
}

}  // namespace strata
