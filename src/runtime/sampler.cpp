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

void edit(std::span<float> logits, const DrawRow& row) {
  for (const LogitEdit& e : row.edits) {
    float& l = logits[static_cast<std::size_t>(e.token)];
    l += e.add;
    if (e.repetition != 1) l = l > 0 ? l / e.repetition : l * e.repetition;
    l = std::isinf(e.subtract) ? kNever : l - e.subtract;
  }
  if (row.allowed.empty()) return;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if ((row.allowed[i / 32] >> (i % 32) & 1) == 0) logits[i] = kNever;
  }
}

// Draws an index with probability weights[i] / sum, by one uniform number and a running sum in double.
std::size_t pick(std::span<const double> weights, double uniform) {
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

void append_edits(const SampleContext& c, std::vector<LogitEdit>& to) {
  const SamplingParams& p = c.params;
  const auto begin = static_cast<std::ptrdiff_t>(to.size());
  for (const auto& [token, bias] : p.logit_bias) to.push_back({.token = token, .add = bias});
  if (p.repetition_penalty != 1) {
    for (const auto& [token, count] : c.history.seen) to.push_back({.token = token, .repetition = p.repetition_penalty});
    for (const int token : c.drawn) to.push_back({.token = token, .repetition = p.repetition_penalty});
  }
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    const auto all = [&](int token) {
      const auto before = c.history.output.find(token);
      const auto drawn = std::count(c.drawn.begin(), c.drawn.end(), token);
      return static_cast<float>((before == c.history.output.end() ? 0 : before->second) + drawn);
    };
    const auto penalise = [&](int token) { to.push_back({.token = token, .subtract = p.presence_penalty + p.frequency_penalty * all(token)}); };
    for (const auto& [token, count] : c.history.output) penalise(token);
    for (std::size_t i = 0; i < c.drawn.size(); ++i) {
      const auto before = c.drawn.first(i);
      const bool again = std::find(before.begin(), before.end(), c.drawn[i]) != before.end();
      if (!again && !c.history.output.contains(c.drawn[i])) penalise(c.drawn[i]);
    }
  }
  if (c.output_tokens < p.min_tokens) {
    for (const int token : c.end_tokens) to.push_back({.token = token, .subtract = std::numeric_limits<float>::infinity()});
  }
  // One edit a token.
  std::sort(to.begin() + begin, to.end(), [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
  auto last = to.begin() + begin;
  for (auto e = last; e != to.end(); ++e) {
    if (e == last) continue;
    if (e->token != last->token) {
      *++last = *e;
      continue;
    }
    last->add += e->add;
    last->repetition = e->repetition != 1 ? e->repetition : last->repetition;
    last->subtract += e->subtract;
  }
  if (last != to.end()) to.erase(last + 1, to.end());
}

DrawRow draw_row(const SampleContext& c) {
  const SamplingParams& p = c.params;
  return {.temperature = p.temperature, .top_k = p.top_k, .top_p = p.top_p, .min_p = p.min_p,
          .uniform = philox_uniform(c.seed, c.position), .edits = {}, .allowed = c.allowed};
}

int Sampler::sample(std::span<const float> logits, const SampleContext& c) {
  edits_.clear();
  append_edits(c, edits_);
  DrawRow row = draw_row(c);
  row.edits = edits_;
  return sample(logits, row);
}

Drawn Sampler::draw(std::span<const float> logits, const DrawRow& row, std::vector<std::pair<float, int>>& top) {
  Drawn out{.token = row.score >= 0 ? row.score : sample(logits, row), .finite = true, .logprob = 0, .top = {}};
  if (out.token < 0) return out;
  out.finite = std::isfinite(logits[static_cast<std::size_t>(out.token)]);
  if (row.logprobs < 0 || !out.finite) return out;
  const TokenLogprob l = logprob(logits, out.token, row.logprobs);
  out.logprob = l.logprob;
  top.clear();
  for (const auto& [token, value] : l.top) top.emplace_back(value, token);
  out.top = top;
  return out;
}

int Sampler::sample(std::span<const float> logits, const DrawRow& p) {
  std::span<const float> scores = logits;
  if (!p.edits.empty() || !p.allowed.empty()) {
    work_.assign(logits.begin(), logits.end());
    edit(work_, p);
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
  return best_[pick(weights, p.uniform)].second;
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
