#include "text/tokenizer_components.h"

namespace strata {

void shorten_words(const Vocabulary& vocabulary, PreTokenizer& pre_tokenizer) {
  if (vocabulary.find(kSpaceMark) < 0) return;  // then a mark joins runs of unknown characters
  std::bitset<256> spanned;                     // last bytes of characters that some token has before a mark
  for (int id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    for (size_t mark = token.find(kSpaceMark); mark != std::string_view::npos;
         mark = token.find(kSpaceMark, mark + 1)) {
      if (mark > 0 && !token.substr(0, mark).ends_with(kSpaceMark))
        spanned.set(static_cast<uint8_t>(token[mark - 1]));
    }
  }
  pre_tokenizer.add_split_before_runs(std::string(kSpaceMark), spanned);
}

}  // namespace strata
