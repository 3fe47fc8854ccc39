#include "server/metrics_text.h"

#include <fmt/format.h>

#include <iterator>

#include "server/handlers.h"

namespace strata {

void MetricsText::family(std::string_view name, std::string_view help, std::string_view type) {
  fmt::format_to(std::back_inserter(text_), "# HELP strata_{} {}\n# TYPE strata_{} {}\n", name, help, name,
                 type);
}

void MetricsText::sample(std::string_view name, std::string_view labels, double value) {
  fmt::format_to(std::back_inserter(text_), "strata_{}{}{}{} {}\n", name, labels.empty() ? "" : "{", labels,
                 labels.empty() ? "" : "}", value);
}

void MetricsText::single(std::string_view name, std::string_view help, std::string_view type, double value) {
  family(name, help, type);
  sample(name, {}, value);
}

void MetricsText::histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
  family(name, help, "histogram");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const std::string bound = i < histogram.bounds.size() ? fmt::format("{}", histogram.bounds[i]) : "+Inf";
    sample(fmt::format("{}_bucket", name), metric_label("le", bound), static_cast<double>(below));
  }
  if (histogram.counts.empty()) sample(fmt::format("{}_bucket", name), metric_label("le", "+Inf"), 0);
  sample(fmt::format("{}_sum", name), {}, histogram.sum);
  sample(fmt::format("{}_count", name), {}, static_cast<double>(below));
}

std::string metric_label(std::string_view name, std::string_view value) {
  std::string out(name);
  out += "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out += '"';
}

namespace {

void write_engine(MetricsText& out, const EngineMetrics& m) {
  out.gauge("requests_running", "Requests in the running batch.", m.running);
  out.gauge("requests_waiting", "Requests waiting to run.", m.waiting);
  out.family("pages", "KV pages by state.", "gauge");
  out.sample("pages", metric_label("state", "used"), m.pages_used);
  out.sample("pages", metric_label("state", "cached"), m.pages_cached);
  out.sample("pages", metric_label("state", "free"), m.pages_total - m.pages_used - m.pages_cached);
  out.family("state_slots", "Recurrent-state slots by state.", "gauge");
  out.sample("state_slots", metric_label("state", "used"), m.slots_used);
  out.sample("state_slots", metric_label("state", "cached"), m.slots_cached);
  out.sample("state_slots", metric_label("state", "free"), m.slots_total - m.slots_used - m.slots_cached);

  const auto total = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    out.counter(name, help, static_cast<double>(value));
  };
  const auto by = [&](std::string_view name, std::string_view help, std::string_view label,
                      const auto& values) {
    out.family(name, help, "counter");
    for (const auto& [key, value] : values)
      out.sample(name, metric_label(label, key), static_cast<double>(value));
  };
  by("requests_total", "Finished requests by outcome.", "outcome", m.requests);
  total("prompt_tokens_total", "Tokens of prompts.", m.prompt_tokens);
  total("output_tokens_total", "Tokens generated.", m.output_tokens);
  total("computed_tokens_total", "Rows computed, of prompts and generated.", m.computed_tokens);
  total("cached_tokens_total", "Prompt tokens taken from the prefix cache.", m.cached_tokens);
  total("steps_total", "Steps of the engine.", m.steps);
  total("split_steps_total", "Verify passes split because they exceeded one op call.", m.split_steps);
  total("preemptions_total", "Sequences preempted when pages or slots ran out.", m.preemptions);
  total("prefix_cache_queried_tokens_total", "Prompt tokens looked up in the prefix cache.",
        m.cache_queries_tokens);
  total("prefix_cache_hit_tokens_total", "Prompt tokens found in the prefix cache.", m.cache_hit_tokens);
  by("prefix_cache_misses_total", "Lookups that found less than they asked for, by reason.", "reason",
     m.cache_misses);
  total("drafted_tokens_total", "Tokens drafted.", m.drafted);
  total("accepted_tokens_total", "Drafted tokens accepted.", m.accepted);
  total("verify_steps_total", "Steps that verified drafts.", m.verify_steps);
  total("verify_rows_total", "Rows of verify passes.", m.verify_rows);
  const auto by_adapter = [&](std::string_view name, std::string_view help, auto count) {
    out.family(name, help, "counter");
    for (const auto& [adapter, drafts] : m.adapter_drafts)
      out.sample(name, metric_label("adapter", adapter), static_cast<double>(drafts.*count));
  };
  using Drafts = std::pair<std::uint64_t, std::uint64_t>;
  by_adapter("adapter_drafted_tokens_total", "Tokens drafted, by LoRA adapter.", &Drafts::first);
  by_adapter("adapter_accepted_tokens_total", "Drafted tokens accepted, by LoRA adapter.", &Drafts::second);
  total("adapter_loads_total", "LoRA adapters brought into a slot.", m.adapter_loads);
  out.gauge("adapters_in_use", "LoRA slots that running requests use.", m.adapters_in_use);
  const auto at_position = [&](std::string_view name, std::string_view help,
                               const std::vector<std::uint64_t>& values) {
    out.family(name, help, "counter");
    for (std::size_t i = 0; i < values.size(); ++i)
      out.sample(name, metric_label("position", std::to_string(i + 1)), static_cast<double>(values[i]));
  };
  at_position("drafted_at_total", "Tokens drafted, by position in the draft.", m.drafted_at);
  at_position("accepted_at_total", "Drafted tokens accepted, by position in the draft.", m.accepted_at);
  out.histogram("time_to_first_token_seconds", "From submission to the first token.", m.ttft);
  out.histogram("inter_token_seconds", "Between tokens of one request.", m.inter_token);
  out.histogram("queue_seconds", "From submission to the first step.", m.queue);
  out.histogram("step_seconds", "Duration of a step.", m.step);
  by("step_part_seconds_total", "Time in steps by part.", "part", m.step_seconds);
  by("device_seconds_total", "Time in which the GPU had work, by part of a step.", "part", m.device_seconds);
}

void write_server(MetricsText& out, const Service& service) {
  out.gauge("healthy", "1 while the engine can serve.", service.generator->healthy() ? 1 : 0);
  out.gauge("generations_in_flight", "Choices being generated for open HTTP requests.", service.in_flight);
  out.family("http_responses_total", "HTTP responses by path and status.", "counter");
  for (const auto& [key, count] : service.responses)
    out.sample("http_responses_total",
               metric_label("path", key.first) + "," + metric_label("status", std::to_string(key.second)),
               static_cast<double>(count));
  if (!service.http) return;
  out.gauge("http_connections", "Open connections.", service.http->connections);
  out.counter("http_connections_total", "Connections accepted.", static_cast<double>(service.http->accepted));
  out.counter("http_refused_connections_total", "Connections refused at the limit.",
              static_cast<double>(service.http->refused_connections));
  out.counter("http_malformed_requests_total", "Requests that were no HTTP or over a limit.",
              static_cast<double>(service.http->malformed_requests));
  out.counter("http_disconnects_total", "Clients that left before the end of their answer.",
              static_cast<double>(service.http->disconnects));
  out.counter("http_cut_off_total", "Clients cut off because they took their answer too slowly.",
              static_cast<double>(service.http->cut_off));
}

}  // namespace

void metrics_page(Service& service, const std::shared_ptr<Exchange>& exchange) {
  MetricsText out;
  write_engine(out, service.generator->metrics());
  write_server(out, service);
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = out.text();
  exchange->respond(std::move(response));
}

}  // namespace strata
