// What the handlers share: engine, tokenizer, chat template, names, limits, counts.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/generator.h"
#include "server/http_server.h"
#include "text/answer_frame.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace strata {

// Makes the token filter of a JSON schema's answers. Keywords it cannot enforce are errors.
using ConstraintMaker =
    std::function<Result<std::shared_ptr<Constraint>>(const Json& schema, const AnswerFrame& frame)>;

// Belongs to the io thread; outlives the server's run().
struct Service {
  Generator* generator = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null when the model has none
  std::vector<std::string> names;                     // the model's ids; the first one is answered with
  ConstraintMaker make_constraint;                    // unset: structured output is refused
  std::function<void(std::function<void()>)> background;  // runs long work off the io thread; unset: at once, on it
  int max_in_flight = 1024;                           // choices being generated
  std::int64_t started = 0;                           // Unix time

  int in_flight = 0;
  bool draining = false;
  std::map<std::pair<std::string, int>, std::uint64_t> responses;  // by path and status
  const HttpStats* http = nullptr;

  // The adapter that a model name means (empty: the base model), or an error. An absent name is the base
  // model.
  tl::expected<std::string, ApiError> adapter_of(const std::optional<std::string>& model) const;
};

// "chatcmpl-" and 24 random letters and digits.
std::string make_id(std::string_view prefix);
std::int64_t unix_time();

}  // namespace strata
