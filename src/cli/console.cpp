#include "cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>

namespace strata {
namespace {

std::atomic<int> presses{0};

void on_interrupt(int) {
  if (presses.fetch_add(1) > 0) _exit(130);
}

}  // namespace

ProgressBar::ProgressBar(std::string title)
    : title_(std::move(title)), terminal_(isatty(STDERR_FILENO) != 0), started_(std::chrono::steady_clock::now()), last_(started_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::show(std::size_t done, std::size_t total) {
  const auto now = std::chrono::steady_clock::now();
  using std::chrono::milliseconds;
  if (!terminal_ || total == 0 || now - started_ < milliseconds(500) || now - last_ < milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) * kWidth);
  std::fprintf(stderr, "\r%s [%.*s%*s] %3d %%", title_.c_str(), filled, "##############################", kWidth - filled, "",
               static_cast<int>(done * 100 / total));
}

Interrupt::Interrupt() {
  presses = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() { std::signal(SIGINT, SIG_DFL); }

bool Interrupt::pressed() const { return presses > 0; }

}  // namespace strata
