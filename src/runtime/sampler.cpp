#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/philox.h"

namespace strata {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Higher first; a tie goes to the lower id.
bool better(const std::pair<float, int>& a, const std::pair<float, int>& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

int argmax(std::span<const float> logits) {
  int best = -1;
  float value = kNever;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > value) {
      value = logits[i];
      best = static_cast<int>(i);
    }
  }
  return best;
}

void apply_history(std::span<float> logits, const SampleContext& c) {
  const SamplingParams& p = c.params;
  for (const auto& [token, bias] : p.logit_bias) logits[static_cast<std::size_t>(token)] += bias;
  if (p.repetition_penalty != 1) {
    for (const auto& [token, count] : c.history.seen) {
      float& l = logits[static_cast<std::size_t>(token)];
      l = l > 0 ? l / p.repetition_penalty : l * p.repetition_penalty;
    }
  }
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    for (const auto& [token, count] : c.history.output) {
      logits[static_cast<std::size_t>(token)] -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count);
    }
  }
  if (c.output_tokens < p.min_tokens) {
    for (const int token : c.end_tokens) logits[static_cast<std::size_t>(token)] = kNever;
  }
  if (!c.allowed.empty()) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if ((c.allowed[i / 32] >> (i % 32) & 1) == 0) logits[i] = kNever;
    }
  }
}

// Draws an index with probability weights[i] / sum, by one uniform number and a running sum in double.
std::size_t draw(std::span<const double> weights, double uniform) {
  double total = 0;
  for (const double w : weights) total += w;
  double left = uniform * total;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) return i;
  }
  return last;  // rounding at the very end
}

}  // namespace

int Sampler::sample(std::span<const float> logits, const SampleContext& c) {
  const SamplingParams& p = c.params;
  const bool untouched = p.logit_bias.empty() && p.repetition_penalty == 1 && p.presence_penalty == 0 &&
                         p.frequency_penalty == 0 && c.output_tokens >= p.min_tokens && c.allowed.empty();
  std::span<const float> scores = logits;
  if (!untouched) {
    work_.assign(logits.begin(), logits.end());
    apply_history(work_, c);
    scores = work_;
  }
  const int top = argmax(scores);
  if (top < 0 || p.temperature <= 0 || p.top_p <= 0 || p.top_k == 1) return top;

  // Candidates: all that can survive, best first where a rank is needed.
  const float max = scores[static_cast<std::size_t>(top)];
  const double inverse = 1.0 / static_cast<double>(p.temperature);
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - static_cast<double>(max)) * inverse); };
  best_.clear();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] != kNever && (p.min_p <= 0 || weight(scores[i]) >= static_cast<double>(p.min_p))) {
      best_.emplace_back(scores[i], static_cast<int>(i));
    }
  }
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < best_.size()) {
    std::nth_element(best_.begin(), best_.begin() + p.top_k - 1, best_.end(), better);
    best_.resize(static_cast<std::size_t>(p.top_k));
  }
  if (p.top_p < 1) {
    double total = 0;
    for (const auto& [logit, id] : best_) total += weight(logit);
    double mass = 0;
    std::size_t sorted = 0, keep = 0;
    while (keep < best_.size() && mass < static_cast<double>(p.top_p) * total) {
      if (keep == sorted) {  // sort as far as the mass reaches, doubling
        const std::size_t next = std::min(best_.size(), std::max<std::size_t>(64, sorted * 2));
        std::partial_sort(best_.begin() + static_cast<std::ptrdiff_t>(sorted), best_.begin() + static_cast<std::ptrdiff_t>(next),
                          best_.end(), better);
        sorted = next;
      }
      mass += weight(best_[keep++].first);
    }
    best_.resize(std::max<std::size_t>(keep, 1));
  }
  std::sort(best_.begin(), best_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<double> weights(best_.size());
  for (std::size_t i = 0; i < best_.size(); ++i) weights[i] = weight(best_[i].first);
  return best_[draw(weights, philox_uniform(c.seed, c.position))].second;
}

TokenLogprob Sampler::logprob(std::span<const float> logits, int token, int top) {
  const float max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l - max));
  const double norm = static_cast<double>(max) + std::log(sum);
  const auto at = [&](int id) { return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - norm); };

  TokenLogprob out{.token = token, .logprob = at(token), .top = {}};
  const auto n = std::min<std::size_t>(static_cast<std::size_t>(std::max(top, 0)), logits.size());
  if (n > 0) {
    best_.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) best_.emplace_back(logits[i], static_cast<int>(i));
    std::partial_sort(best_.begin(), best_.begin() + static_cast<std::ptrdiff_t>(n), best_.end(), better);
    for (std::size_t i = 0; i < n; ++i) out.top.emplace_back(best_[i].second, at(best_[i].second));
  }
  return out;
}

}  // namespace strata
