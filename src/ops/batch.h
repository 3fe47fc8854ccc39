// Batch: one step's rows of many sequences, packed; the only thing a layer knows of scheduling.
#pragma once

#include "tensor/tensor.h"

namespace strata {

class LoraTables;  // ops/lora.h

// Extents known to the host. Padded ones (CUDA graphs) may exceed what is used: padding rows have kv_slot -1 and belong
// to a padding sequence that saves only into the dummy slot. A padding save is (rows, -1): of no row.
struct BatchShape {
  int rows = 0;           // T
  int sequences = 0;      // S
  int logit_rows = 0;     // L
  int saves = 0;          // N
  int longest_run = 0;    // most rows of one sequence
  int longest_context = 0;  // most tokens of one sequence after this step
  bool adapters = false;    // some row has a LoRA adapter
  bool operator==(const BatchShape&) const = default;
};

// Sequence s owns rows [first[s], first[s+1]). All tensors are i32, on the backend's device. Prefill, chunk, decode and
// verify differ in numbers only (DESIGN: one row or many, which slot the recurrence starts from, which rows are saved).
struct Batch {
  BatchShape shape;
  Tensor tokens;      // [T]
  Tensor positions;   // [T], or [3, T] for M-RoPE: what RoPE rotates by
  Tensor sequence;    // [T]    the sequence a row belongs to
  Tensor first;       // [S+1]
  Tensor start;       // [S]    index in its sequence of the sequence's first row: row t has index start[s] + t - first[s]
  Tensor page_table;  // [S, max_pages]
  Tensor kv_slots;    // [T]    page * kPageTokens + offset, where row t's k and v go; -1 = padding row, writes nothing
  Tensor state_in;    // [S]    slot the recurrence starts from; -1 = zeros
  Tensor saves;       // [N, 2] (row, slot), rows ascending: after this row, keep the running state there
  Tensor logit_rows;  // [L]

  // LoRA: empty tensors and null when every row is base.
  Tensor adapters;        // [T]  adapter slot of the row; -1 = base
  Tensor logit_adapters;  // [L]  likewise, of the logit rows
  const LoraTables* lora = nullptr;  // what the slots add to each matrix

  // Lazy slots: a state kept as a base slot and a tape of the inputs of the rows since (verify moves one state read and
  // one write however many rows it checks). Empty tensors when no sequence uses a tape.
  Tensor tape;        // [S]    tape of the sequence; -1 = none, the plain meaning above
  Tensor replay;      // [S]    rows of the tape to run from state_in before the first row
  Tensor state_out;   // [S]    slot that receives the state after the replayed rows (may equal state_in); -1 = none
};

inline constexpr int kPageTokens = 64;  // tokens in a KV page; also the chunk of the chunked recurrence
inline constexpr int kTapeRows = 16;    // rows a tape holds: 15 drafts and the row before them

}  // namespace strata
