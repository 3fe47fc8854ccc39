#include "player.h"

#include <algorithm>
#include <cstring>

namespace strata::test {

Ints random_tokens(int count, int vocab, unsigned seed) {
  std::mt19937 random(seed);
  Ints out;
  for (int i = 0; i < count; ++i)
    out.push_back(static_cast<std::int32_t>(2 + random() % static_cast<unsigned>(vocab - 2)));
  return out;
}

int different(const Track& track, const Rows& want) {
  int n = 0;
  for (std::size_t i = 0; i < track.logits.size(); ++i) {
    const auto& got = track.logits[i];
    if (!got.empty() && std::memcmp(got.data(), want[i].data(), got.size() * sizeof(float)) != 0) ++n;
  }
  return n;
}

Player::Player(LoadedModel& loaded, int pages, int slots, int tapes)
    : loaded_(loaded), pools_(loaded.model, pages, slots, tapes) {
  for (int i = 0; i < pages; ++i)
    pages_.push_back(i * 7 % pages);  // neighbours in a table are not neighbours in memory
  for (int i = 1; i < slots; ++i) slots_.push_back(i);
  for (int i = 0; i < tapes; ++i) tapes_.push_back(i);
  for (const StateSpec& spec : loaded.model.states()) {
    const auto* recurrent = std::get_if<Recurrent>(&spec);
    lazy_works_ = lazy_works_ && (recurrent == nullptr || !recurrent->tape.empty());
  }
}

int Player::take(std::deque<int>& from) {
  STRATA_CHECK(!from.empty(), "the player's pools are too small");
  const int i = from.front();
  from.pop_front();
  return i;
}

Track Player::open(Ints tokens) {
  Track track{.tokens = std::move(tokens)};
  const auto need =
      (track.tokens.size() + 16 + kPageTokens - 1) / kPageTokens;  // and room for rejected drafts
  while (track.pages.size() < need) track.pages.push_back(take(pages_));
  track.logits.resize(track.tokens.size());
  return track;
}

Track Player::open_from(const Track& donor, int tokens, const Ints& all) {
  Track track = open(all);
  for (int i = 0; i < tokens / kPageTokens; ++i) {
    auto& page = track.pages[static_cast<std::size_t>(i)];
    pages_.push_back(page);
    page = donor.pages[static_cast<std::size_t>(i)];
  }
  track.slot = donor.snapshots.at(tokens);
  track.computed = tokens;
  return track;
}

void Player::close(Track& track) {
  for (const int page : track.pages) pages_.push_back(page);
  if (track.slot >= 0) slots_.push_back(track.slot);
  if (track.tape >= 0) tapes_.push_back(track.tape);
  for (const auto& [tokens, slot] : track.snapshots) slots_.push_back(slot);
}

// Rows [computed, computed + rows) as they are, from the state as it lies.
Piece Player::piece(Track& track, int rows) {
  const auto from = track.tokens.begin() + track.computed;
  Piece p{.tokens = Ints(from, from + std::min(rows, track.left())),
          .start = track.computed,
          .pages = track.pages,
          .state_in = track.slot,
          .adapter = track.adapter};
  if (track.replay > 0) {
    p.tape = track.tape;
    p.replay = track.replay;
    if (fault == Fault::kStaleTape && p.replay < kTapeRows) ++p.replay;
    if (fault == Fault::kForgottenReplay) p.replay = 0;
  }
  if (track.computed > 0 && fault == Fault::kForgottenState) p.state_in = -1;
  if (track.computed > 0 && fault == Fault::kStrangersState && !queue_.empty())
    p.state_in = queue_.front().track->slot;
  if (track.computed >= kPageTokens && fault == Fault::kWrongPage && !queue_.empty())
    p.pages[0] = queue_.front().track->pages[0];
  return p;
}

void Player::chunk(Track& track, int rows, bool snapshots) {
  rows = std::min(rows, track.left());
  Piece p = piece(track, rows);
  const bool shared = std::any_of(track.snapshots.begin(), track.snapshots.end(),
                                  [&](const auto& s) { return s.second == track.slot; });
  const bool hit = track.computed > 0 && track.logits[static_cast<std::size_t>(track.computed) - 1].empty();
  if (track.slot < 0 || shared || (hit && fault != Fault::kSharedWritten)) track.slot = take(slots_);
  const int early = fault == Fault::kEarlySave ? 1 : 0;
  for (int row = 0; row < rows; ++row) {
    const int tokens = track.computed + row + 1;
    if (snapshots && tokens % kPageTokens == 0) {
      const int at = fault == Fault::kEarlySnapshot ? row - 1 : row;
      p.saves.emplace_back(at, track.snapshots[tokens] = take(slots_));
    }
  }
  p.saves.emplace_back(std::max(0, rows - 1 - early), track.slot);
  std::stable_sort(p.saves.begin(), p.saves.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  track.replay = 0;
  queue_.push_back({&track, std::move(p), rows});
  track.computed += rows;
}

void Player::verify(Track& track, int drafts, int right, Drafts how) {
  drafts = std::min(drafts, track.left() - 1);
  right = std::min(right, drafts);
  Piece p = piece(track, drafts + 1);
  for (int i = right + 1; i <= drafts; ++i) {
    auto& token = p.tokens[static_cast<std::size_t>(i)];
    token = (token + 1) % loaded_.model.vocab_size;
  }
  if (how == Drafts::kLazy) {
    if (track.tape < 0) track.tape = take(tapes_);
    p.tape = track.tape;
    p.state_out = track.slot;
    track.replay = right + 1;
  } else {
    // Rows 0 .. drafts each to a slot of their own; the one after the last accepted row becomes the
    // sequence's.
    Ints own;
    for (int i = 0; i <= drafts; ++i) {
      own.push_back(take(slots_));
      p.saves.emplace_back(i, own.back());
    }
    if (track.slot >= 0) slots_.push_back(track.slot);
    const int kept = fault == Fault::kKeptRejected ? drafts : right;
    track.slot = own[static_cast<std::size_t>(kept)];
    for (const int slot : own) {
      if (slot != track.slot) slots_.push_back(slot);
    }
    track.replay = 0;
  }
  queue_.push_back({&track, std::move(p), right + 1});
  track.computed += right + 1;
}

void Player::padding(int rows) {
  queue_.push_back(
      {nullptr, Piece{.tokens = Ints(static_cast<std::size_t>(rows), 0), .saves = {{rows - 1, dummy_slot_}}},
       0});
}

void Player::step() {
  std::vector<Piece> pieces;
  for (const Queued& q : queue_) pieces.push_back(q.piece);
  const StepRows out = loaded_.run(pools_, pieces);
  std::size_t row = 0;
  for (const Queued& q : queue_) {
    for (int i = 0; i < q.keep; ++i)
      q.track->logits[static_cast<std::size_t>(q.piece.start + i)] =
          out.logits[row + static_cast<std::size_t>(i)];
    row += q.piece.tokens.size();
  }
  queue_.clear();
}

}  // namespace strata::test
