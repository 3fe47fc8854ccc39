#include "server/generation_options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace strata {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

void read_logit_bias(Fields& fields, const ModelInfo& model, SamplingParams& sampling) {
  const Json* bias = fields.object("logit_bias");
  if (!bias) return;
  for (const auto& [key, value] : bias->items()) {
    int token = -1;
    const char* end = key.data() + key.size();
    const bool number = std::from_chars(key.data(), end, token).ptr == end && !key.empty();
    if (!number || token < 0 || token >= model.vocab_size)
      return fields.fail("logit_bias",
                         fmt::format("has the token {:?}; ids go from 0 to {}",
                                     std::string_view(key).substr(0, 20), model.vocab_size - 1));
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100))
      return fields.fail("logit_bias",
                         fmt::format("of token {} must be a number between -100 and 100", token));
    sampling.logit_bias.emplace_back(token, value.get<float>());
  }
}

void read_stop_tokens(Fields& fields, const ModelInfo& model, std::vector<int>& out) {
  const Json* tokens = fields.array("stop_token_ids");
  if (!tokens) return;
  for (const Json& token : *tokens) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() >= model.vocab_size)
      return fields.fail("stop_token_ids",
                         fmt::format("must hold token ids from 0 to {}", model.vocab_size - 1));
    out.push_back(token.get<int>());
  }
}

template <typename To, typename From>
void set(To& to, const std::optional<From>& value) {
  if (value) to = static_cast<To>(*value);
}

}  // namespace

GenerationOptions read_options(Fields& fields, const ModelInfo& model, const char* stop) {
  GenerationOptions out;
  SamplingParams& sampling = out.sampling = model.defaults;
  set(sampling.temperature, fields.number("temperature", 0, 100));
  set(sampling.top_k, fields.integer("top_k", -1, kMaxInt));
  set(sampling.top_p, fields.number("top_p", 0, 1));
  set(sampling.min_p, fields.number("min_p", 0, 1));
  set(sampling.repetition_penalty, fields.number("repetition_penalty", 0.01, 100));
  set(sampling.presence_penalty, fields.number("presence_penalty", -2, 2));
  set(sampling.frequency_penalty, fields.number("frequency_penalty", -2, 2));
  set(sampling.min_tokens, fields.integer("min_tokens", 0, kMaxInt));
  set(sampling.ignore_eos, fields.flag("ignore_eos"));
  if (auto seed = fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()))
    sampling.seed = static_cast<std::uint64_t>(*seed);
  read_logit_bias(fields, model, sampling);
  read_stop_tokens(fields, model, out.stop_tokens);

  out.stops = fields.texts(stop);
  if (out.stops.size() > kMaxStops)
    fields.fail(stop, fmt::format("has {} strings; {} are possible", out.stops.size(), kMaxStops));
  for (const std::string& text : out.stops)
    if (text.empty() || text.size() > 4096) fields.fail(stop, "must hold strings of 1 to 4096 bytes");
  set(out.include_stop, fields.flag("include_stop_str_in_output"));
  set(out.skip_special, fields.flag("skip_special_tokens"));
  set(out.choices, fields.integer("n", 1, kMaxChoices));
  set(out.stream, fields.flag("stream"));
  set(out.priority, fields.integer("priority", -1'000'000, 1'000'000));
  out.timeout_seconds = fields.number("timeout", 0.001, 1e6);
  set(out.cache_salt, fields.text("cache_salt"));
  if (out.cache_salt.size() > 1024) fields.fail("cache_salt", "must be of at most 1024 bytes");
  if (const Json* stream = fields.object("stream_options")) {
    Fields options(*stream, "stream_options.");
    set(out.stream_usage, options.flag("include_usage"));
    if (options.failed()) fields.fail("stream_options", "is wrong: " + options.error().value().message);
  }
  return out;
}

std::optional<int> read_top_logprobs(Fields& fields, const char* name, const ModelInfo& model) {
  const auto value = fields.integer(name, 0, std::min(kMaxTopLogprobs, model.vocab_size));
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

Request make_request(const GenerationOptions& options, std::vector<int> prompt, const std::string& adapter,
                     int choice) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = options.sampling;
  if (request.sampling.seed) *request.sampling.seed += static_cast<std::uint64_t>(choice);
  request.max_tokens = options.max_tokens;
  request.logprobs = options.logprobs;
  request.prompt_logprobs = choice == 0 ? options.prompt_logprobs : -1;
  request.stop_tokens = options.stop_tokens;
  request.priority = options.priority;
  if (options.timeout_seconds)
    request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(*options.timeout_seconds));
  request.adapter = adapter;
  request.cache_salt = options.cache_salt;
  return request;
}

}  // namespace strata
