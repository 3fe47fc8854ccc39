#include "server/answer_blocks.h"

#include <utility>

#include "server/service.h"

namespace strata {

std::vector<BlockEvent> AnswerBlocks::add(const OutputDelta& delta, bool finished) {
  std::vector<BlockEvent> out;
  if (!delta.reasoning.empty()) say(AnswerBlock::Kind::kThinking, delta.reasoning, out);
  for (const ToolDelta& d : delta.rest) switch (d.kind) {
      case ToolDelta::Kind::kContent:
        say(AnswerBlock::Kind::kText, d.text, out);
        break;
      case ToolDelta::Kind::kCallStart:
        begin({AnswerBlock::Kind::kCall, make_id("call_"), d.text, {}, false}, out);
        break;
      case ToolDelta::Kind::kArguments:
        say(AnswerBlock::Kind::kCall, d.text, out);
        break;
      case ToolDelta::Kind::kCallEnd:
        end(out);
        break;
    }
  if (finished) end(out);
  return out;
}

void AnswerBlocks::say(AnswerBlock::Kind kind, const std::string& text, std::vector<BlockEvent>& out) {
  if (blocks_.empty() || blocks_.back().complete || blocks_.back().kind != kind)
    begin({kind, {}, {}, {}, false}, out);
  blocks_.back().text += text;
  out.push_back({BlockEvent::Kind::kAdd, blocks_.size() - 1, text});
}

void AnswerBlocks::begin(AnswerBlock block, std::vector<BlockEvent>& out) {
  end(out);
  blocks_.push_back(std::move(block));
  out.push_back({BlockEvent::Kind::kBegin, blocks_.size() - 1, {}});
}

void AnswerBlocks::end(std::vector<BlockEvent>& out) {
  if (blocks_.empty() || std::exchange(blocks_.back().complete, true)) return;
  out.push_back({BlockEvent::Kind::kEnd, blocks_.size() - 1, {}});
}

}  // namespace strata
