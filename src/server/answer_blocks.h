// An answer as a row of blocks (thinking, text, calls), the form of the Responses and Messages APIs.
#pragma once

#include <string>
#include <vector>

#include "server/choice_output.h"

namespace strata {

struct AnswerBlock {
  enum class Kind : unsigned char { kThinking, kText, kCall };
  Kind kind = Kind::kText;
  std::string id;    // a call's
  std::string name;  // a call's function
  std::string text;  // so far; of a call, the arguments' JSON
  bool complete = false;
};

struct BlockEvent {
  enum class Kind : unsigned char { kBegin, kAdd, kEnd };
  Kind kind = Kind::kBegin;
  std::size_t block = 0;  // index
  std::string text;       // what kAdd adds
};

// A value for one choice.
class AnswerBlocks {
 public:
  // Takes a step's delta; what it does to the blocks, in order. At the end, `finished`, the last block ends.
  std::vector<BlockEvent> add(const OutputDelta& delta, bool finished);
  const std::vector<AnswerBlock>& blocks() const { return blocks_; }

 private:
  void say(AnswerBlock::Kind kind, const std::string& text, std::vector<BlockEvent>& out);
  void begin(AnswerBlock block, std::vector<BlockEvent>& out);
  void end(std::vector<BlockEvent>& out);

  std::vector<AnswerBlock> blocks_;
};

}  // namespace strata
