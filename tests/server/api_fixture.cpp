#include "server/api_fixture.h"

namespace strata::test {

std::shared_ptr<const ChatTemplate> ApiTest::load_template(const std::string& folder) {
  return std::make_shared<ChatTemplate>(*ChatTemplate::load(folder));
}

}  // namespace strata::test
