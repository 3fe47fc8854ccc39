#include "cuda/model_runs.h"

#include <algorithm>
#include <cmath>

namespace strata::testing {
namespace {

template <typename T>
std::vector<T> fetch(CudaOps& ops, const Tensor& x) {
  std::vector<T> values(static_cast<std::size_t>(x.elements()));
  ops.copy_to_host(values.data(), x);
  ops.synchronize();
  return values;
}

// What a backend must do for a run besides the ops.
struct Side {
  std::function<Batch(const Batch&)> send;
  std::function<std::vector<float>(const Tensor&)> read;
  std::function<void(const Tensor&, const std::vector<float>&)> write;
};

ModelRun run_steps(const Model& model, Ops& ops, DType kv_dtype, const Side& side, const ModelRun* teacher) {
  const PageTables tables({160, 100}, 3);
  std::deque<Buffer> buffers;
  const auto memory = memory_of(model, ops, tables.total, buffers, kv_dtype);
  ModelRun run;
  for (const Step& step : model_steps()) {
    const HostBatch host(step, tables);
    Batch batch = host.batch;
    const HostTensor tokens({batch.shape.rows}, DType::kI32), all_rows({batch.shape.rows}, DType::kI32);
    for (int t = 0; t < batch.shape.rows; ++t) {
      tokens.view().data<int>()[t] = 2 + (batch.positions.data<int>()[t] * 37 + 11) % 300;
      all_rows.view().data<int>()[t] = t;
    }
    batch.tokens = tokens;
    batch.logit_rows = all_rows;
    batch.shape.logit_rows = batch.shape.rows;
    const Scratch scratch(ops.arena());
    auto& streams = run.streams.emplace_back();
    const Tensor logits = model
                              .forward(side.send(batch), memory, ops, {},
                                       [&](std::size_t layer, const Tensor& x) {
                                         streams.push_back(side.read(x));
                                         if (teacher != nullptr)
                                           side.write(x, teacher->streams[run.streams.size() - 1][layer]);
                                       })
                              .logits;
    const std::vector<float> values = side.read(logits);
    for (std::int64_t r = 0; r < logits.rows(); ++r) {
      run.logits.emplace_back(values.begin() + r * logits.row_size(),
                              values.begin() + (r + 1) * logits.row_size());
    }
  }
  return run;
}

}  // namespace

Routing RecordingCudaOps::route(const RouteArgs& args, int k) {
  const Routing routing = CudaOps::route(args, k);
  chosen.push_back({fetch<int>(*this, routing.expert), fetch<float>(*this, routing.weight)});
  if (forced == nullptr) return routing;
  const HostTensor expert(routing.expert.shape(), DType::kI32), weight(routing.weight.shape()),
      order(routing.order.shape(), DType::kI32), first(routing.first.shape(), DType::kI32);
  take_choices(forced->at(chosen.size() - 1), {expert, weight, order, first});
  copy_to_device(routing.expert, expert.view().raw());
  copy_to_device(routing.weight, weight.view().raw());
  copy_to_device(routing.order, order.view().raw());
  copy_to_device(routing.first, first.view().raw());
  synchronize();
  return routing;
}

void RecordingCudaOps::attention(const AttentionArgs& args, const Batch& batch) {
  CudaOps::attention(args, batch);
  if (attention_factor != 1) scale(args.out, attention_factor, 0);
}

std::vector<Step> model_steps() {
  const auto verify = [](int sequence, int start, int rows, int replay) {
    return RowRun{.sequence = sequence,
                  .start = start,
                  .rows = rows,
                  .state_in = sequence,
                  .tape = 0,
                  .replay = replay,
                  .state_out = sequence};
  };
  return {
      {run_of(0, 0, 70), run_of(1, 0, 5)},
      {run_of(1, 5, 60),
       run_of(0, 70, 1),
       {.sequence = 0, .start = 0, .rows = 2, .saves = {{1, kSlots - 1}}, .padding = true}},
      {run_of(0, 71, 50), run_of(1, 65, 1)},
      {verify(0, 121, 5, 0), run_of(1, 66, 1)},
      {verify(0, 124, 4, 3)},  // three of five were right
      {{.sequence = 1, .start = 67, .rows = 4, .state_in = 1, .saves = {{0, 2}, {1, 3}, {2, 4}, {3, 1}}}},
      {{.sequence = 1, .start = 69, .rows = 3, .state_in = 3, .saves = {{2, 1}}}},  // the slot after the
                                                                                    // second row
  };
}

std::size_t rows_of(const Step& step) {
  std::size_t rows = 0;
  for (const RowRun& run : step) rows += static_cast<std::size_t>(run.rows);
  return rows;
}

std::vector<bool> padding_rows() {
  std::vector<bool> padding;
  for (const Step& step : model_steps()) {
    for (const RowRun& run : step)
      padding.insert(padding.end(), static_cast<std::size_t>(run.rows), run.padding);
  }
  return padding;
}

std::vector<Memory> memory_of(const Model& model, Ops& ops, int pages, std::deque<Buffer>& buffers,
                              DType kv_dtype) {
  const auto make = [&](const Shape& shape, DType dtype) {
    buffers.push_back(ops.allocate(bytes_of(dtype, shape.elements())));
    return buffers.back().view(dtype, shape);
  };
  std::vector<Memory> all;
  for (const StateSpec& spec : model.states()) {
    if (const auto* kv = std::get_if<PagedKv>(&spec)) {
      KvView view{make({pages, kPageTokens, kv->heads, kv->head_dim}, kv_dtype), {}, {}};
      const int values = kv->value_dim < 0 ? kv->head_dim : kv->value_dim;
      if (values > 0) view.v = make({pages, kPageTokens, kv->heads, values}, kv_dtype);
      if (kv->index_dim > 0) view.index = make({pages, kPageTokens, kv->index_dim}, DType::kF32);
      all.emplace_back(view);
    } else if (const auto* recurrent = std::get_if<Recurrent>(&spec)) {
      StateView view;
      for (const Shape& shape : recurrent->tensors) {
        Shape slots{kSlots};
        for (int i = 0; i < shape.rank(); ++i) slots.append(shape[i]);
        view.tensors.push_back(make(slots, DType::kF32));
      }
      for (const int n : recurrent->tape) view.tapes.push_back(make({2, kTapeRows, n}, DType::kF32));
      all.emplace_back(view);
    } else {
      all.emplace_back(Stateless{});
    }
  }
  return all;
}

ModelRun run_model(const Model& model, RoundedOps& ops, DType kv_dtype, const RunOptions& options) {
  const Side side{
      .send = [](const Batch& batch) { return batch; },
      .read =
          [](const Tensor& x) { return std::vector<float>(x.data<float>(), x.data<float>() + x.elements()); },
      .write =
          [](const Tensor& x, const std::vector<float>& values) {
            std::copy(values.begin(), values.end(), x.data<float>());
          }};
  ops.chosen.clear();
  ops.forced = options.forced;
  ModelRun run = run_steps(model, ops, kv_dtype, side, options.teacher);
  run.chosen = ops.chosen;
  return run;
}

ModelRun run_model(const Model& model, RecordingCudaOps& ops, const RunOptions& options) {
  cuda::BatchUpload upload(ops, 4 << 20);
  const Side side{.send = [&](const Batch& batch) { return upload.send(batch); },
                  .read = [&](const Tensor& x) { return fetch<float>(ops, x); },
                  .write =
                      [&](const Tensor& x, const std::vector<float>& values) {
                        ops.copy_to_device(x, values.data());
                        ops.synchronize();
                      }};
  ops.chosen.clear();
  ops.forced = options.forced;
  ModelRun run = run_steps(model, ops, ops.activation(), side, options.teacher);
  run.chosen = ops.chosen;
  return run;
}

std::vector<double> row_errors(const ModelRun& got, const ModelRun& want) {
  const std::vector<bool> padding = padding_rows();
  std::vector<double> errors;
  for (std::size_t r = 0; r < want.logits.size(); ++r) {
    if (padding[r]) continue;
    double error = 0, norm = 0;
    for (std::size_t c = 0; c < want.logits[r].size(); ++c) {
      const double a = got.logits[r][c], b = want.logits[r][c];
      error += (a - b) * (a - b);
      norm += b * b;
    }
    errors.push_back(std::isfinite(error) ? std::sqrt(error / norm) : INFINITY);
  }
  return errors;
}

std::vector<double> layer_errors(const ModelRun& got, const ModelRun& teacher) {
  const std::vector<bool> padding = padding_rows();
  const std::vector<Step> steps = model_steps();
  std::vector<double> errors;
  for (std::size_t layer = 0; layer + 1 < teacher.streams[0].size(); ++layer) {
    double error = 0, added = 0;
    std::size_t row0 = 0;
    for (std::size_t step = 0; step < teacher.streams.size(); ++step) {
      const auto &before = teacher.streams[step][layer], &after = teacher.streams[step][layer + 1],
                 &have = got.streams[step][layer + 1];
      const std::size_t rows = rows_of(steps[step]);
      const std::size_t width = after.size() / rows;
      for (std::size_t i = 0; i < after.size(); ++i) {
        if (padding[row0 + i / width]) continue;
        const double e = have[i] - after[i], a = after[i] - before[i];
        error += e * e;
        added += a * a;
      }
      row0 += rows;
    }
    errors.push_back(std::isfinite(error) ? std::sqrt(error / added) : INFINITY);
  }
  return errors;
}

double tenths(std::vector<double> values, int i) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * static_cast<std::size_t>(i) / 10)];
}

}  // namespace strata::testing
