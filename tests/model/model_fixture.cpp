#include "model_fixture.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace strata::test {

std::vector<std::string> Reference::names() const {
  std::vector<std::string> out;
  for (const SourceTensor& t : file_->tensors()) out.push_back(t.name);
  return out;
}

const SourceTensor* Reference::find(const std::string& name) const {
  for (const SourceTensor& t : file_->tensors()) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

const SourceTensor& Reference::at(const std::string& name) const {
  const SourceTensor* t = find(name);
  if (t == nullptr) throw Error("no {} in the reference", name);
  return *t;
}

Ints Reference::ints(const std::string& name) const {
  const SourceTensor& t = at(name);
  Ints out(t.bytes.size() / sizeof(std::int32_t));
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

std::vector<float> Reference::floats(const std::string& name) const {
  const SourceTensor& t = at(name);
  std::vector<float> out(t.bytes.size() / sizeof(float));
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

Rows Reference::rows(const std::string& name) const {
  const std::vector<float> all = floats(name);
  const auto n = static_cast<std::size_t>(at(name).extents.back());
  Rows out;
  for (std::size_t i = 0; i < all.size(); i += n) {
    out.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i),
                     all.begin() + static_cast<std::ptrdiff_t>(i + n));
  }
  return out;
}

Tensor Pools::make(const Shape& shape) {
  Buffer& buffer =
      buffers_.emplace_back(Buffer::host(static_cast<std::size_t>(shape.elements()) * sizeof(float)));
  const Tensor t = buffer.view(DType::kF32, shape);
  std::fill_n(t.data<float>(), t.elements(), std::numeric_limits<float>::quiet_NaN());
  return t;
}

Pools::Pools(const Model& model, int pages, int slots, int tapes) {
  for (const StateSpec& spec : model.states()) {
    if (const auto* kv = std::get_if<PagedKv>(&spec)) {
      KvView view{.k = make({pages, kPageTokens, kv->heads, kv->head_dim}), .v = {}, .index = {}};
      const int values = kv->value_dim < 0 ? kv->head_dim : kv->value_dim;
      if (values > 0) view.v = make({pages, kPageTokens, kv->heads, values});
      if (kv->index_dim > 0) view.index = make({pages, kPageTokens, kv->index_dim});
      memory_.emplace_back(view);
    } else if (const auto* recurrent = std::get_if<Recurrent>(&spec)) {
      StateView view;
      for (const Shape& shape : recurrent->tensors) {
        Shape all{slots};
        for (int i = 0; i < shape.rank(); ++i) all.append(shape[i]);
        view.tensors.push_back(make(all));
      }
      for (const int n : recurrent->tape) view.tapes.push_back(make({tapes, kTapeRows, n}));
      memory_.emplace_back(view);
    } else {
      memory_.emplace_back(Stateless{});
    }
  }
}

std::vector<std::byte> Pools::slot_bytes(int slot) const {
  std::vector<std::byte> out;
  for (const Memory& memory : memory_) {
    const auto* state = std::get_if<StateView>(&memory);
    if (state == nullptr) continue;
    for (const Tensor& t : state->tensors) {
      const Tensor row = t.rows_from(slot, 1);
      out.insert(out.end(), row.raw(), row.raw() + row.bytes());
    }
  }
  return out;
}

Tensor PackedBatch::keep(Ints values, const Shape& shape) {
  values.reserve(1);
  Ints& kept = *numbers_.emplace_back(std::make_unique<Ints>(std::move(values)));
  return {kept.data(), DType::kI32, shape};
}

PackedBatch::PackedBatch(std::span<const Piece> pieces, const LoraTables* lora) {
  Ints adapters, tokens, positions, sequence, first{0}, start, kv_slots, state_in, saves, tape, replay,
      state_out;
  std::size_t max_pages = 1;
  bool lazy = false;
  BatchShape& shape = batch_.shape;
  for (const Piece& p : pieces) {
    max_pages = std::max(max_pages, p.pages.size());
    lazy = lazy || p.tape >= 0;
  }
  Ints table;
  for (std::size_t s = 0; s < pieces.size(); ++s) {
    const Piece& p = pieces[s];
    const auto base = static_cast<std::int32_t>(tokens.size());
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
      const int index = p.start + static_cast<int>(i);
      tokens.push_back(p.tokens[i]);
      adapters.push_back(p.adapter);
      positions.push_back(index);
      sequence.push_back(static_cast<std::int32_t>(s));
      kv_slots.push_back(p.pages.empty()
                             ? -1
                             : p.pages.at(static_cast<std::size_t>(index / kPageTokens)) * kPageTokens +
                                   index % kPageTokens);
    }
    for (const auto& [row, slot] : p.saves) {
      saves.push_back(base + row);
      saves.push_back(slot);
    }
    first.push_back(static_cast<std::int32_t>(tokens.size()));
    start.push_back(p.start);
    state_in.push_back(p.state_in);
    tape.push_back(p.tape);
    replay.push_back(p.replay);
    state_out.push_back(p.state_out);
    for (std::size_t i = 0; i < max_pages; ++i) table.push_back(i < p.pages.size() ? p.pages[i] : 0);
    const auto rows = static_cast<int>(p.tokens.size());
    shape.longest_run = std::max(shape.longest_run, rows);
    shape.longest_context = std::max(shape.longest_context, p.start + rows);
  }
  const auto T = static_cast<std::int64_t>(tokens.size()), S = static_cast<std::int64_t>(pieces.size());
  shape.rows = shape.logit_rows = static_cast<int>(T);
  shape.sequences = static_cast<int>(S);
  shape.saves = static_cast<int>(saves.size() / 2);
  batch_.logit_rows = keep(iota(0, shape.rows), {T});
  batch_.tokens = keep(std::move(tokens), {T});
  batch_.positions = keep(std::move(positions), {T});
  batch_.sequence = keep(std::move(sequence), {T});
  batch_.first = keep(std::move(first), {S + 1});
  batch_.start = keep(std::move(start), {S});
  batch_.page_table = keep(std::move(table), {S, static_cast<std::int64_t>(max_pages)});
  batch_.kv_slots = keep(std::move(kv_slots), {T});
  batch_.state_in = keep(std::move(state_in), {S});
  batch_.saves = keep(std::move(saves), {shape.saves, 2});
  if (std::any_of(adapters.begin(), adapters.end(), [](int a) { return a >= 0; })) {
    STRATA_CHECK(lora != nullptr, "a piece has an adapter and there are no tables");
    shape.adapters = true;
    batch_.logit_adapters = keep(adapters, {T});
    batch_.adapters = keep(std::move(adapters), {T});
    batch_.lora = lora;
  }
  if (!lazy) return;
  batch_.tape = keep(std::move(tape), {S});
  batch_.replay = keep(std::move(replay), {S});
  batch_.state_out = keep(std::move(state_out), {S});
}

namespace {

Rows rows_of(const Tensor& t) {
  Rows out;
  for (std::int64_t r = 0; r < t.rows(); ++r)
    out.emplace_back(t.row<float>(r), t.row<float>(r) + t.row_size());
  return out;
}

Model load(const std::filesystem::path& folder, Ops& ops, const LoadOptions& options) {
  Checkpoint checkpoint = Checkpoint::open(folder);
  return load_model(checkpoint, ops, options);
}

}  // namespace

Tensor RoundedTablesOps::load_vector(const Tensor& host, float add) {
  if (host.dtype() != DType::kF32) return CpuOps::load_vector(host, add);
  std::vector<float> rounded(host.data<float>(), host.data<float>() + host.elements());
  for (float& x : rounded) x = to_float(to_bfloat16(x));
  return CpuOps::load_vector(Tensor(rounded.data(), DType::kF32, host.shape()), add);
}

LoadedModel::LoadedModel(const std::filesystem::path& folder, const CpuOptions& options,
                         const LoadOptions& load_options)
    : LoadedModel(folder,
                  folder.parent_path() == golden_folder() ? std::make_unique<RoundedTablesOps>(options)
                                                          : std::make_unique<CpuOps>(options),
                  load_options) {}

LoadedModel::LoadedModel(const std::filesystem::path& folder, std::unique_ptr<CpuOps> on,
                         const LoadOptions& load_options)
    : backend(std::move(on)), ops(*backend), model(load(folder, ops, load_options)) {}

StepRows LoadedModel::run(const Model& which, const Pools& pools, std::span<const Piece> pieces,
                          const Rows& hidden, const std::vector<std::size_t>& watch) {
  const PackedBatch packed(pieces, lora);
  const Scratch scratch(ops.arena());
  Tensor h;
  if (!hidden.empty()) {
    h = ops.make({static_cast<std::int64_t>(hidden.size()), static_cast<std::int64_t>(hidden[0].size())});
    for (std::size_t i = 0; i < hidden.size(); ++i)
      std::copy(hidden[i].begin(), hidden[i].end(), h.row<float>(static_cast<std::int64_t>(i)));
  }
  StepRows out;
  const auto observe = [&](std::size_t i, const Tensor& x) {
    if (std::find(watch.begin(), watch.end(), i) != watch.end()) out.stream[i] = rows_of(x);
  };
  const ModelOutput result =
      which.forward(packed.batch(), pools.memory(), ops, h, watch.empty() ? Model::Observer{} : observe);
  out.logits = rows_of(result.logits);
  out.hidden = rows_of(result.hidden);
  return out;
}

std::filesystem::path golden_folder() { return std::filesystem::path(STRATA_SOURCE_DIR) / "tests/golden"; }
std::filesystem::path tiny_hybrid_folder() {
  return std::filesystem::path(STRATA_SOURCE_DIR) / "models/tiny-hybrid";
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
    if (!entry.is_directory()) continue;
    const ModelConfig config = ModelConfig::load(entry.path());
    const bool known = std::any_of(families().begin(), families().end(), [&](const Family& f) {
      return std::find(f.architectures.begin(), f.architectures.end(), config.architecture()) !=
             f.architectures.end();
    });
    if (known) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Ints iota(int begin, int count) {
  Ints out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

}  // namespace strata::test
