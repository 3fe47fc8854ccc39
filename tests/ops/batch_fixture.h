// Batches for op tests: sequences with shuffled page tables, cut into steps in many ways, over host memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ops/batch.h"
#include "tensor/tensor.h"

namespace strata::testing {

// A host tensor with its memory. Copies are deep.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(const Shape& shape, DType dtype = DType::kF32)
      : shape_(shape), dtype_(dtype), bytes_(bytes_of(dtype, shape.elements()) + 4, std::byte{0}) {}

  Tensor view() const {
    return shape_.rank() == 0 ? Tensor() : Tensor(const_cast<std::byte*>(bytes_.data()), dtype_, shape_);
  }
  operator Tensor() const { return view(); }  // NOLINT: a HostTensor is used as one
  float* f32() const { return view().data<float>(); }
  std::int64_t elements() const { return shape_.elements(); }

 private:
  Shape shape_;
  DType dtype_ = DType::kF32;
  std::vector<std::byte> bytes_;
};

inline HostTensor random_tensor(const Shape& shape, unsigned seed, float scale = 1, float mean = 0) {
  HostTensor t(shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, scale);
  std::generate_n(t.f32(), t.elements(), [&] { return normal(random); });
  return t;
}

inline HostTensor filled(const Shape& shape, float value) {
  HostTensor t(shape);
  std::fill_n(t.f32(), t.elements(), value);
  return t;
}

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows of one sequence in a step. `sequence` names the sequence (its pages), not its place in the batch.
struct RowRun {
  int sequence = 0, start = 0, rows = 0;
  int state_in = -1;
  std::vector<std::pair<int, int>> saves = {};  // (row counted from the run's first, slot)
  int tape = -1, replay = 0, state_out = -1;
  bool padding = false;
};
using Step = std::vector<RowRun>;

// Page numbers of each sequence, drawn without repetition from a shuffled pool that is larger than needed.
struct PageTables {
  std::vector<std::vector<int>> pages;
  int total = 0;

  PageTables(const std::vector<int>& lengths, unsigned seed) {
    int needed = 0;
    for (const int n : lengths) needed += (n + kPageTokens - 1) / kPageTokens;
    total = needed + 3;
    std::vector<int> free(static_cast<std::size_t>(total));
    std::iota(free.begin(), free.end(), 0);
    std::mt19937 random(seed);
    std::shuffle(free.begin(), free.end(), random);
    for (const int n : lengths) {
      const auto count = static_cast<std::size_t>((n + kPageTokens - 1) / kPageTokens);
      pages.emplace_back(free.end() - static_cast<std::ptrdiff_t>(count), free.end());
      free.resize(free.size() - count);
    }
  }
};

// Owns the index tensors of one step's batch.
struct HostBatch {
  Batch batch;

  HostBatch(const Step& step, const PageTables& tables) {
    std::size_t most_pages = 1;
    for (const auto& p : tables.pages) most_pages = std::max(most_pages, p.size());
    std::vector<int> positions, sequence, first{0}, start, page_table, slots, state_in, saves, logit_rows,
        tape, replay, out;
    BatchShape& shape = batch.shape;
    for (const RowRun& run : step) {
      const auto& pages = tables.pages[static_cast<std::size_t>(run.sequence)];
      for (const auto& [row, slot] : run.saves) saves.insert(saves.end(), {shape.rows + row, slot});
      for (int i = 0; i < run.rows; ++i) {
        const int index = run.start + i;
        positions.push_back(index);
        sequence.push_back(shape.sequences);
        slots.push_back(run.padding ? -1
                                    : pages[static_cast<std::size_t>(index / kPageTokens)] * kPageTokens +
                                          index % kPageTokens);
      }
      shape.rows += run.rows;
      ++shape.sequences;
      shape.longest_run = std::max(shape.longest_run, run.rows);
      shape.longest_context = std::max(shape.longest_context, run.start + run.rows);
      first.push_back(shape.rows);
      start.push_back(run.start);
      std::vector<int> table(most_pages, -1);
      if (!run.padding) std::copy(pages.begin(), pages.end(), table.begin());
      page_table.insert(page_table.end(), table.begin(), table.end());
      state_in.push_back(run.state_in);
      tape.push_back(run.tape);
      replay.push_back(run.replay);
      out.push_back(run.state_out);
      if (run.rows > 0) logit_rows.push_back(shape.rows - 1);
    }
    shape.saves = static_cast<int>(saves.size() / 2);
    shape.logit_rows = static_cast<int>(logit_rows.size());
    const std::int64_t sequences = shape.sequences;
    batch.tokens = batch.positions = keep(positions, {shape.rows});
    batch.sequence = keep(sequence, {shape.rows});
    batch.first = keep(first, {sequences + 1});
    batch.start = keep(start, {sequences});
    batch.page_table = keep(page_table, {sequences, static_cast<std::int64_t>(most_pages)});
    batch.kv_slots = keep(slots, {shape.rows});
    batch.state_in = keep(state_in, {sequences});
    batch.saves = keep(saves, {shape.saves, 2});
    batch.logit_rows = keep(logit_rows, {shape.logit_rows});
    if (std::any_of(step.begin(), step.end(), [](const RowRun& run) { return run.tape >= 0; })) {
      batch.tape = keep(tape, {sequences});
      batch.replay = keep(replay, {sequences});
      batch.state_out = keep(out, {sequences});
    }
  }

 private:
  Tensor keep(const std::vector<int>& values, const Shape& shape) {
    owned_.emplace_back(shape, DType::kI32);
    std::copy(values.begin(), values.end(), owned_.back().view().data<int>());
    return owned_.back();
  }
  std::vector<HostTensor> owned_;
};

// ---- ways to cut sequences of these lengths into steps; each sequence keeps its state in the slot of its
// number ----

inline RowRun run_of(int sequence, int start, int rows) {
  return {.sequence = sequence,
          .start = start,
          .rows = rows,
          .state_in = start == 0 ? -1 : sequence,
          .saves = {{rows - 1, sequence}}};
}

// Every sequence at most `chunk` rows a step, all of them together.
inline std::vector<Step> chunked(const std::vector<int>& lengths, int chunk) {
  std::vector<Step> steps;
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  for (int at = 0; at < longest; at += chunk) {
    Step step;
    for (int s = 0; s < static_cast<int>(lengths.size()); ++s) {
      const int rows = std::min(chunk, lengths[static_cast<std::size_t>(s)] - at);
      if (rows > 0) step.push_back(run_of(s, at, rows));
    }
    steps.push_back(step);
  }
  return steps;
}

// One sequence after the other, each alone and whole.
inline std::vector<Step> alone(const std::vector<int>& lengths) {
  std::vector<Step> steps;
  for (int s = 0; s < static_cast<int>(lengths.size()); ++s)
    steps.push_back({run_of(s, 0, lengths[static_cast<std::size_t>(s)])});
  return steps;
}

// Random companions in random order, random run lengths, now and then a padding sequence with its dummy slot.
inline std::vector<Step> mixed(const std::vector<int>& lengths, unsigned seed, int dummy_slot) {
  std::mt19937 random(seed);
  std::vector<int> done(lengths.size(), 0), order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<Step> steps;
  while (done != lengths) {
    std::shuffle(order.begin(), order.end(), random);
    Step step;
    for (const int s : order) {
      const auto at = static_cast<std::size_t>(s);
      if (done[at] == lengths[at] || random() % 3 == 0) continue;
      const int most = random() % 2 == 0 ? 3 : 90;
      const int rows =
          std::min(lengths[at] - done[at], 1 + static_cast<int>(random() % static_cast<unsigned>(most)));
      step.push_back(run_of(s, done[at], rows));
      done[at] += rows;
    }
    if (step.empty()) continue;
    if (random() % 2 == 0) {
      step.push_back({.sequence = 0, .start = 0, .rows = 2, .saves = {{1, dummy_slot}}, .padding = true});
    }
    steps.push_back(step);
  }
  return steps;
}

// The cuts that must all give the same bits, with their names.
inline std::vector<std::pair<std::string, std::vector<Step>>> every_cut(const std::vector<int>& lengths,
                                                                        int dummy_slot) {
  std::vector<std::pair<std::string, std::vector<Step>>> cuts;
  const int longest = *std::max_element(lengths.begin(), lengths.end());
  cuts.emplace_back("together", chunked(lengths, longest));
  cuts.emplace_back("alone", alone(lengths));
  for (const int chunk : {1, 17, 63, 64, 65, 100})
    cuts.emplace_back("chunks of " + std::to_string(chunk), chunked(lengths, chunk));
  for (const unsigned seed : {1U, 2U, 3U})
    cuts.emplace_back("mixed " + std::to_string(seed), mixed(lengths, seed, dummy_slot));
  return cuts;
}

// Rows of a step out of per-sequence rows [length, width], and back; padding rows read NaN and are not
// written back.
inline HostTensor gather(const Step& step, const std::vector<HostTensor>& rows) {
  const std::int64_t width = rows[0].view().row_size();
  std::int64_t total = 0;
  for (const RowRun& run : step) total += run.rows;
  HostTensor packed = filled({total, width}, kNan);
  float* to = packed.f32();
  for (const RowRun& run : step) {
    if (!run.padding) {
      std::memcpy(to, rows[static_cast<std::size_t>(run.sequence)].view().row<float>(run.start),
                  static_cast<std::size_t>(run.rows * width) * sizeof(float));
    }
    to += run.rows * width;
  }
  return packed;
}

inline void scatter(const Step& step, const HostTensor& packed, std::vector<HostTensor>& rows) {
  const std::int64_t width = rows[0].view().row_size();
  const float* from = packed.f32();
  for (const RowRun& run : step) {
    if (!run.padding) {
      std::memcpy(rows[static_cast<std::size_t>(run.sequence)].view().row<float>(run.start), from,
                  static_cast<std::size_t>(run.rows * width) * sizeof(float));
    }
    from += run.rows * width;
  }
}

// Index of the first float whose bits differ, -1 if none.
inline std::int64_t first_difference(const float* a, const float* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) return i;
  }
  return -1;
}

inline std::int64_t first_difference(const HostTensor& a, const HostTensor& b) {
  return first_difference(a.f32(), b.f32(), std::min(a.elements(), b.elements()));
}

// Largest |a - b| / (1 + |b|); NaN counts as infinite.
inline double largest_error(const float* a, const double* b, std::int64_t n) {
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double error = std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    most = std::max(most, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
  }
  return most;
}

}  // namespace strata::testing
