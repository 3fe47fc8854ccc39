// GgufKeys: what a GGUF file says of one architecture, under that architecture's prefix.
#pragma once

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "loader/gguf_names.h"
#include "loader/gguf_reader.h"

namespace strata {

// A view of a file's content; lives while the configuration is put together. Errors name the file and the key.
class GgufKeys {
 public:
  GgufKeys(const GgufContent& file, const GgufArchName& arch) : file_(file), arch_(arch) {}

  GgufArch arch() const { return arch_.arch; }
  const GgufArchName& names() const { return arch_; }
  const std::string& origin() const { return file_.metadata.origin(); }
  const GgufMetadata& metadata() const { return file_.metadata; }
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_.file, name); }

  bool has(std::string_view name) const { return file_.metadata.has(key(name)); }
  std::int64_t get_int(std::string_view name) const { return file_.metadata.get_common_int(key(name)); }
  std::int64_t get_int(std::string_view name, std::int64_t otherwise) const { return has(name) ? get_int(name) : otherwise; }
  double get_float(std::string_view name) const { return file_.metadata.get_float(key(name)); }
  double get_float(std::string_view name, double otherwise) const { return has(name) ? get_float(name) : otherwise; }
  bool get_bool(std::string_view name, bool otherwise) const { return has(name) ? file_.metadata.get_bool(key(name)) : otherwise; }
  bool is_list(std::string_view name) const {
    return has(name) && std::get_if<std::int64_t>(file_.metadata.find(key(name))) == nullptr;
  }
  // A number for each of `layers` layers (more are cut off): a list, or one for all.
  GgufInts get_each(std::string_view name, std::int64_t layers) const;
  // The number of those layers that have one; lists hold 0 for those that do not. 0 when there is none.
  std::int64_t get_nonzero(std::string_view name) const;

  const std::vector<SourceTensor>& tensors() const { return file_.tensors; }
  const SourceTensor* find(std::string_view name) const;             // nullptr when it is not there
  const SourceTensor* find_ending(std::string_view end) const;       // the first whose name ends so

 private:
  const GgufContent& file_;
  const GgufArchName& arch_;
};

// The part of the configuration that is the architecture's own, into `out` (config.json's keys), where sizes and the usual
// rotation are already.
void publish_gguf_family(const GgufKeys& keys, nlohmann::json& out);

}  // namespace strata
