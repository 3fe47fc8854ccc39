#include "text/normalizer.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

std::string apply(const Normalizer& normalizer, std::string_view text) {
  std::string storage;
  return std::string(normalizer.apply(text, storage));
}

TEST(Normalizer, ComposesAcrossSegments) {
  Normalizer nfc;
  nfc.add_form(NormalForm::kNfc);
  EXPECT_EQ(apply(nfc, "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(apply(nfc,
                  "\xCC\x81"
                  "ae\xCC\x81z\xC3\xA9q\xCC\x87\xCC\xA3 o"),
            "\xCC\x81"
            "a\xC3\xA9z\xC3\xA9q\xCC\xA3\xCC\x87 o");
  EXPECT_EQ(apply(nfc, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");  // Hangul
  EXPECT_EQ(apply(nfc, "\xC3\xA4\xCC\x84x"), "\xC7\x9Fx");  // a mark on a composed letter
  EXPECT_EQ(apply(nfc,
                  "a\xE4\xBD\xA0"
                  "e\xCC\x81\xE4\xBD\xA0"
                  "e"),
            "a\xE4\xBD\xA0\xC3\xA9\xE4\xBD\xA0"
            "e");
  EXPECT_EQ(apply(nfc, "\xE2\x84\xAB"), "\xC3\x85");  // Angstrom sign
  EXPECT_EQ(apply(nfc, ""), "");
}

TEST(Normalizer, LeavesTextInPlaceWhereNothingChanges) {
  Normalizer normalizer;
  normalizer.add_form(NormalForm::kNfc);
  normalizer.add_replace_text("x", "y");
  std::string storage;
  const std::string_view text = "plain \xC3\xA9";
  EXPECT_EQ(normalizer.apply(text, storage).data(), text.data());
}

TEST(Normalizer, StepsFollowOneAnother) {
  Normalizer normalizer;
  normalizer.add_strip(true, true);
  normalizer.add_lowercase();
  normalizer.add_prepend("_");
  normalizer.add_replace_text(" ", "_");
  normalizer.add_replace(SplitRegex("_{2,}"), "$1");
  EXPECT_EQ(apply(normalizer, "\xC2\xA0 A  B \xC4\xB0 \t"), "_a$1b_i\xCC\x87");
  EXPECT_EQ(apply(normalizer, " \t"), "");
  Normalizer erase;
  erase.add_replace(SplitRegex("."), "");
  erase.add_prepend("_");
  EXPECT_EQ(apply(erase, "abc"), "");
}

}  // namespace
}  // namespace strata
