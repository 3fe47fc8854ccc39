// Renders every case that tools/make_jinja_goldens.py recorded with Python's jinja2 and compares the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/jinja.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

class JinjaGolden : public testing::TestWithParam<std::string> {};

// A file is {"templates": [...], "contexts": [...], "cases": [[template, context, text or null], ...],
// "lines": {template: line of its syntax error}}.
TEST_P(JinjaGolden, RendersAsPython) {
  std::ifstream file(std::filesystem::path(STRATA_JINJA_GOLDENS) / GetParam());
  ASSERT_TRUE(file);
  setenv("TZ", "UTC", 1);  // as when the goldens were made
  const Json golden = Json::parse(file);
  jinja::RenderOptions options;
  options.now = 1'700'000'000;

  std::vector<std::optional<jinja::Template>> templates;
  std::vector<std::string> errors;
  for (const auto& source : golden["templates"]) {
    templates.emplace_back();
    errors.emplace_back();
    try {
      templates.back() = jinja::Template::parse(source.get<std::string>());
    } catch (const Error& error) {
      errors.back() = error.what();
    }
  }
  for (const auto& entry : golden["lines"].items()) {
    const size_t index = std::stoul(entry.key());
    EXPECT_TRUE(errors[index].starts_with("line " + entry.value().dump() + ":"))
        << golden["templates"][index] << "\nexpected line " << entry.value() << ", got: " << errors[index];
  }
  size_t failures = 0;
  for (const auto& entry : golden["cases"]) {
    const size_t index = entry[0].get<size_t>();
    const Json& context = golden["contexts"][entry[1].get<size_t>()];
    std::optional<std::string> expected, actual;
    if (!entry[2].is_null()) expected = entry[2].get<std::string>();
    std::string error = errors[index];
    if (templates[index]) {
      if (const auto text = templates[index]->render(context, options)) {
        actual = *text;
      } else {
        error = text.error().message;
      }
    }
    if (actual == expected) continue;
    ADD_FAILURE() << "template: " << golden["templates"][index]
                  << "\ncontext: " << context.dump().substr(0, 300)
                  << "\nexpected: " << (expected ? Json(*expected).dump() : "an error")
                  << "\nactual:   " << (actual ? Json(*actual).dump() : "error: " + error);
    if (++failures == 20) FAIL() << "and more";
  }
  EXPECT_FALSE(golden["cases"].empty());
}

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(STRATA_JINJA_GOLDENS)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& file) {
  return file.param.substr(0, file.param.find('.'));
}

INSTANTIATE_TEST_SUITE_P(Files, JinjaGolden, testing::ValuesIn(golden_files()), test_name);

}  // namespace
}  // namespace strata
