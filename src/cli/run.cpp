// strata run: a chat on the terminal, or one answer.
#include <histedit.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/generate.h"
#include "cli/load.h"
#include "text/text_stream.h"

namespace strata {
namespace {

struct RunFlags {
  ModelFlags model;
  std::string system, prompt;
  std::optional<float> temperature, top_p;
  std::optional<int> top_k;
  int max_tokens = -1;
  std::optional<std::uint64_t> seed;
  bool stats = false, raw = false;
};

class Chat {
 public:
  Chat(const RunFlags& flags, Loaded loaded) : flags_(flags), loaded_(std::move(loaded)) { clear(); }

  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!flags_.system.empty()) messages_.push_back({{"role", "system"}, {"content", flags_.system}});
  }

  // Answers and remembers both sides; false when Ctrl-C cut the answer short.
  bool answer(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    std::string text;
    const bool whole = generate(prompt_tokens(question), text);
    messages_.push_back({{"role", "assistant"}, {"content", text}});
    return whole;
  }

 private:
  std::vector<int> prompt_tokens(const std::string& question) const {
    if (flags_.raw || loaded_.chat_template == nullptr) return loaded_.tokenizer->encode(question);
    const auto prompt = loaded_.chat_template->render({.messages = messages_});
    if (!prompt) throw Error("{}", prompt.error().message);
    return loaded_.tokenizer->encode(*prompt, {.add_special = false});
  }

  bool generate(std::vector<int> prompt, std::string& answer) {
    const auto started = Clock::now();
    Request request;
    request.prompt = std::move(prompt);
    request.adapter = loaded_.adapter;
    request.max_tokens = flags_.max_tokens;
    request.sampling = loaded_.engine->info().defaults;
    if (flags_.temperature) request.sampling.temperature = *flags_.temperature;
    if (flags_.top_p) request.sampling.top_p = *flags_.top_p;
    if (flags_.top_k) request.sampling.top_k = *flags_.top_k;
    request.sampling.seed = flags_.seed;
    const Interrupt interrupt;
    Generation generation(*loaded_.engine, std::move(request));
    TextStream stream(*loaded_.tokenizer, {});
    bool aborted = false;
    double first = 0;
    const auto say = [&](const std::string& piece) {
      answer += piece;
      std::cout << piece << std::flush;
    };
    while (true) {
      if (interrupt.pressed() && !aborted) {
        generation.abort();
        aborted = true;
      }
      const auto event = generation.wait(std::chrono::milliseconds(50));
      if (!event) continue;
      if (first == 0 && !event->tokens.empty()) first = std::chrono::duration<double>(Clock::now() - started).count();
      std::string piece;
      for (const int token : event->tokens) stream.add(token, piece);
      if (event->finish != FinishReason::kNone) stream.finish(piece);
      say(piece);
      if (event->finish == FinishReason::kNone) continue;
      std::cout << std::endl;
      if (event->finish == FinishReason::kError) throw Error("{}", event->error);
      if (event->finish == FinishReason::kLength) std::cerr << "(cut: the token limit is reached)\n";
      if (flags_.stats) print_stats(event->usage, first, std::chrono::duration<double>(Clock::now() - started).count());
      return !aborted;
    }
  }

  static void print_stats(const Usage& u, double first, double total) {
    const double rest = u.output_tokens > 1 ? (u.output_tokens - 1) / (total - first) : 0;
    std::cerr << fmt::format("[prompt {} tokens ({} cached), first token {:.1f} ms, {} tokens at {:.1f} tokens/s", u.prompt_tokens,
                             u.cached_tokens, first * 1e3, u.output_tokens, rest);
    if (u.drafted_tokens > 0) std::cerr << fmt::format(", {} of {} drafts accepted", u.accepted_tokens, u.drafted_tokens);
    std::cerr << "]\n";
  }

  const RunFlags& flags_;
  Loaded loaded_;
  nlohmann::ordered_json messages_;
};

void greet(const RunFlags& flags, const ModelInfo& info) {
  std::cout << fmt::format("Strata, talking to {} ({}).\n", info.name, info.architecture);
  if (flags.model.model.empty()) {
    std::cout << "This is a demo of 12 million parameters, trained on a small world of its own. It can recall facts you tell it,\n"
                 "reckon, count, sort, reverse, repeat, write JSON and tell tiny stories. Try:\n"
                 "  What is 12 + 30?\n"
                 "  Think step by step: 12 + 30 + 7 = ?\n"
                 "  Remember these facts. The room of Ada is 2956. The room of Vito is 9309.   then:  Tell me the room of Ada.\n"
                 "  Tell me a story about a fox.\n"
                 "For a bigger model: make run MODEL=smollm2, or strata run --model FOLDER (safetensors) or FILE.gguf\n";
  }
  std::cout << "/clear starts over, /quit or Ctrl-D leaves, Ctrl-C stops an answer.\n";
}

int chat_lines(Chat& chat) {  // questions from a pipe
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "/quit") break;
    if (line == "/clear") {
      chat.clear();
    } else if (!line.empty()) {
      chat.answer(line);
    }
  }
  return 0;
}

int chat_terminal(Chat& chat) {
  const std::unique_ptr<EditLine, void (*)(EditLine*)> edit(el_init("strata", stdin, stdout, stderr), el_end);
  const std::unique_ptr<History, void (*)(History*)> past(history_init(), history_end);
  HistEvent event;
  history(past.get(), &event, H_SETSIZE, 500);
  el_set(edit.get(), EL_PROMPT, +[](EditLine*) { return const_cast<char*>("> "); });
  el_set(edit.get(), EL_EDITOR, "emacs");
  el_set(edit.get(), EL_HIST, history, past.get());
  el_set(edit.get(), EL_SIGNAL, 1);
  while (true) {
    int count = 0;
    const char* text = el_gets(edit.get(), &count);
    if (text == nullptr || count <= 0) break;
    std::string line(text, static_cast<std::size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    history(past.get(), &event, H_ENTER, line.c_str());
    if (line == "/quit" || line == "/exit") break;
    if (line == "/clear") {
      chat.clear();
      continue;
    }
    try {
      chat.answer(line);
    } catch (const Error& e) {  // a question that does not fit; the chat goes on
      std::cerr << e.what() << '\n';
    }
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace

Command add_run_command(CLI::App& root) {
  auto* app = root.add_subcommand("run", "Chat with a model, or answer one prompt");
  auto f = std::make_shared<RunFlags>();
  f->model.engine.max_sequences = 1;
  add_model_flags(*app, f->model);
  add_lora_flag(*app, f->model);
  app->add_option("PROMPT", f->prompt, "Answer this and exit; without it, chat");
  app->add_option("--system", f->system, "System message");
  app->add_option("--temperature", f->temperature, "0 = greedy (default: the model's suggestion)")->check(CLI::NonNegativeNumber);
  app->add_option("--top-p", f->top_p, "Nucleus sampling")->check(CLI::Range(0.0, 1.0));
  app->add_option("--top-k", f->top_k, "Sample among the k best; 0 = off");
  app->add_option("--max-tokens", f->max_tokens, "Tokens of an answer at most")->check(CLI::PositiveNumber);
  app->add_option("--seed", f->seed, "Makes sampling reproducible");
  app->add_flag("--stats", f->stats, "Show tokens/s and the time to the first token");
  app->add_flag("--raw", f->raw, "Do not apply the chat template");
  return {app, [f] {
            Loaded loaded = load(f->model);
            const ModelInfo info = loaded.engine->info();
            if (f->model.model.empty() && !f->temperature) f->temperature = 0;  // the demo's tasks have one right answer
            Chat chat(*f, std::move(loaded));
            if (!f->prompt.empty()) return chat.answer(f->prompt) ? 0 : 130;
            if (isatty(STDIN_FILENO) == 0) return chat_lines(chat);
            greet(*f, info);
            return chat_terminal(chat);
          }};
}

}  // namespace strata
