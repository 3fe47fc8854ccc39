// The master test: whatever a sequence's rows are cut into, mixed with, cached from or drafted with, every
// row's logits are the same bits. Each mistake that would break it is planted once and must be seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "player.h"

namespace strata::test {
namespace {

constexpr int kTokens = 200, kShort = 100;

int computed(const Track& track) {
  return static_cast<int>(
      std::count_if(track.logits.begin(), track.logits.end(), [](const auto& row) { return !row.empty(); }));
}

class Suite {
 public:
  explicit Suite(const std::filesystem::path& folder)
      : loaded_(folder, {.threads = 1}),
        player_(loaded_, 120, 80, 24),
        tokens_(random_tokens(kTokens, loaded_.model.vocab_size, 1)) {
    large_ = loaded_.model.hidden_size > 64;
    want_ = alone(tokens_);
    const bool finite =
        std::all_of(want_.back().begin(), want_.back().end(), [](float x) { return std::isfinite(x); });
    EXPECT_TRUE(finite) << "unwritten memory was read";
  }

  Player& player() { return player_; }
  void plant(Fault fault) { player_.fault = fault; }

  int chunked(int rows) {
    Track track = player_.open(tokens_);
    while (!track.done()) {
      player_.chunk(track, rows);
      player_.step();
    }
    return finish(track, want_, kTokens);
  }

  // `count` other sequences come and go beside it: chunked, decoding, verifying; and padding rows.
  int among_strangers(int count) {
    Ints tokens(tokens_.begin(), tokens_.begin() + kShort);
    Track track = player_.open(tokens);
    std::deque<Track> strangers;
    for (int i = 0; i < count; ++i) strangers.push_back(player_.open(stranger(i)));
    for (int step = 0; !track.done(); ++step) {
      for (int i = 0; i < count; ++i) {
        Track& other = strangers[static_cast<std::size_t>(i)];
        if (other.done() || (step + i) % 3 == 2) continue;
        if (i % 3 == 0 || other.computed == 0)
          player_.chunk(other, 1 + (7 * i + step) % 19);
        else
          player_.verify(other, (i + step) % 9, step % 4,
                         i % 3 == 1 && player_.lazy_works() ? Drafts::kLazy : Drafts::kEager);
      }
      player_.chunk(track, step < 3 ? 23 : 9);
      if (step % 2 == 0) player_.padding(3);
      player_.step();
    }
    int wrong = 0;
    for (int i = 0; i < count; ++i) {
      Track& other = strangers[static_cast<std::size_t>(i)];
      wrong += different(other, stranger_rows(i));
      player_.close(other);
    }
    return wrong + finish(track, want_, kShort);
  }

  // A donor leaves snapshots at its page boundaries; a later sequence starts from each. Also counts a slot
  // that a hit wrote.
  int from_cache() {
    Track donor = player_.open(tokens_);
    while (!donor.done()) {
      player_.chunk(donor, 90, true);
      player_.step();
    }
    int wrong = different(donor, want_);
    for (const auto& [boundary, slot] : std::map<int, int>(donor.snapshots)) {
      const std::vector<std::byte> before = player_.slot_bytes(slot);
      Track track = player_.open_from(donor, boundary, tokens_);
      while (!track.done()) {
        player_.chunk(track, 40);
        player_.step();
      }
      wrong += different(track, want_) + (player_.slot_bytes(slot) == before ? 0 : 1);
      EXPECT_EQ(computed(track), kTokens - boundary);
      track.pages.erase(track.pages.begin(), track.pages.begin() + boundary / kPageTokens);
      if (track.slot == slot) track.slot = -1;
      player_.close(track);
    }
    player_.close(donor);
    return wrong;
  }

  // k drafts of which a are right, for the (k, a) of every pair, in batches of sequences with different
  // pairs.
  int verified(Drafts how) {
    std::vector<std::pair<int, int>> pairs;
    for (int k = 1; k <= 15; ++k) {
      for (int a = 0; a <= k; ++a) pairs.emplace_back(k, a);
    }
    std::shuffle(pairs.begin(), pairs.end(), std::mt19937(3));
    if (large_) pairs.resize(30);
    int wrong = 0;
    for (std::size_t next = 0; next < pairs.size();) {
      std::deque<Track> tracks;
      for (int i = 0; i < 3; ++i) {
        tracks.push_back(player_.open(tokens_));
        player_.chunk(tracks.back(), 50 + 7 * i);
      }
      player_.step();
      const auto room = [](const Track& t) { return t.left() > 16; };
      while (next < pairs.size() && std::any_of(tracks.begin(), tracks.end(), room)) {
        for (Track& track : tracks) {
          if (next == pairs.size() || !room(track)) continue;
          player_.verify(track, pairs[next].first, pairs[next].second, how);
          ++next;
        }
        player_.step();
      }
      for (Track& track : tracks) {  // and plain decoding afterwards
        player_.chunk(track, 1);
        player_.step();
        player_.chunk(track, 5);
        player_.step();
        wrong += different(track, want_);
        player_.close(track);
      }
    }
    return wrong;
  }

  // One run for each of {cache} x {speculation} x {mixed batch} x {chunked}.
  int matrix_cell(bool cache, bool speculation, bool mixed, bool chunks) {
    Ints tokens(tokens_.begin(), tokens_.begin() + kShort);
    Track donor, other;
    if (cache) {
      donor = player_.open(tokens);
      player_.chunk(donor, kShort, true);
      player_.step();
    }
    Track track = cache ? player_.open_from(donor, kPageTokens, tokens) : player_.open(tokens);
    if (mixed) other = player_.open(stranger(15));
    const int prompt = kShort - 20;
    while (!track.done()) {
      if (mixed && !other.done()) player_.chunk(other, 6);
      if (track.computed < prompt)
        player_.chunk(track, chunks ? 7 : prompt - track.computed);
      else if (speculation)
        player_.verify(track, 4, track.computed % 5,
                       track.computed % 2 == 0 && player_.lazy_works() ? Drafts::kLazy : Drafts::kEager);
      else
        player_.chunk(track, 1);
      player_.step();
    }
    int wrong = different(track, want_);
    if (mixed) {
      wrong += different(other, stranger_rows(15));
      player_.close(other);
    }
    if (cache) track.pages.erase(track.pages.begin());
    player_.close(track);
    if (cache) player_.close(donor);
    return wrong;
  }

 private:
  Rows alone(const Ints& tokens) {
    Track track = player_.open(tokens);
    player_.chunk(track, static_cast<int>(tokens.size()));
    player_.step();
    player_.close(track);
    return track.logits;
  }

  Ints stranger(int i) const {
    return random_tokens(5 + 11 * i % 83, loaded_.model.vocab_size, 100U + static_cast<unsigned>(i));
  }
  const Rows& stranger_rows(int i) {
    if (!strangers_.contains(i)) {
      const Fault fault = std::exchange(player_.fault, Fault::kNone);
      strangers_[i] = alone(stranger(i));
      player_.fault = fault;
    }
    return strangers_[i];
  }

  int finish(Track& track, const Rows& want, int rows) {
    EXPECT_EQ(computed(track), rows);
    const int wrong = different(track, want);
    player_.close(track);
    return wrong;
  }

  LoadedModel loaded_;
  Player player_;
  Ints tokens_;
  Rows want_;
  std::map<int, Rows> strangers_;
  bool large_ = false;
};

void check(const std::filesystem::path& folder) {
  Suite suite(folder);
  for (const int rows : {1, 17, 63, 64, 65, 100}) EXPECT_EQ(suite.chunked(rows), 0) << "chunks of " << rows;
  for (const int count : {1, 2, 3, 7, 16})
    EXPECT_EQ(suite.among_strangers(count), 0) << count << " strangers";
  EXPECT_EQ(suite.from_cache(), 0) << "from the cache";
  EXPECT_EQ(suite.verified(Drafts::kEager), 0) << "verified, a slot a row";
  EXPECT_TRUE(suite.player().lazy_works()) << "a layer cannot replay";
  EXPECT_EQ(suite.verified(Drafts::kLazy), 0) << "verified, tapes";
  for (int cell = 0; cell < 16; ++cell) {
    EXPECT_EQ(suite.matrix_cell((cell & 1) != 0, (cell & 2) != 0, (cell & 4) != 0, (cell & 8) != 0), 0)
        << "cell " << cell;
  }
}

class SplitInvariance : public testing::TestWithParam<std::string> {};

TEST_P(SplitInvariance, SameBits) { check(golden_folder() / GetParam()); }

INSTANTIATE_TEST_SUITE_P(Models, SplitInvariance, testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

TEST(SplitInvarianceTinyHybrid, SameBits) { check(tiny_hybrid_folder()); }

class PlantedFaults : public testing::Test {
 protected:
  Suite suite_{golden_folder() / "qwen3_5"};
};

TEST_F(PlantedFaults, ForgottenState) {
  suite_.plant(Fault::kForgottenState);
  EXPECT_GT(suite_.chunked(64), 0);
}

TEST_F(PlantedFaults, StrangersState) {
  suite_.plant(Fault::kStrangersState);
  EXPECT_GT(suite_.among_strangers(1), 0);
}

TEST_F(PlantedFaults, WrongPage) {
  suite_.plant(Fault::kWrongPage);
  EXPECT_GT(suite_.among_strangers(16), 0);
}

TEST_F(PlantedFaults, EarlySave) {
  suite_.plant(Fault::kEarlySave);
  EXPECT_GT(suite_.chunked(17), 0);
}

TEST_F(PlantedFaults, EarlySnapshot) {
  suite_.plant(Fault::kEarlySnapshot);
  EXPECT_GT(suite_.from_cache(), 0);
}

TEST_F(PlantedFaults, SharedSlotWritten) {
  suite_.plant(Fault::kSharedWritten);
  EXPECT_GT(suite_.from_cache(), 0);
}

TEST_F(PlantedFaults, RejectedStateKept) {
  suite_.plant(Fault::kKeptRejected);
  EXPECT_GT(suite_.verified(Drafts::kEager), 0);
}

TEST_F(PlantedFaults, StaleTape) {
  suite_.plant(Fault::kStaleTape);
  EXPECT_GT(suite_.verified(Drafts::kLazy), 0);
}

TEST_F(PlantedFaults, ForgottenReplay) {
  suite_.plant(Fault::kForgottenReplay);
  EXPECT_GT(suite_.verified(Drafts::kLazy), 0);
}

}  // namespace
}  // namespace strata::test
