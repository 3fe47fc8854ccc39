// A backend on the CPU that is driven as a device is: fixed addresses, padded batches, recorded steps, rows
// drawn together.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "runtime/sampler.h"

namespace strata {

// A recording runs its step again; its first replay is what record() ran already. What a draw gave is told
// when it is finished; until then only later batches can take it.
class HostStepDevice : public StepDevice {
 public:
  Batch upload(const Batch& host, std::span<const TokenSource> drawn) override {
    ++counters_.uploads;
    if (!drawing_.empty()) ++uploads_while_drawing;
    Batch b = host;
    std::size_t at = 0;
    for (Tensor* t :
         {&b.tokens, &b.positions, &b.sequence, &b.first, &b.start, &b.page_table, &b.kv_slots, &b.state_in,
          &b.saves, &b.adapters, &b.logit_adapters, &b.logit_rows, &b.tape, &b.replay, &b.state_out}) {
      if (t->empty()) continue;
      const auto bytes = t->bytes();
      std::memcpy(memory_.data() + at, t->raw(), bytes);
      *t = Tensor(memory_.data() + at, t->dtype(), t->shape());
      at += (bytes + 63) / 64 * 64;
      STRATA_CHECK(at <= memory_.size(), "a batch of {} bytes", at);
    }
    for (const TokenSource& t : drawn) b.tokens.data<int>()[t.row] = std::max(tokens_.at(t.drawn), 0);
    return b;
  }
  Tensor place(std::span<const int> numbers, const Shape& shape) override {
    if (numbers.empty()) return {};
    placed_.emplace_back(numbers.begin(), numbers.end());
    if (placed_.size() > 64) placed_.pop_front();
    return {placed_.back().data(), DType::kI32, shape};
  }
  std::unique_ptr<Recording> record(const std::function<void()>& step) override {
    struct Again final : Recording {
      Again(std::function<void()> s, StepCounters& c) : step(std::move(s)), counters(c) {}
      void replay() override {
        ++counters.replays;
        if (!std::exchange(ran, false)) step();
      }
      bool ran = true;  // record() ran it, which real recording does not
      std::function<void()> step;
      StepCounters& counters;
    };
    ++counters_.recordings;
    step();
    return std::make_unique<Again>(step, counters_);
  }
  std::span<const float> fetch(const Tensor& values) override {
    return {values.data<float>(), static_cast<std::size_t>(values.elements())};
  }
  std::uint64_t begin_draw(const Tensor& logits, std::span<const DrawRow> rows) final {
    EXPECT_FALSE(rows.empty());
    const std::uint64_t first = tokens_.size();
    Drawing& d = drawing_[first];
    d.tops.resize(rows.size());
    draw_rows(logits, rows, d);
    for (const Drawn& row : d.drawn) tokens_.push_back(row.token);
    if (drawing_.size() > kMostDraws) drawing_.erase(drawing_.begin());
    return first;
  }
  std::span<const Drawn> finish_draw(std::uint64_t first) override {
    if (first >= waited_for_) {  // what came before is there then
      ++counters_.waits;
      waited_for_ = first + 1;
    }
    told_ = std::move(drawing_.at(first));
    drawing_.erase(first);
    return told_.drawn;
  }
  const StepCounters& counters() override { return counters_; }

  std::size_t unfinished() const { return drawing_.size(); }
  int uploads_while_drawing = 0;

 protected:
  struct Drawing {
    std::vector<Drawn> drawn;
    std::vector<std::vector<std::pair<float, int>>> tops;
  };
  virtual void draw_rows(const Tensor& logits, std::span<const DrawRow> rows, Drawing& to) {
    to.drawn.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_LE(rows[i].logprobs, kMostTopLogprobs);
      to.drawn.push_back(
          sampler_.draw({logits.row<float>(rows[i].row), static_cast<std::size_t>(logits.row_size())},
                        rows[i], to.tops[i]));
    }
  }

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 << 20);
  std::deque<std::vector<int>> placed_;
  Sampler sampler_;
  std::vector<int> tokens_;                   // of all rows ever drawn
  std::map<std::uint64_t, Drawing> drawing_;  // by the number of their first row
  Drawing told_;
  std::uint64_t waited_for_ = 0;
  StepCounters counters_;
};

class DeviceLikeOps final : public CpuOps {
 public:
  using CpuOps::CpuOps;
  std::unique_ptr<StepDevice> make_step_device(const StepLimits&) override {
    return std::make_unique<HostStepDevice>();
  }
};

}  // namespace strata
