#include "loader/nvfp4.h"

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"

namespace strata {
namespace {

constexpr std::int64_t kGroup = 16, kBlockBytes = 9;

// The names of a matrix's parts.
struct Names {
  std::string_view codes, scales, factor;
};
constexpr Names names_of(Nvfp4Form form) {
  if (form == Nvfp4Form::kModelOpt) return {".weight", ".weight_scale", ".weight_scale_2"};
  return {".weight_packed", ".weight_scale", ".weight_global_scale"};
}

bool is_left_out(std::string_view name) {
  constexpr std::array kEnds = {".input_scale", ".input_global_scale", ".k_scale", ".v_scale"};
  for (const std::string_view end : kEnds) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

void check_group(const Json& group) {
  const Json weights = group.get("weights");
  if (!weights.is_object()) throw Error("{}: expected the object weights", group.where());
  const auto check = [&](const char* key, const std::string& wanted) {
    const Json value = weights.get(key);
    if (!value.is_null() && value.dump() != wanted)
      throw Error("{}: {} {} is not supported ({} is, NVFP4)", weights.where(), key, value.dump(), wanted);
  };
  check("num_bits", "4");
  check("type", "\"float\"");
  check("group_size", "16");
  check("symmetric", "true");
}

void check_groups(const Json& quantization) {
  const Json groups = quantization.get("config_groups");
  if (groups.is_null()) return;
  for (const std::string& name : groups.keys()) check_group(groups.at(name));
}

class Nvfp4Source final : public TensorSource {
 public:
  Nvfp4Source(std::unique_ptr<const TensorSource> source, Nvfp4Form form)
      : source_(std::move(source)), form_(form) {
    const Names names = names_of(form);
    for (const SourceTensor& t : source_->tensors()) by_name_[t.name] = &t;
    std::size_t left_out = 0;
    std::set<std::string_view> used;
    for (const SourceTensor& t : source_->tensors()) {
      if (!t.name.ends_with(names.codes) || t.dtype != DType::kU8) continue;
      const std::string base = t.name.substr(0, t.name.size() - names.codes.size());
      const SourceTensor &scales = part(t, base, names.scales), &factor = part(t, base, names.factor);
      add_matrix(base, t, scales, factor);
      for (const SourceTensor* one : {&t, &scales, &factor}) used.insert(one->name);
    }
    for (const SourceTensor& t : source_->tensors()) {
      if (used.contains(t.name)) continue;
      if (is_left_out(t.name)) {
        ++left_out;
      } else {
        tensors_.push_back(t);
      }
    }
    if (left_out > 0)
      log::info(
          "{} scales of activations, keys and values are not used: NVFP4 weights meet activations of higher "
          "precision",
          left_out);
  }

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }

 private:
  const SourceTensor& part(const SourceTensor& codes, const std::string& base, std::string_view name) const {
    const auto found = by_name_.find(base + std::string(name));
    if (found == by_name_.end())
      throw Error("{}: tensor {}: {}{} is missing beside it", codes.file, codes.name, base, name);
    return *found->second;
  }

  void add_matrix(const std::string& base, const SourceTensor& codes, const SourceTensor& scales,
                  const SourceTensor& factor) {
    const auto fail = [](const SourceTensor& t, const std::string& expected) {
      return Error("{}: tensor {}: {} {}, expected {}", t.file, t.name, name(t.dtype), to_string(t.extents),
                   expected);
    };
    if (codes.extents.size() != 2 || codes.extents[1] % (kGroup / 2) != 0)
      throw fail(codes, "bytes [outputs, inputs / 2], inputs a multiple of 16");
    const std::int64_t rows = codes.extents[0], groups = codes.extents[1] / (kGroup / 2);
    if (scales.dtype != DType::kF8E4M3 || scales.extents != std::vector<std::int64_t>{rows, groups})
      throw fail(scales, fmt::format("f8_e4m3 [{}, {}]", rows, groups));
    std::int64_t elements = 1;
    for (const std::int64_t e : factor.extents) elements *= e;
    if (factor.dtype != DType::kF32 || elements != 1) throw fail(factor, "one f32");

    tensors_.push_back({.name = base + ".weight",
                        .file = codes.file,
                        .dtype = DType::kNVFP4,
                        .extents = {rows, groups * kGroup},
                        .bytes = codes.bytes,
                        .convert = [scales = scales.bytes](const SourceTensor& self, std::byte* to) {
                          for (std::size_t i = 0; i < scales.size(); ++i, to += kBlockBytes) {
                            std::memcpy(to, self.bytes.data() + i * (kBlockBytes - 1), kBlockBytes - 1);
                            to[kBlockBytes - 1] = scales[i];
                          }
                        }});
    tensors_.push_back({.name = base + ".weight_scale_2",
                        .file = factor.file,
                        .dtype = DType::kF32,
                        .extents = {1},
                        .bytes = factor.bytes,
                        .convert = [form = form_](const SourceTensor& self, std::byte* to) {
                          float f;
                          std::memcpy(&f, self.bytes.data(), sizeof(f));
                          if (form == Nvfp4Form::kCompressedTensors) f = 1 / f;
                          if (!(f > 0) || f > std::numeric_limits<float>::max())
                            throw Error("{}: the factor of {} is {}", self.file, self.name, f);
                          std::memcpy(to, &f, sizeof(f));
                        }});
  }

  std::unique_ptr<const TensorSource> source_;
  Nvfp4Form form_;
  std::map<std::string, const SourceTensor*> by_name_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace

std::optional<Nvfp4Form> nvfp4_form(const Json& config) {
  const Json q = config.get("quantization_config");
  if (!q.is_object()) return std::nullopt;
  const std::string method = q.get_string("quant_method", "");
  const auto check = [&](const char* key, const char* wanted) {
    const std::string given = q.get_string(key, "");
    if (given != wanted)
      throw Error("{}: quant_method \"{}\" with {} \"{}\" is not supported ({} is)", q.where(), method, key,
                  given, wanted);
    check_groups(q);
  };
  if (method == "modelopt") {
    check("quant_algo", "NVFP4");
    return Nvfp4Form::kModelOpt;
  }
  if (method == "compressed-tensors") {
    check("format", "nvfp4-pack-quantized");
    return Nvfp4Form::kCompressedTensors;
  }
  return std::nullopt;
}

std::unique_ptr<const TensorSource> with_nvfp4(std::unique_ptr<const TensorSource> source, Nvfp4Form form) {
  return std::make_unique<const Nvfp4Source>(std::move(source), form);
}

}  // namespace strata
