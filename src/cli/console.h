// The terminal: a progress bar, and Ctrl-C that stops what runs first and the program second.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace strata {

// Draws on stderr when that is a terminal and the work takes longer than half a second; erases itself at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(std::size_t done, std::size_t total);

 private:
  std::string title_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point started_, last_;
};

// While one lives, the first Ctrl-C only sets pressed(); the second ends the program. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  bool pressed() const;
};

}  // namespace strata
