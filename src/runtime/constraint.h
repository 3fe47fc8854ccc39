// Constraint: what restricts the tokens of a request, for example a JSON schema.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace strata {

// Used by one thread at a time: the one that makes a request, then the engine's. States are small values, so that clone() is
// cheap: each choice of a request has its own, and drafts can be checked ahead on a copy.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // Sets bit t of `mask` (32 tokens a word, little end first, zeroed before) for every token that may come next. End tokens
  // are the engine's: they may come where the text is complete and nowhere else.
  virtual void allowed(std::span<std::uint32_t> mask) const = 0;
  // Takes a token that was sampled; false when it was not allowed (the request then fails).
  virtual bool accept(int token) = 0;
  // The text may end here.
  virtual bool complete() const = 0;
  // The text is complete and no token may follow: the engine ends the answer without waiting for an end token.
  virtual bool closed() const = 0;
  virtual std::shared_ptr<Constraint> clone() const = 0;
};

}  // namespace strata
