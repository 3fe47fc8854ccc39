#include "runtime/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "ops/batch.h"

namespace strata {
namespace {

// Token i of "document" d: documents with the same d / 10 share their first page, and so on by digits.
std::vector<int> document(int d, int pages) {
  std::vector<int> t;
  for (int p = 0; p < pages; ++p) {
    int key = d;
    for (int q = pages; q > p + 1; --q) key /= 2;
    for (int i = 0; i < kPageTokens; ++i) t.push_back(key * 7 + p * 131 + i);
  }
  return t;
}

struct Pools {
  RefPool pages, slots;
  explicit Pools(int p = 64, int s = 16) : pages(p), slots(s) {}
};

std::vector<int> take(RefPool& pool, int n) {
  std::vector<int> ids;
  for (int i = 0; i < n; ++i) ids.push_back(pool.acquire());
  return ids;
}

void give(RefPool& pool, const std::vector<int>& ids) {
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) pool.release(*id);
}

TEST(PrefixCache, TheHitIsTheMinimumOverPagesAndSnapshots) {
  Pools p;
  PrefixCache cache(p.pages, p.slots, true);
  const auto tokens = document(5, 4);
  const auto pages = take(p.pages, 4);
  cache.insert("", tokens, pages);
  EXPECT_STREQ(cache.match("", tokens).reason, "no_snapshot");
  const int slot = p.slots.acquire();
  EXPECT_TRUE(cache.attach("", std::span(tokens).first(2 * kPageTokens), slot));
  PrefixHit hit = cache.match("", tokens);
  EXPECT_EQ(hit.tokens, 2 * kPageTokens);
  EXPECT_EQ(hit.matched, 3 * kPageTokens);  // one token is always left to compute
  EXPECT_EQ(hit.slot, slot);
  EXPECT_EQ(hit.pages, (std::vector<int>{pages[0], pages[1]}));
  EXPECT_EQ(p.slots.refs(slot), 3);         // ours, the cache's, the hit's
}

TEST(PrefixCache, PagesFor3000TokensAndSnapshotsTo1600HitAt1600) {  // case 12
  Pools p;
  PrefixCache cache(p.pages, p.slots, true);
  std::vector<int> tokens(3000);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto pages = take(p.pages, 3000 / kPageTokens);
  cache.insert("", tokens, pages);
  for (const int at : {640, 1600}) cache.attach("", std::span(tokens).first(static_cast<std::size_t>(at)), p.slots.acquire());
  const PrefixHit hit = cache.match("", tokens);
  EXPECT_EQ(hit.tokens, 1600);
  EXPECT_EQ(hit.pages.size(), 1600U / kPageTokens);
  EXPECT_EQ(hit.matched, 3000 / kPageTokens * kPageTokens);
}

TEST(PrefixCache, AnExactPromptLeavesOneTokenAndShortOnesMiss) {
  Pools p;
  PrefixCache cache(p.pages, p.slots, false);
  const auto tokens = document(1, 3);
  const auto pages = take(p.pages, 3);
  cache.insert("", tokens, pages);
  EXPECT_EQ(cache.match("", tokens).tokens, 2 * kPageTokens);
  auto longer = tokens;
  longer.push_back(1);
  EXPECT_EQ(cache.match("", longer).tokens, 3 * kPageTokens);
  EXPECT_STREQ(cache.match("", std::span(tokens).first(kPageTokens)).reason, "short");
  EXPECT_STREQ(cache.match("other salt", longer).reason, "unknown");
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedLeafAndNeverWhatIsInUse) {
  Pools p(8, 4);
  PrefixCache cache(p.pages, p.slots, false);
  const auto a = document(0, 2), b = document(3, 2);  // share no page: 0/2 = 0, 3/2 = 1
  const auto pa = take(p.pages, 2), pb = take(p.pages, 2);
  cache.insert("", a, pa);
  cache.insert("", b, pb);
  give(p.pages, pb);           // a's pages are still in use by us
  auto probe = a;
  probe.push_back(0);
  EXPECT_TRUE(cache.evict_page());
  EXPECT_EQ(p.pages.refs(pb[1]), 0);  // b's leaf went first although a is older
  EXPECT_TRUE(cache.evict_page());
  EXPECT_FALSE(cache.evict_page());
  EXPECT_EQ(cache.match("", probe).tokens, 2 * kPageTokens);
}

// What is in use lies behind what is not in the order of use, and the other way round.
TEST(PrefixCache, EvictsInTheOrderOfUsePastWhatIsInUse) {
  Pools p(8, 4);
  PrefixCache cache(p.pages, p.slots, true);
  std::vector<std::vector<int>> pages;
  std::vector<int> slots;
  for (const int seed : {0, 2, 4, 6}) {  // share no page
    const auto tokens = document(seed, 2);
    pages.push_back(take(p.pages, 2));
    slots.push_back(p.slots.acquire());
    cache.insert("", tokens, pages.back());
    ASSERT_TRUE(cache.attach("", tokens, slots.back()));
  }
  for (const std::size_t free : {1U, 3U}) {  // 0 and 2 stay in use
    give(p.pages, pages[free]);
    p.slots.release(slots[free]);
  }
  EXPECT_TRUE(cache.evict_slot());
  EXPECT_EQ(p.slots.refs(slots[1]), 0);
  EXPECT_TRUE(cache.evict_page());
  EXPECT_EQ(p.pages.refs(pages[1][1]), 0);
  EXPECT_TRUE(cache.evict_slot());
  EXPECT_EQ(p.slots.refs(slots[3]), 0);
  EXPECT_FALSE(cache.evict_slot());
  for (const int page : {pages[1][0], pages[3][1], pages[3][0]}) {
    EXPECT_TRUE(cache.evict_page());
    EXPECT_EQ(p.pages.refs(page), 0);
  }
  EXPECT_FALSE(cache.evict_page());
  for (const std::size_t used : {0U, 2U}) {
    give(p.pages, pages[used]);
    p.slots.release(slots[used]);
  }
  for (std::size_t used : {0U, 2U}) {
    for (const int page : {pages[used][1], pages[used][0]}) {
      EXPECT_TRUE(cache.evict_page());
      EXPECT_EQ(p.pages.refs(page), 0);
    }
  }
  EXPECT_EQ(cache.pages(), 0);
  EXPECT_EQ(cache.snapshots(), 0);
}

// 1e5 random steps keep every count; the model is a plain map from prefixes to pages.
TEST(PrefixCache, RandomStepsConserveCounts) {
  for (const bool needs_state : {false, true}) {
    Pools p(40, 12);
    PrefixCache cache(p.pages, p.slots, needs_state);
    std::mt19937 rng(needs_state ? 11 : 12);
    struct Held {
      std::vector<int> pages;
      int slot;
    };
    std::vector<Held> held;
    const auto random = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    for (int step = 0; step < 100000; ++step) {
      const auto tokens = document(random(16), 1 + random(4));
      switch (random(6)) {
        case 0: case 1: {  // a sequence: match, compute the rest, insert, maybe snapshot
          PrefixHit hit = cache.match("", tokens);
          ASSERT_EQ(hit.tokens, static_cast<int>(hit.pages.size()) * kPageTokens);
          if (needs_state && hit.tokens > 0) { ASSERT_GE(hit.slot, 0); }
          ASSERT_LT(hit.tokens, static_cast<int>(tokens.size()));
          std::vector<int> pages = hit.pages;
          while (pages.size() * kPageTokens < tokens.size()) {
            int page = p.pages.acquire();
            if (page < 0 && cache.evict_page()) page = p.pages.acquire();
            if (page < 0) break;
            pages.push_back(page);
          }
          cache.insert("", tokens, pages);
          if (needs_state && !pages.empty()) {
            int slot = p.slots.acquire();
            if (slot < 0 && cache.evict_slot()) slot = p.slots.acquire();
            if (slot >= 0) {
              const auto at = 1 + static_cast<std::size_t>(random(static_cast<int>(pages.size())));
              cache.attach("", std::span(tokens).first(at * kPageTokens), slot);
              p.slots.release(slot);
            }
          }
          held.push_back({pages, hit.slot});
          break;
        }
        case 2: case 3:
          if (!held.empty()) {
            std::swap(held[static_cast<std::size_t>(random(static_cast<int>(held.size())))], held.back());
            give(p.pages, held.back().pages);
            if (held.back().slot >= 0) p.slots.release(held.back().slot);
            held.pop_back();
          }
          break;
        case 4:
          if (cache.evict_page()) break;
          for (const auto& e : cache.entries()) {
            const bool in_use = p.pages.refs(e.page) > 1 || (e.slot >= 0 && p.slots.refs(e.slot) > 1);
            const auto inner = [&](const auto& other) {
              return other.tokens.size() > e.tokens.size() && std::equal(e.tokens.begin(), e.tokens.end(), other.tokens.begin());
            };
            const auto all = cache.entries();
            ASSERT_TRUE(in_use || std::any_of(all.begin(), all.end(), inner)) << "page " << e.page << " could go, step " << step;
          }
          break;
        default:
          if (cache.evict_slot()) break;
          for (const auto& e : cache.entries()) { ASSERT_TRUE(e.slot < 0 || p.slots.refs(e.slot) > 1) << "slot " << e.slot; }
          break;
      }
      if (step % 97 != 0) continue;
      std::map<int, int> refs, slot_refs;
      for (const Held& h : held) {
        for (const int id : h.pages) ++refs[id];
        if (h.slot >= 0) ++slot_refs[h.slot];
      }
      const auto entries = cache.entries();
      for (const auto& e : entries) {
        ++refs[e.page];
        if (e.slot >= 0) ++slot_refs[e.slot];
      }
      ASSERT_EQ(cache.evictable_pages(), std::count_if(entries.begin(), entries.end(), [&](const auto& e) { return refs[e.page] == 1; }));
      for (int id = 0; id < p.pages.total(); ++id) ASSERT_EQ(p.pages.refs(id), refs[id]) << "page " << id << " step " << step;
      for (int id = 0; id < p.slots.total(); ++id) ASSERT_EQ(p.slots.refs(id), slot_refs[id]) << "slot " << id;
      ASSERT_EQ(p.pages.free() + p.pages.held(), p.pages.total());
    }
    for (const Held& h : held) {
      give(p.pages, h.pages);
      if (h.slot >= 0) p.slots.release(h.slot);
    }
    cache.clear();
    EXPECT_EQ(p.pages.free(), p.pages.total());
    EXPECT_EQ(p.slots.free(), p.slots.total());
  }
}

TEST(PrefixCacheDeathTest, PlantedFaultsStop) {
  Pools p;
  EXPECT_DEATH({
    const int id = p.pages.acquire();
    p.pages.release(id);
    p.pages.release(id);
  }, "release of free place");
  EXPECT_DEATH({
    PrefixCache cache(p.pages, p.slots, false);
    const int id = p.pages.acquire();
    cache.insert("", document(0, 1), std::vector<int>{id});
    p.pages.release(id);
    p.pages.release(id);  // the cache's
  }, "which is marked");
  EXPECT_DEATH({
    PrefixCache cache(p.pages, p.slots, true);
    cache.attach("", document(0, 1).empty() ? std::vector<int>{} : std::vector<int>(65, 1), 0);
  }, "not at a page boundary");
}

}  // namespace
}  // namespace strata
