#include "text/token_masks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "text/utf8.h"

namespace strata {
namespace {

constexpr int kUnknown = -2, kDead = -1;

void set_bit(std::span<std::uint32_t> mask, int token) {
  const auto t = static_cast<std::size_t>(token);
  if (t / 32 < mask.size()) mask[t / 32] |= std::uint32_t{1} << (t % 32);
}

// Characters of a token that may stand in a JSON string wherever it is cut; 0 if it is not such a token.
int plain_chars(std::string_view bytes) {
  if (!is_valid_utf8(bytes)) return 0;
  int chars = 0;
  for (const char c : bytes) {
    if (static_cast<std::uint8_t>(c) < 0x20 || c == '"' || c == '\\') return 0;
    chars += (static_cast<std::uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  }
  return chars;
}

using Entry = std::pair<std::string_view, int>;

TokenTree::Part part_of(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end());
  TokenTree::Part out;
  std::vector<std::uint32_t> open;  // nodes on the way to the last entry
  std::string_view last;
  const auto close = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back())
      out.nodes[open.back()].after = static_cast<std::uint32_t>(out.nodes.size());
  };
  for (const auto& [bytes, token] : entries) {
    const auto same = static_cast<std::size_t>(
        std::mismatch(bytes.begin(), bytes.end(), last.begin(), last.end()).first - bytes.begin());
    close(same);
    for (std::size_t i = same; i < bytes.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(out.nodes.size()));
      out.nodes.push_back({0, static_cast<std::uint32_t>(out.tokens.size()),
                           static_cast<std::uint16_t>(i + 1), 0, static_cast<std::uint8_t>(bytes[i])});
    }
    TokenTree::Node& node = out.nodes[open.back()];
    if (node.count == 0xFF) continue;  // 255 tokens of the same bytes are enough
    if (node.count == 0) node.first = static_cast<std::uint32_t>(out.tokens.size());
    ++node.count;
    out.tokens.push_back(token);
    last = bytes;
  }
  close(0);
  return out;
}

std::vector<TokenTree::Token> tokens_of(const Tokenizer& tokenizer) {
  std::vector<TokenTree::Token> out;
  for (int t = 0; t < tokenizer.vocab_size(); ++t)
    out.push_back({tokenizer.id_to_bytes(t), tokenizer.is_special(t)});
  return out;
}

}  // namespace

TokenTree::TokenTree(const Tokenizer& tokenizer) : TokenTree(tokens_of(tokenizer)) {}

TokenTree::TokenTree(std::span<const Token> tokens) {
  words_ = (tokens.size() + 31) / 32;
  plain_masks_.assign(kPlainChars, std::vector<std::uint32_t>(words_));
  std::vector<Entry> plain, rest, special;
  for (int token = 0; token < static_cast<int>(tokens.size()); ++token) {
    const auto& [bytes, is_special] = tokens[static_cast<std::size_t>(token)];
    if (bytes.empty() || bytes.size() > 0xFFFF) continue;
    longest_ = std::max(longest_, static_cast<int>(bytes.size()));
    const int chars = plain_chars(bytes);
    if (is_special) {
      special.emplace_back(bytes, token);
    } else if (chars == 0 || chars > kPlainChars) {
      rest.emplace_back(bytes, token);
    } else {
      plain.emplace_back(bytes, token);
      for (int i = chars; i <= kPlainChars; ++i)
        set_bit(plain_masks_[static_cast<std::size_t>(i) - 1], token);
    }
  }
  plain_ = part_of(std::move(plain));
  rest_ = part_of(std::move(rest));
  special_ = part_of(std::move(special));
}

struct TokenMasks::State {
  GrammarState grammar;
  std::array<int, 256> next;
  bool filled = false;
  std::vector<int> few;             // the tokens of a mask with few of them
  std::vector<std::uint32_t> many;  // or its words
};

TokenMasks::TokenMasks(const Grammar& grammar, const TokenTree& tree)
    : grammar_(grammar), tree_(tree), path_(static_cast<std::size_t>(tree.longest()) + 1) {}
TokenMasks::~TokenMasks() = default;

std::size_t TokenMasks::Hash::operator()(const std::vector<int>& key) const {
  std::size_t h = key.size();
  for (const int k : key) h = (h ^ static_cast<std::size_t>(k)) * 0x9E3779B97F4A7C15u + (h >> 29);
  return h;
}

int TokenMasks::id_of(const GrammarState& state) {
  GrammarState same = state.canonical(grammar_, tree_.longest());
  std::vector<int> key = same.key();
  const std::size_t size = 2 * key.size() * sizeof(int) + sizeof(State);
  const auto [it, fresh] = ids_.try_emplace(std::move(key), static_cast<int>(states_.size()));
  if (fresh) {
    states_.push_back(std::make_unique<State>());
    states_.back()->grammar = std::move(same);
    states_.back()->next.fill(kUnknown);
    used_ += size;
  }
  return it->second;
}

int TokenMasks::next(int id, std::uint8_t byte) {
  const int known = states_[static_cast<std::size_t>(id)]->next[byte];
  if (known != kUnknown) return known;
  GrammarState state = states_[static_cast<std::size_t>(id)]->grammar;
  state.step(grammar_, byte);
  const int target = state.dead() ? kDead : id_of(state);
  states_[static_cast<std::size_t>(id)]->next[byte] = target;
  return target;
}

void TokenMasks::walk(int from, const TokenTree::Part& part, std::vector<std::uint32_t>& mask) {
  path_[0] = from;
  const auto nodes = static_cast<std::uint32_t>(part.nodes.size());
  for (std::uint32_t i = 0; i < nodes;) {
    const TokenTree::Node& node = part.nodes[i];
    const int state = next(path_[node.depth - 1u], node.byte);
    if (state < 0) {
      i = node.after;
      continue;
    }
    path_[node.depth] = state;
    for (std::uint32_t t = node.first; t < node.first + node.count; ++t) set_bit(mask, part.tokens[t]);
    ++i;
  }
}

int TokenMasks::plain_room(const GrammarState& state) const {
  const GrammarState::Thread* text = nullptr;
  int room = 0;
  for (const auto& thread : state.threads()) {
    if (thread.node < 0) continue;
    const GrammarNode& node = grammar_.nodes[static_cast<std::size_t>(thread.node)];
    if (!node.text) continue;
    const int limit = grammar_.rules[static_cast<std::size_t>(node.rule)].limit;
    const int left = limit == kNoLimit ? TokenTree::kPlainChars : limit - thread.count + 1;
    if (left <= room) continue;
    room = left;
    text = &thread;
  }
  if (room >= TokenTree::kPlainChars || text == nullptr) return std::min(room, TokenTree::kPlainChars);
  // Longer tokens are out only if no other reading of the text takes them.
  static const ByteSet plain = without(byte_range(0x20, 0xF4), "\"\\");
  const int rule = grammar_.nodes[static_cast<std::size_t>(text->node)].rule;
  for (const auto& thread : state.threads()) {
    if (thread.node < 0) continue;
    const GrammarNode& node = grammar_.nodes[static_cast<std::size_t>(thread.node)];
    const bool same = node.rule == rule && thread.count == text->count && thread.calls == text->calls;
    if (!same && meets(grammar_.sets[static_cast<std::size_t>(node.arg)], plain)) return 0;
  }
  return room;
}

void TokenMasks::fill(int id) {
  std::vector<std::uint32_t> mask(tree_.words());
  const GrammarState state = states_[static_cast<std::size_t>(id)]->grammar;
  const int room = plain_room(state);
  if (room > 0) {
    const auto plain = tree_.plain_up_to(room);
    std::copy(plain.begin(), plain.end(), mask.begin());
  } else {
    walk(id, tree_.plain(), mask);
  }
  walk(id, tree_.rest(), mask);
  if (state.free(grammar_)) walk(id, tree_.special(), mask);

  State& kept = *states_[static_cast<std::size_t>(id)];
  kept.filled = true;
  std::size_t tokens = 0;
  for (const std::uint32_t word : mask) tokens += static_cast<std::size_t>(std::popcount(word));
  if (tokens >= mask.size()) {
    kept.many = std::move(mask);
  } else {
    kept.few.reserve(tokens);
    for (std::size_t w = 0; w < mask.size(); ++w)
      for (std::uint32_t bits = mask[w]; bits != 0; bits &= bits - 1)
        kept.few.push_back(static_cast<int>(w * 32) + std::countr_zero(bits));
  }
  used_ += (kept.few.size() + kept.many.size()) * sizeof(int);
}

void TokenMasks::allowed(const GrammarState& state, std::span<std::uint32_t> mask) {
  if (used_ > budget_) {
    ids_.clear();
    states_.clear();
    used_ = 0;
  }
  const int id = id_of(state);
  if (!states_[static_cast<std::size_t>(id)]->filled) fill(id);
  const State& kept = *states_[static_cast<std::size_t>(id)];
  for (const int token : kept.few) set_bit(mask, token);
  for (std::size_t w = 0; w < std::min(mask.size(), kept.many.size()); ++w) mask[w] |= kept.many[w];
}

}  // namespace strata
