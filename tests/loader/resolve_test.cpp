// What --model may name, against a hub cache laid out in a temporary folder.
#include "loader/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loader/temp_folder.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HubCache : public testing::Test {
 protected:
  std::string fault(const std::string& model) {
    return error_of([&] { resolve_model(model, hub_.path()); });
  }
  TempFolder hub_;
};

TEST_F(HubCache, FoldersAndFilesAreThemselves) {
  EXPECT_EQ(resolve_model(hub_.path().string()), hub_.path());
  const auto file = hub_.write("m.safetensors", "x");
  EXPECT_EQ(resolve_model(file.string(), hub_.path()), file);
}

TEST_F(HubCache, TheSnapshotOfRefsMainIsUsed) {
  hub_.write("models--Org--Some-Model.1B/snapshots/aaa/config.json", "{}");
  hub_.write("models--Org--Some-Model.1B/snapshots/bbb/config.json", "{}");
  hub_.write("models--Org--Some-Model.1B/refs/main", "bbb\n");
  EXPECT_EQ(resolve_model("Org/Some-Model.1B", hub_.path()),
            hub_ / "models--Org--Some-Model.1B/snapshots/bbb");
  hub_.write("models--gpt/snapshots/ccc/config.json", "{}");
  EXPECT_EQ(resolve_model("gpt", hub_.path()), hub_ / "models--gpt/snapshots/ccc");  // the only one there
}

TEST_F(HubCache, ErrorsSayWhatWasTried) {
  EXPECT_THAT(fault("Org/None"),
              AllOf(HasSubstr("Org/None: no such file or folder"),
                    HasSubstr((hub_ / "models--Org--None").string() + " (no such folder)")));
  hub_.write("models--Org--Part/refs/main", "ddd");
  EXPECT_THAT(fault("Org/Part"), HasSubstr("refs/main names snapshot ddd, which is not there"));
  hub_.write("models--Org--Two/snapshots/a/x", "");
  hub_.write("models--Org--Two/snapshots/b/x", "");
  EXPECT_THAT(fault("Org/Two"), HasSubstr("no refs/main, and 2 snapshots"));
  for (const char* odd : {"/no/such/folder", "a/b/c", "../x", "a b/c", "org/", ".hidden"}) {
    EXPECT_THAT(fault(odd), HasSubstr("not a Hugging Face id")) << odd;
  }
  EXPECT_EQ(fault(""), "no model given");
}

}  // namespace
}  // namespace strata
