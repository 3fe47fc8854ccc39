#include "server/structured.h"

#include <list>
#include <mutex>

#include "text/json_schema.h"
#include "text/token_masks.h"

namespace strata {
namespace {

constexpr std::size_t kKeptGrammars = 16;

// A grammar with its masks, which all constraints of its schema share.
class SharedGrammar {
 public:
  SharedGrammar(Grammar grammar, std::shared_ptr<const Tokenizer> tokenizer,
                std::shared_ptr<const TokenTree> tree)
      : grammar_(std::move(grammar)),
        tokenizer_(std::move(tokenizer)),
        tree_(std::move(tree)),
        masks_(grammar_, *tree_) {}

  const Grammar& grammar() const { return grammar_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  void allowed(const GrammarState& state, std::span<std::uint32_t> mask) {
    std::lock_guard lock(mutex_);
    masks_.allowed(state, mask);
  }

 private:
  const Grammar grammar_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const TokenTree> tree_;
  std::mutex mutex_;
  TokenMasks masks_;
};

class JsonConstraint final : public Constraint {
 public:
  explicit JsonConstraint(std::shared_ptr<SharedGrammar> shared)
      : shared_(std::move(shared)), state_(GrammarState::start(shared_->grammar())) {}

  void allowed(std::span<std::uint32_t> mask) const override { shared_->allowed(state_, mask); }
  bool accept(int token) override {
    const std::string_view bytes = shared_->tokenizer().id_to_bytes(token);
    if (bytes.empty()) return false;
    if (shared_->tokenizer().is_special(token) && !state_.free(shared_->grammar())) return false;
    return state_.take(shared_->grammar(), bytes);
  }
  bool complete() const override { return state_.complete(); }
  bool closed() const override { return state_.closed(); }
  std::shared_ptr<Constraint> clone() const override { return std::make_shared<JsonConstraint>(*this); }

 private:
  std::shared_ptr<SharedGrammar> shared_;
  GrammarState state_;
};

class ConstraintCache {
 public:
  explicit ConstraintCache(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)), tree_(std::make_shared<TokenTree>(*tokenizer_)) {}

  Result<std::shared_ptr<Constraint>> make(const Json& schema, const AnswerFrame& frame) {
    Key key{schema.dump(), frame};
    auto it = kept_.begin();
    while (it != kept_.end() && it->first != key) ++it;
    if (it == kept_.end()) {
      auto grammar = compile_schema(schema, frame);
      if (!grammar) return tl::unexpected<RequestError>(grammar.error());
      kept_.emplace_front(std::move(key),
                          std::make_shared<SharedGrammar>(std::move(*grammar), tokenizer_, tree_));
      if (kept_.size() > kKeptGrammars) kept_.pop_back();
    } else {
      kept_.splice(kept_.begin(), kept_, it);
    }
    return std::make_shared<JsonConstraint>(kept_.front().second);
  }

 private:
  using Key = std::pair<std::string, AnswerFrame>;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const TokenTree> tree_;
  std::list<std::pair<Key, std::shared_ptr<SharedGrammar>>> kept_;  // the last used first
};

Result<Json> read_schema(const Json& format, const std::string& path) {
  Fields fields(format, path + ".");
  const auto type = fields.text("type");
  const Json* outer = fields.object("json_schema");
  if (fields.failed()) return fields.error();
  if (!type) return bad_request(path + ".type is missing", path + ".type");
  if (*type == "text") return Json();
  if (*type == "json_object") return Json{{"type", "object"}};
  if (*type != "json_schema")
    return bad_request(path + ".type must be text, json_object or json_schema", path + ".type");
  // The responses API has the schema one level higher.
  Fields described(outer ? *outer : format, outer ? path + ".json_schema." : path + ".");
  const Json* schema = described.object("schema");
  if (described.failed()) return described.error();
  if (!schema) return bad_request(path + " has no schema", path);
  return *schema;
}

}  // namespace

ConstraintMaker json_constraints(std::shared_ptr<const Tokenizer> tokenizer) {
  auto cache = std::make_shared<ConstraintCache>(std::move(tokenizer));
  return [cache](const Json& schema, const AnswerFrame& frame) { return cache->make(schema, frame); };
}

Result<std::shared_ptr<Constraint>> read_response_format(const Service& service, const Json* format,
                                                         const std::string& path, const AnswerFrame& frame) {
  if (!format) return nullptr;
  const auto schema = read_schema(*format, path);
  if (!schema) return tl::unexpected<RequestError>(schema.error());
  if (schema->is_null()) return nullptr;
  if (!service.make_constraint) return bad_request("this server cannot enforce a " + path, path);
  auto constraint = service.make_constraint(*schema, frame);
  if (!constraint) return bad_request(constraint.error().message, path);
  return constraint;
}

Result<std::shared_ptr<Constraint>> answer_constraint(const Service& service,
                                                      const Conversation& conversation,
                                                      const ChatPrompt& prompt, const Json* format,
                                                      const std::string& path) {
  auto constraint = read_response_format(service, format, path, answer_frame(service, conversation, prompt));
  if (!constraint || !*constraint) return constraint;
  if (conversation.continue_final_message)
    return bad_request(path + " cannot be combined with continue_final_message", path);
  if (!prompt.forced.empty()) return nullptr;
  return constraint;
}

}  // namespace strata
