#include "model/lora_bank.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"

namespace strata {
namespace {

// Rows of a published matrix, one by one, in the order they lie in the fused one.
std::vector<std::int64_t> rows_of(const LinearPart& part) {
  std::vector<std::int64_t> rows;
  if (part.rows.empty()) {
    for (std::int64_t r = 0; r < part.outputs; ++r) rows.push_back(r);
  }
  for (const RowRange& range : part.rows) {
    for (std::int64_t r = 0; r < range.count; ++r) rows.push_back(range.begin + r);
  }
  return rows;
}

// "layers.3.mlp.experts.7.up_proj" -> "layers.3.mlp.experts.*.up_proj" and 7: the rightmost number counts.
std::optional<std::pair<std::string, int>> split_expert(const std::string& name) {
  for (std::size_t end = name.rfind('.'); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    const std::size_t dot = name.rfind('.', end - 1), begin = dot == std::string::npos ? 0 : dot + 1;
    int expert = 0;
    const auto [stop, error] = std::from_chars(name.data() + begin, name.data() + end, expert);
    if (error == std::errc() && stop == name.data() + end)
      return std::pair(name.substr(0, begin) + "*" + name.substr(end), expert);
  }
  return {};
}

// The target with A and B changed over: W's inputs and outputs the other way round.
LoraTarget turned(const LoraTarget& t) {
  LoraTarget out = t;
  std::swap(out.inputs, out.outputs);
  out.a.swap(out.b);  // the same sizes; now transposed within each expert
  const std::int64_t r = t.rank;
  for (std::int64_t e = 0; e < std::max(t.experts, 1); ++e) {
    for (std::int64_t line = 0; line < r; ++line) {
      for (std::int64_t k = 0; k < t.outputs; ++k) {
        out.a[static_cast<std::size_t>((e * r + line) * t.outputs + k)] =
            t.b[static_cast<std::size_t>((e * t.outputs + k) * r + line)];
      }
      for (std::int64_t n = 0; n < t.inputs; ++n) {
        out.b[static_cast<std::size_t>((e * t.inputs + n) * r + line)] =
            t.a[static_cast<std::size_t>((e * r + line) * t.inputs + n)];
      }
    }
  }
  return out;
}

Weight load(Ops& ops, std::vector<float>& values, std::int64_t experts, std::int64_t outputs,
            std::int64_t inputs) {
  HostMatrix matrix(
      Tensor(values.data(), DType::kF32, {std::max<std::int64_t>(experts, 1) * outputs, inputs}));
  matrix.experts = static_cast<int>(experts);
  return ops.load(matrix, DType::kF32);
}

}  // namespace

struct LoraBank::Site {
  const void* matrix = nullptr;          // the Linear, ExpertLinear or embedding
  int experts = 0;                       // matrices (or heads) there; 0 = one
  std::int64_t matrix_inputs = 0;        // of each
  std::int64_t inputs = 0, outputs = 0;  // of the published matrix
  std::vector<std::int64_t> rows;        // which of its rows lie there ...
  std::int64_t output = 0;               // ... from this output on
  std::int64_t head_stride = 0;
  bool transposed = false;
  bool embedding = false;
  float scale = 1;
};

struct LoraBank::Block {
  std::vector<const Site*> sites;                          // of one matrix; they share the lines of A
  std::vector<std::pair<int, const LoraTarget*>> targets;  // (expert, or -1 = every one)
  std::int64_t rank = 0;
};

struct LoraBank::Slot {
  std::map<const void*, LoraPair> pairs;
  std::size_t bytes = 0;
};

LoraBank::LoraBank(const Model& model, Ops& ops, const LoraLimits& limits) : ops_(ops), limits_(limits) {
  if (limits.adapters < 1) throw Error("LoRA: {} adapter slots", limits.adapters);
  if (limits.rank < 1 || limits.rank > kMaxLoraRank)
    throw Error("LoRA: a rank limit of {}, it is 1 to {}", limits.rank, kMaxLoraRank);
  held_.resize(static_cast<std::size_t>(limits.adapters));

  const auto add = [&](const auto& matrix, int experts, const std::string& stack) {
    std::int64_t output = 0, row = 0;
    for (const LinearPart& part : matrix.parts()) {
      Site site{.matrix = &matrix,
                .experts = experts,
                .matrix_inputs = matrix.inputs(),
                .inputs = matrix.inputs(),
                .outputs = part.outputs,
                .rows = rows_of(part),
                .output = output,
                .head_stride = part.head_stride,
                .transposed = part.transposed};
      if (part.transposed) site.inputs = matrix.outputs();
      output += static_cast<std::int64_t>(site.rows.size());
      sites_[part.name].push_back(site);
      if (stack.empty()) continue;
      site.outputs = matrix.outputs();  // the parts' rows one after the other
      for (std::int64_t& r : site.rows) r += row;
      row += part.outputs;
      sites_[stack].push_back(std::move(site));
    }
  };
  const Linears all = model.linears();
  for (const Linear* m : all.plain) add(*m, 0, "");
  for (const ExpertLinear* m : all.experts) add(*m, static_cast<int>(m->weight().experts()), m->stack());
  const Weight& table = *model.embedding;
  sites_[model.embedding_name].push_back({.matrix = &table,
                                          .inputs = table.outputs(),
                                          .outputs = table.inputs(),
                                          .rows = rows_of({.name = "", .outputs = table.inputs()}),
                                          .embedding = true,
                                          .scale = model.embedding_scale});
  std::map<const void*, std::set<std::string>> names;  // each may have lines of its own
  for (const auto& [name, sites] : sites_) {
    for (const Site& site : sites) names[site.matrix].insert(name);
  }
  for (const auto& [matrix, of] : names) {
    LoraTable& tab =
        tables_.add(matrix, limits.adapters, limits.rank * static_cast<int>(of.size()), matrix == &table);
    for (int slot = 0; slot < limits.adapters; ++slot) ops_.set_lora(tab, slot, nullptr);
  }
}

LoraBank::~LoraBank() = default;

std::vector<std::string> LoraBank::names() const {
  std::vector<std::string> out;
  for (const auto& [name, sites] : sites_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

std::size_t LoraBank::bytes(int slot) const { return held_.at(static_cast<std::size_t>(slot)).bytes; }

std::vector<LoraBank::Block> LoraBank::place(const LoraAdapter& adapter) const {
  std::map<std::pair<const void*, std::string>, Block> blocks;  // by matrix and published name
  for (const LoraTarget& target : adapter.targets) {
    const auto refuse = [&](const std::string& why) {
      throw Error("{}: {}: {}", adapter.origin, target.name, why);
    };
    if (target.rank > limits_.rank)
      refuse(fmt::format("its rank is {}, at most {} is allowed", target.rank, limits_.rank));
    int expert = -1;
    auto found = sites_.find(target.name);
    if (found == sites_.end()) {
      if (const auto split = split_expert(target.name)) {
        found = sites_.find(split->first);
        expert = split->second;
      }
    }
    if (found == sites_.end()) refuse("the model has no matrix of this name that an adapter can add to");
    for (const Site& site : found->second) {
      const int stacked = site.head_stride > 0 || expert >= 0 ? 0 : site.experts;
      if (std::max(target.experts, 1) != std::max(stacked, 1))
        refuse(fmt::format("{} experts, the model has {}", target.experts, stacked));
      if (expert >= std::max(site.experts, 0)) refuse(fmt::format("expert {} of {}", expert, site.experts));
      if (target.embedding != site.embedding)
        refuse(site.embedding ? "an embedding takes lora_embedding_A and lora_embedding_B"
                              : "this is no embedding");
      const bool straight = target.inputs == site.inputs && target.outputs == site.outputs,
                 around = target.inputs == site.outputs && target.outputs == site.inputs;
      if (!straight && !(around && target.either_way)) {
        refuse(fmt::format("A and B are for {} inputs and {} outputs, the matrix has {} and {}",
                           target.inputs, target.outputs, site.inputs, site.outputs));
      }
      if (straight && around && target.either_way)
        refuse("A and B fit either way round, and only PEFT from 0.19 on (peft_version) says which is meant");
      Block& block = blocks[{site.matrix, found->first}];
      if (std::find(block.sites.begin(), block.sites.end(), &site) == block.sites.end())
        block.sites.push_back(&site);
      const std::pair entry(expert, &target);
      if (std::find(block.targets.begin(), block.targets.end(), entry) == block.targets.end())
        block.targets.push_back(entry);
      block.rank = std::max<std::int64_t>(block.rank, target.rank);
    }
  }
  std::vector<Block> out;  // a matrix's blocks side by side
  for (auto& [key, block] : blocks) out.push_back(std::move(block));
  return out;
}

// `blocks` are those of one matrix.
LoraPair LoraBank::pack(const std::vector<Block>& blocks) const {
  const Site& any = *blocks[0].sites[0];
  std::int64_t lines = 0;
  for (const Block& b : blocks) lines += b.rank;
  const std::int64_t E = std::max(any.experts, 1), K = any.matrix_inputs;
  LoraPair pair;
  std::vector<float> a(static_cast<std::size_t>(any.embedding ? any.inputs * lines : E * lines * K));
  std::int64_t line = 0;
  for (const Block& block : blocks) {
    std::vector<std::vector<float>> b;  // of each site
    std::vector<std::int64_t> outputs;
    for (const Site* site : block.sites) {
      outputs.push_back(site->transposed ? site->inputs : static_cast<std::int64_t>(site->rows.size()));
      b.emplace_back(static_cast<std::size_t>(E * outputs.back() * block.rank));
    }
    for (const auto& [only, given] : block.targets) {
      const bool turn = given->inputs != any.inputs;
      const LoraTarget other = turn ? turned(*given) : LoraTarget{};
      const LoraTarget& t = turn ? other : *given;
      const std::int64_t r = t.rank;
      for (std::int64_t e = only < 0 ? 0 : only; e < (only < 0 ? E : only + 1); ++e) {
        const float* ta = t.a.data() + (t.experts > 0 ? e * r * t.inputs : 0);
        const float* tb = t.b.data() + (t.experts > 0 ? e * t.outputs * r : 0);
        for (std::size_t s = 0; s < block.sites.size(); ++s) {
          const Site& site = *block.sites[s];
          float* own_a = a.data() + (e * lines + line) * K;
          float* own_b = b[s].data() + e * outputs[s] * block.rank;
          const auto n = static_cast<std::int64_t>(site.rows.size());
          const auto row = [&](std::int64_t i) {
            return tb + (site.rows[static_cast<std::size_t>(i)] + e * site.head_stride) * r;
          };
          for (std::int64_t l = 0; l < r; ++l) {
            if (site.embedding) {
              for (std::int64_t v = 0; v < t.inputs; ++v)
                a[static_cast<std::size_t>(v * lines + line + l)] = ta[l * t.inputs + v];
            } else if (site.transposed) {
              for (std::int64_t k = 0; k < n; ++k) own_a[l * K + k] = row(k)[l];
              for (std::int64_t o = 0; o < t.inputs; ++o) own_b[o * block.rank + l] = ta[l * t.inputs + o];
            } else {
              std::copy_n(ta + l * K, K, own_a + l * K);
            }
            if (!site.transposed) {
              for (std::int64_t o = 0; o < n; ++o) own_b[o * block.rank + l] = row(o)[l] * site.scale;
            }
          }
        }
      }
    }
    for (std::size_t s = 0; s < block.sites.size(); ++s) {
      const Site& site = *block.sites[s];
      pair.parts.push_back({.b = load(ops_, b[s], any.experts, outputs[s], block.rank),
                            .line = line,
                            .output = site.transposed ? 0 : site.output});
    }
    line += block.rank;
  }
  pair.a = any.embedding ? load(ops_, a, 0, any.inputs, lines) : load(ops_, a, any.experts, lines, K);
  return pair;
}

void LoraBank::check(const LoraAdapter& adapter) const { place(adapter); }

void LoraBank::put(int slot, const LoraAdapter& adapter) {
  drop(slot);
  const std::vector<Block> blocks = place(adapter);
  Slot packed;
  for (auto at = blocks.begin(); at != blocks.end();) {
    const void* matrix = at->sites[0]->matrix;
    const auto end =
        std::find_if(at, blocks.end(), [&](const Block& b) { return b.sites[0]->matrix != matrix; });
    LoraPair& pair = packed.pairs[matrix] = pack({at, end});
    packed.bytes += pair.a.storage.bytes();
    for (const LoraPart& part : pair.parts) packed.bytes += part.b.storage.bytes();
    at = end;
  }
  Slot& held = held_[static_cast<std::size_t>(slot)] = std::move(packed);
  for (const auto& [matrix, pair] : held.pairs) ops_.set_lora(tables_.at(matrix), slot, &pair);
}

void LoraBank::drop(int slot) {
  Slot& held = held_.at(static_cast<std::size_t>(slot));
  for (const auto& [matrix, pair] : held.pairs) ops_.set_lora(tables_.at(matrix), slot, nullptr);
  held = {};
}

}  // namespace strata
