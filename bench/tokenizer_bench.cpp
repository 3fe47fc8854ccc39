// Speed of tokenizing and of streaming text back, on one thread: bytes of text per second.
//
// The text is the model's own evaluation prompts, English sentences and arithmetic; the vocabulary is small, so
// words take more merges than they would with a published one.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace strata {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded =
      Tokenizer::from_json_file(STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json");
  return loaded;
}

const std::string& text() {
  static const std::string loaded = [] {
    std::ifstream file(STRATA_SOURCE_DIR "/models/tiny-hybrid/eval_long.jsonl");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return loaded;
}

void encode(benchmark::State& state) {
  const std::string_view piece = std::string_view(text()).substr(0, static_cast<size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer().encode(piece));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * piece.size()));
}
BENCHMARK(encode)->Arg(1 << 10)->Arg(1 << 14)->Arg(1 << 19);

void stream(benchmark::State& state) {
  const std::vector<int> ids = tokenizer().encode(std::string_view(text()).substr(0, 1 << 16));
  for (auto _ : state) {
    Detokenizer detokenizer(tokenizer());
    std::string out;
    for (const int id : ids) detokenizer.add(id, out);
    detokenizer.finish(out);
    benchmark::DoNotOptimize(out);
  }
  state.SetBytesProcessed(state.iterations() * (1 << 16));
}
BENCHMARK(stream);

void load(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Tokenizer::from_json_file(STRATA_SOURCE_DIR "/models/tiny-hybrid/tokenizer.json"));
  }
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
