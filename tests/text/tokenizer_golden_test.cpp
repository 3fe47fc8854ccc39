// Encoding and decoding equal the reference's on every recorded text (tools/make_tokenizer_goldens.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace strata {
namespace {

const std::filesystem::path kGolden = STRATA_TOKENIZER_GOLDENS;

std::filesystem::path tokenizer_path(const std::string& name) {
  if (name == "tiny_hybrid") return STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json";
  return kGolden / (name + ".tokenizer.json");
}

std::vector<std::string> names() {
  constexpr std::string_view kEnding = ".cases.json";
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kGolden)) {
    const std::string file = entry.path().filename().string();
    if (file.ends_with(kEnding)) found.push_back(file.substr(0, file.size() - kEnding.size()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  TokenizerGolden() : tokenizer_(Tokenizer::from_json_file(tokenizer_path(GetParam()))) {
    std::ifstream(kGolden / (GetParam() + ".cases.json")) >> data_;
  }

  Tokenizer tokenizer_;
  nlohmann::json data_;
};

TEST_P(TokenizerGolden, Encodes) {
  ASSERT_GT(data_["cases"].size(), 100u);
  for (const auto& item : data_["cases"]) {
    const std::string text = item["text"];
    SCOPED_TRACE(nlohmann::json(text).dump(-1, ' ', true));
    const auto ids = item["ids"].get<std::vector<int>>();
    EXPECT_EQ(tokenizer_.encode(text), ids);
    EXPECT_EQ(tokenizer_.encode(text, {.add_special = false}), item.value("plain", ids));
    EXPECT_EQ(tokenizer_.encode(text, {.parse_special = false}), item.value("literal", ids));
  }
}

TEST_P(TokenizerGolden, Decodes) {
  ASSERT_GT(data_["decode"].size(), 100u);
  for (const auto& item : data_["decode"]) {
    SCOPED_TRACE(item.dump(-1, ' ', true));
    const auto ids = item["ids"].get<std::vector<int>>();
    const std::string skip = item["skip"];
    EXPECT_EQ(tokenizer_.decode(ids, true), skip);
    EXPECT_EQ(tokenizer_.decode(ids, false), item.value("all", skip));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace strata
