// strata serve: the HTTP server over one model.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/load.h"
#include "server/app.h"
#include "server/engine_generator.h"
#include "server/health_watch.h"
#include "server/http_server.h"
#include "server/structured.h"

namespace strata {
namespace {

struct ServeFlags {
  ModelFlags model;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::vector<std::string> names, keys, adapters;
  std::string key_file, max_body = "32MiB";
  int max_connections = 1024, max_in_flight = 1024;
  double drain_seconds = 30, header_seconds = 10, body_seconds = 60, write_seconds = 30, idle_seconds = 75;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

HttpLimits limits_of(const ServeFlags& f) {
  HttpLimits limits;
  limits.body_bytes = parse_bytes(f.max_body);
  limits.total_body_bytes = std::max(limits.total_body_bytes, limits.body_bytes);
  limits.connections = f.max_connections;
  limits.header_timeout = milliseconds(f.header_seconds);
  limits.body_timeout = milliseconds(f.body_seconds);
  limits.write_timeout = milliseconds(f.write_seconds);
  limits.idle_timeout = milliseconds(f.idle_seconds);
  return limits;
}

ApiKeys keys_of(const ServeFlags& f) {
  std::vector<std::string> keys = f.keys;
  if (!f.key_file.empty())
    for (std::string& key : ApiKeys::read_file(f.key_file)) keys.push_back(std::move(key));
  return ApiKeys(std::move(keys));
}

// "polite=models/polite": the adapter in a folder under a name.
void add_adapter(Service& service, const std::string& text) {
  const std::size_t at = text.find('=');
  const std::string name = text.substr(0, at);
  if (at == std::string::npos || name.empty()) throw Error("--lora must be NAME=PATH, is '{}'", text);
  if (std::find(service.names.begin(), service.names.end(), name) != service.names.end())
    throw Error("--lora {}: that is the base model's name", text);
  if (const auto loaded = service.generator->load_adapter(name, text.substr(at + 1), false); !loaded)
    throw Error("--lora {}: {}", text, loaded.error().message);
}

int serve(const ServeFlags& f) {
  const ApiKeys keys = keys_of(f);
  const HttpLimits limits = limits_of(f);
  const Loaded loaded = load(f.model);
  EngineGenerator generator(*loaded.engine);  // the server, below, is gone before the engine
  Service service;
  service.generator = &generator;
  service.tokenizer = loaded.tokenizer;
  service.chat_template = loaded.chat_template;
  service.make_constraint = json_constraints(loaded.tokenizer);
  service.names = f.names.empty() ? std::vector<std::string>{generator.info().name} : f.names;
  service.max_in_flight = f.max_in_flight;
  service.started = unix_time();
  for (const std::string& adapter : f.adapters) add_adapter(service, adapter);
  boost::asio::thread_pool background(1);  // joined, its work done, before the engine goes
  service.background = [&](std::function<void()> work) { boost::asio::post(background, std::move(work)); };
  App app(service, keys);
  HttpServer server(app, limits);
  service.http = &server.stats();
  const std::uint16_t port = server.listen(f.host, f.port);
  server.drain_on_signals(milliseconds(f.drain_seconds), [&] { service.draining = true; });
  const bool v6 = f.host.find(':') != std::string::npos;
  std::printf(
      "Strata serves %s at http://%s%s%s:%d - a chat page there, the OpenAI API under /v1, Anthropic's at "
      "/v1/messages. Ctrl-C ends it.\n",
      service.names.front().c_str(), v6 ? "[" : "", f.host.c_str(), v6 ? "]" : "", port);
  std::fflush(stdout);
  {
    const HealthWatch watch(generator, server, std::chrono::seconds(2));
    server.run();
  }
  if (generator.healthy()) return 0;
  std::fprintf(stderr, "strata: the engine has failed and cannot go on\n");
  return 1;
}

}  // namespace

Command add_serve_command(CLI::App& root) {
  auto flags = std::make_shared<ServeFlags>();
  ServeFlags& f = *flags;
  CLI::App* app =
      root.add_subcommand("serve", "Serve a model over HTTP: OpenAI's and Anthropic's APIs and a chat page");
  add_model_flags(*app, f.model);
  app->add_option("--host", f.host, "Address to listen on; 0.0.0.0 for every interface")
      ->capture_default_str();
  app->add_option("--port,-p", f.port, "Port; 0 takes a free one")->capture_default_str();
  app->add_option("--served-model-name", f.names, "Ids the model is known by (default: its folder's name)");
  app->add_option("--lora", f.adapters,
                  "A LoRA adapter (a folder as PEFT writes it) and the model id it is known by: NAME=PATH "
                  "(repeat for more)");
  app->add_option("--max-loras", f.model.engine.max_loras,
                  "LoRA adapters in use at once; more are loaded and take turns; 0 = none")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_option("--max-lora-rank", f.model.engine.max_lora_rank, "Rank of a LoRA adapter at most")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--api-key", f.keys, "A key callers must send (repeat for more)");
  app->add_option("--api-key-file", f.key_file, "A file with one key a line");
  app->add_option("--max-body", f.max_body, "Size of a request's body at most")->capture_default_str();
  app->add_option("--max-connections", f.max_connections, "Open connections at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--max-in-flight", f.max_in_flight, "Generations running or waiting at most; more get 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--drain-seconds", f.drain_seconds, "How long open requests may go on after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("--header-seconds", f.header_seconds, "Time for a request's headers to arrive")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--body-seconds", f.body_seconds, "Time for a request's body to arrive")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--write-seconds", f.write_seconds, "Time a client may take nothing of its answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_option("--idle-seconds", f.idle_seconds, "Time a connection may lie idle between requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  return {app, [flags] { return serve(*flags); }};
}

}  // namespace strata
