// Player: plays sequences through a model the way a runtime may cut, mix, cache and draft them, and keeps
// every row's logits.
#pragma once

#include <deque>
#include <optional>
#include <random>

#include "model_fixture.h"

namespace strata::test {

// A mistake that a runtime could make, planted to see that the tests notice.
enum class Fault {
  kNone,
  kForgottenState,   // a chunk starts from zeros
  kStrangersState,   // a chunk starts from another sequence's slot
  kEarlySave,        // the state is saved one row before the last
  kEarlySnapshot,    // the snapshot is taken one row before the page boundary
  kSharedWritten,    // a hit saves into the snapshot's slot
  kKeptRejected,     // after a verify step the slot of the last row is kept, not of the last accepted one
  kStaleTape,        // one row too many is replayed
  kForgottenReplay,  // the tape is not replayed
  kWrongPage,        // a row's page table has another sequence's page
};

enum class Drafts { kNone, kEager, kLazy };

// A sequence on its way: `tokens` are what it will turn out to be.
struct Track {
  Ints tokens;
  Ints pages = {};
  int computed = 0;
  int slot = -1;              // its state; -1 = none yet
  int tape = -1, replay = 0;  // rows of the tape that `slot` does not hold yet
  int adapter = -1;
  Rows logits = {};                   // of row i at [i]
  std::map<int, int> snapshots = {};  // tokens -> slot
  bool done() const { return computed == static_cast<int>(tokens.size()); }
  int left() const { return static_cast<int>(tokens.size()) - computed; }
};

Ints random_tokens(int count, int vocab, unsigned seed);
// Rows that differ from `want` in any bit, of those that were computed.
int different(const Track& track, const Rows& want);

// One model, its pools and their free lists. Freed pages and slots keep their contents and are given out
// last.
class Player {
 public:
  Player(LoadedModel& loaded, int pages, int slots, int tapes);

  Track open(Ints tokens);
  // A new sequence on the first `tokens` (whole pages) of another, from its snapshot.
  Track open_from(const Track& donor, int tokens, const Ints& all);
  void close(Track& track);

  // Queues rows of a track for the next step.
  void chunk(Track& track, int rows, bool snapshots = false);  // snapshots: at every page boundary inside
  void verify(Track& track, int drafts, int right, Drafts how);
  void padding(int rows);
  void step();

  std::vector<std::byte> slot_bytes(int slot) const { return pools_.slot_bytes(slot); }
  bool lazy_works() const { return lazy_works_; }

  Fault fault = Fault::kNone;

 private:
  struct Queued {
    Track* track;
    Piece piece;
    int keep;  // rows whose logits count
  };
  int take(std::deque<int>& from);
  Piece piece(Track& track, int rows);

  LoadedModel& loaded_;
  Pools pools_;
  std::deque<int> pages_, slots_, tapes_;
  int dummy_slot_ = 0;
  bool lazy_works_ = true;
  std::vector<Queued> queue_;
};

}  // namespace strata::test
