// Sequence: one request on its way: the tokens known, how many are computed, and what it holds of the pools.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/adapters.h"
#include "runtime/request.h"
#include "runtime/sampler.h"

namespace strata {

// Owned by the engine's thread. Its state after `computed` tokens lies in `slot`, or in `slot` plus the first `tape_rows`
// rows of its tape when it is lazy, or in `start_slot` (a cached snapshot, never written) until its first step has run.
struct Sequence {
  RequestId id = 0;
  Request request;
  EventSink sink;
  std::string root;                 // of the prefix cache: adapter, generation and salt
  std::shared_ptr<const Adapter> lora;  // null = base
  int adapter = -1;                 // LoRA slot of its rows while it runs; -1 = base
  std::uint64_t seed = 0;
  int limit = 0;                    // tokens it may reach, prompt included
  std::vector<int> ends;            // its end tokens: the model's and the request's

  std::vector<int> tokens;          // prompt, then output; the last one may not be computed yet
  int prompt_tokens = 0;
  int computed = 0;                 // tokens whose keys, values and state are in memory
  std::vector<int> pages;
  int slot = -1, start_slot = -1;
  int tape = -1, tape_rows = 0;

  std::vector<int> snapshots_at;    // token counts (whole pages, ascending) at which the prompt's state is to be kept
  int boundary_slot = -1, boundary_tokens = 0;  // the state at the last page boundary passed; 0 = none

  std::vector<int> drafts;          // proposed for this step, after tokens.back()
  std::vector<std::uint64_t> draft_draws;  // the drafts' draws (TokenSource) while they are not known yet; else empty
  int draft_index = -1;             // place in the drafter, while running
  bool followed = true;             // by the drafter, since it was admitted; false: never drafts
  float draft_tries = 0, draft_hits = 0;  // the latest drafts, and those of them that were right
  int draft_rest = 0;               // steps since it was last asked for drafts, while others were
  TokenHistory history;
  std::vector<TokenLogprob> prompt_logprobs;
  Usage usage;

  Clock::time_point arrived, last_token;
  bool first_token_sent = false;

  int known() const { return static_cast<int>(tokens.size()); }
  int remaining() const { return known() - computed; }        // 1 = decoding, more = prefill
  int output_tokens() const { return known() - prompt_tokens; }
};

}  // namespace strata
