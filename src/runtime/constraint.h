// Constraint: what restricts the tokens of a request, for example a JSON schema.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace strata {

// Used by the engine's thread alone. States are small values so that drafts can be checked ahead and dropped: the engine
// copies a constraint with clone(), advances the copy over drafted tokens, and throws it away.
class Constraint {
 public:
  virtual ~Constraint() = default;
  // Sets bit t of `mask` (32 tokens a word, little end first, zeroed before) for every token that may come next.
  virtual void allowed(std::span<std::uint32_t> mask) const = 0;
  // Takes a token that was sampled; false when it was not allowed (the request then fails).
  virtual bool accept(int token) = 0;
  // Nothing more may come but an end token.
  virtual bool complete() const = 0;
  virtual std::shared_ptr<Constraint> clone() const = 0;
};

}  // namespace strata
