// The Prometheus text format, version 0.0.4.
#pragma once

#include <string>
#include <string_view>

#include "runtime/metrics.h"

namespace strata {

// Writes metrics one by one. A value for one page.
class MetricsText {
 public:
  void gauge(std::string_view name, std::string_view help, double value) {
    single(name, help, "gauge", value);
  }
  void counter(std::string_view name, std::string_view help, double value) {
    single(name, help, "counter", value);
  }
  // A family with labels: describe it once, then each of its samples. `labels` is name="value",...
  void family(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view labels, double value);
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void single(std::string_view name, std::string_view help, std::string_view type, double value);
  std::string text_;
};

// A label with its value quoted as the format wants it.
std::string metric_label(std::string_view name, std::string_view value);

}  // namespace strata
