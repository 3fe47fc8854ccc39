#include "comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace strata::test {

double deviation(const Rows& rows) {
  double sum = 0, squares = 0, n = 0;
  for (const auto& row : rows) {
    for (const float x : row) {
      sum += x;
      squares += static_cast<double>(x) * x;
      ++n;
    }
  }
  return std::sqrt(squares / n - sum / n * (sum / n));
}

// The last rows of `got` against `want`, as a share of `scale`.
double worst(const Rows& got, const Rows& want, double scale) {
  EXPECT_GE(got.size(), want.size());
  double most = 0;
  for (std::size_t r = 0; r < want.size(); ++r) {
    const auto& g = got[got.size() - want.size() + r];
    EXPECT_EQ(g.size(), want[r].size());
    for (std::size_t i = 0; i < want[r].size(); ++i) {
      if (!std::isfinite(g[i])) return INFINITY;
      most = std::max(most, std::abs(static_cast<double>(g[i]) - want[r][i]));
    }
  }
  return most / scale;
}

double relative_error(const Rows& got, const Rows& want) {
  EXPECT_EQ(got.size(), want.size());
  double miss = 0, all = 0;
  for (std::size_t r = 0; r < want.size(); ++r) {
    for (std::size_t i = 0; i < want[r].size(); ++i) {
      miss += std::pow(static_cast<double>(got[r][i]) - want[r][i], 2);
      all += std::pow(static_cast<double>(want[r][i]), 2);
    }
  }
  return std::sqrt(miss / all);
}

std::size_t argmax(const std::vector<float>& row) {
  return static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

int pages_for(std::size_t tokens) { return static_cast<int>(tokens) / kPageTokens + 1; }

void check_greedy(LoadedModel& loaded, const Ints& prompt, const Ints& want, const std::vector<float>& gaps,
                  int adapter) {
  const Pools pools(loaded.model, pages_for(prompt.size() + want.size()), 1, 0);
  Piece piece{.tokens = prompt, .pages = iota(0, pages_for(prompt.size() + want.size())), .adapter = adapter};
  for (std::size_t i = 0; i < want.size(); ++i) {
    piece.saves = {{static_cast<int>(piece.tokens.size()) - 1, 0}};
    const std::size_t token = argmax(loaded.run(pools, std::span(&piece, 1)).logits.back());
    const bool clear = gaps.empty() || gaps[i] > kClearGap;
    ASSERT_TRUE(!clear || token == static_cast<std::size_t>(want[i]))
        << "step " << i << ": " << token << ", reference " << want[i];
    piece.start += static_cast<int>(piece.tokens.size());
    piece.tokens = {want[i]};
    piece.state_in = 0;
  }
}

}  // namespace strata::test
