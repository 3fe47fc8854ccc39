// route: chooses the experts of every row and sorts the choices by expert; route_all: every row to all of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"

namespace strata {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// scores[e] of one row: what the weights are made of. For kTopKSoftmax, and where only the chosen matter, the logits.
void score(const float* logits, std::int64_t experts, Scoring scoring, float* scores) {
  if (scoring == Scoring::kSigmoid) {
    for (std::int64_t e = 0; e < experts; ++e) scores[e] = 1.0F / (1.0F + std::exp(-logits[e]));
    return;
  }
  if (scoring == Scoring::kTopKSoftmax) {
    std::copy_n(logits, experts, scores);
    return;
  }
  const float top = *std::max_element(logits, logits + experts);
  float sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += scores[e] = std::exp(logits[e] - top);
  for (std::int64_t e = 0; e < experts; ++e) scores[e] /= sum;
}

// Leaves in `choice` only the experts of the best groups (DeepSeek-V3, section 2.1.2: a group counts as its two best).
void limit_groups(float* choice, std::int64_t experts, int groups, int top_groups) {
  const std::int64_t size = experts / groups;
  float totals[256];
  for (int g = 0; g < groups; ++g) {
    float best = kNone, second = kNone;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > best) {
        second = best;
        best = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    totals[g] = size > 1 ? best + second : best;
  }
  for (int kept = 0; kept < top_groups; ++kept) *std::max_element(totals, totals + groups) = kNone;
  for (int g = 0; g < groups; ++g) {
    if (totals[g] != kNone) std::fill_n(choice + g * size, size, kNone);
  }
}

void weigh(const RouteArgs& args, const float* scores, const std::int32_t* chosen, int k, float* weights) {
  for (int j = 0; j < k; ++j) weights[j] = scores[chosen[j]];
  if (args.scoring == Scoring::kTopKSoftmax) {
    const float top = *std::max_element(weights, weights + k);
    float sum = 0;
    for (int j = 0; j < k; ++j) sum += weights[j] = std::exp(weights[j] - top);
    for (int j = 0; j < k; ++j) weights[j] /= sum;
  } else if (args.normalise) {
    float sum = args.scoring == Scoring::kSigmoid ? 1e-20F : 0.0F;
    for (int j = 0; j < k; ++j) sum += weights[j];
    for (int j = 0; j < k; ++j) weights[j] /= sum;
  }
  for (int j = 0; j < k; ++j) {
    weights[j] *= args.expert_scale.empty() ? args.scale : args.scale * args.expert_scale.data<float>()[chosen[j]];
  }
}

// Rows by expert: a stable counting sort of the entries row * k + choice.
void sort_by_expert(const std::int32_t* expert, std::int64_t entries, std::int64_t experts, std::int32_t* order,
                    std::int32_t* first) {
  std::fill_n(first, experts + 1, 0);
  for (std::int64_t i = 0; i < entries; ++i) ++first[expert[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e) first[e + 1] += first[e];
  for (std::int64_t i = 0; i < entries; ++i) order[first[expert[i]]++] = static_cast<std::int32_t>(i);
  for (std::int64_t e = experts; e > 0; --e) first[e] = first[e - 1];  // each start had moved to the next one's
  first[0] = 0;
}

}  // namespace

Routing CpuOps::route(const RouteArgs& args, int k) {
  const std::int64_t rows = args.logits.rows(), experts = args.logits.row_size();
  STRATA_CHECK(k >= 1 && k <= experts, "route: {} of {} experts", k, experts);
  STRATA_CHECK(args.groups >= 1 && args.groups <= 256 && experts % args.groups == 0, "route: {} experts in {} groups", experts,
               args.groups);
  STRATA_CHECK(args.top_groups >= 1 && args.top_groups <= args.groups && k <= experts / args.groups * args.top_groups,
               "route: {} choices from {} of {} groups", k, args.top_groups, args.groups);
  STRATA_CHECK(args.bias.empty() || args.bias.elements() == experts, "route bias: {}, experts {}", args.bias.elements(), experts);
  STRATA_CHECK(args.expert_scale.empty() || args.expert_scale.elements() == experts, "route scale: {}, experts {}",
               args.expert_scale.elements(), experts);
  Routing routing{make({rows, k}, DType::kI32), make({rows, k}, DType::kF32), make({rows * k}, DType::kI32),
                  make({experts + 1}, DType::kI32)};
  const Scratch scratch(arena());
  const Tensor scores = make({rows, experts}, DType::kF32), choices = make({rows, experts}, DType::kF32);

  threads_->parallel_for(rows, [&](std::int64_t t) {
    float* s = scores.row<float>(t);
    float* choice = choices.row<float>(t);
    auto* chosen = routing.expert.row<std::int32_t>(t);
    score(args.logits.row<float>(t), experts, args.scoring, s);
    for (std::int64_t e = 0; e < experts; ++e) choice[e] = args.bias.empty() ? s[e] : s[e] + args.bias.data<float>()[e];
    if (args.groups > 1) limit_groups(choice, experts, args.groups, args.top_groups);
    for (int j = 0; j < k; ++j) {  // max_element gives the first of equals: the lower id
      chosen[j] = static_cast<std::int32_t>(std::max_element(choice, choice + experts) - choice);
      choice[chosen[j]] = kNone;
    }
    weigh(args, s, chosen, k, routing.weight.row<float>(t));
  });
  sort_by_expert(routing.expert.data<std::int32_t>(), rows * k, experts, routing.order.data<std::int32_t>(),
                 routing.first.data<std::int32_t>());
  return routing;
}

Routing CpuOps::route_all(std::int64_t rows, std::int64_t experts) {
  Routing routing{make({rows, experts}, DType::kI32), make({rows, experts}, DType::kF32), make({rows * experts}, DType::kI32),
                  make({experts + 1}, DType::kI32)};
  std::fill_n(routing.weight.data<float>(), rows * experts, 1.0F);
  for (std::int64_t e = 0; e < experts; ++e) {
    routing.first.data<std::int32_t>()[e] = static_cast<std::int32_t>(e * rows);
    for (std::int64_t t = 0; t < rows; ++t) {
      routing.expert.row<std::int32_t>(t)[e] = static_cast<std::int32_t>(e);
      routing.order.data<std::int32_t>()[e * rows + t] = static_cast<std::int32_t>(t * experts + e);
    }
  }
  routing.first.data<std::int32_t>()[experts] = static_cast<std::int32_t>(experts * rows);
  return routing;
}

}  // namespace strata
