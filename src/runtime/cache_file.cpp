#include "runtime/cache_file.h"

#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "ops/batch.h"

namespace strata {
namespace {

constexpr char kMagic[] = "strata prefix cache 1\n";

// What place `id` has in every layer, page or slot.
std::vector<Tensor> places(std::span<const Memory> memory, int id, bool slot) {
  std::vector<Tensor> out;
  const auto add = [&](const Tensor& t) {
    if (!t.empty()) out.push_back(t.rows_from(id, 1));
  };
  for (const Memory& m : memory) {
    if (const auto* kv = std::get_if<KvView>(&m); kv != nullptr && !slot) {
      for (const Tensor* t : {&kv->k, &kv->v, &kv->index}) add(*t);
    } else if (const auto* state = std::get_if<StateView>(&m); state != nullptr && slot) {
      for (const Tensor& t : state->tensors) add(t);
    }
  }
  return out;
}

void put(std::string& to, const void* data, std::size_t bytes) { to.append(static_cast<const char*>(data), bytes); }
void put_number(std::string& to, std::uint64_t n) { put(to, &n, sizeof n); }

// Takes things off the front of the file's bytes; Error when they end early.
class Reader {
 public:
  Reader(std::string_view bytes, const std::filesystem::path& path) : rest_(bytes), path_(path) {}
  std::string_view take(std::uint64_t n) {
    if (n > rest_.size()) throw Error("{}: the file ends early", path_.string());
    const auto out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  std::uint64_t number() {
    std::uint64_t n = 0;
    std::memcpy(&n, take(sizeof n).data(), sizeof n);
    return n;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  const std::filesystem::path& path_;
};

struct Record {
  std::string root;
  std::vector<int> tokens;
  bool snapshot = false;
  std::string_view page, slot;  // bytes over all layers
};

std::size_t total(const std::vector<Tensor>& tensors) {
  std::size_t n = 0;
  for (const Tensor& t : tensors) n += t.bytes();
  return n;
}

void put(std::string& to, const std::vector<Tensor>& tensors, Ops& ops) {
  for (const Tensor& t : tensors) {
    to.resize(to.size() + t.bytes());
    ops.read(to.data() + to.size() - t.bytes(), t);
  }
}

void fill(const std::vector<Tensor>& tensors, std::string_view from, Ops& ops) {
  for (const Tensor& t : tensors) {
    ops.write(t, from.data());
    from.remove_prefix(t.bytes());
  }
}

Record read_record(Reader& in, std::size_t page_bytes, std::size_t slot_bytes, const std::filesystem::path& path) {
  const std::string_view begin = in.rest();
  Record r;
  r.root = std::string(in.take(in.number()));
  const std::uint64_t tokens = in.number();
  if (tokens % kPageTokens != 0) throw Error("{}: a record of {} tokens", path.string(), tokens);
  const std::string_view bytes = in.take(tokens * sizeof(int));
  r.tokens.resize(tokens);
  std::memcpy(r.tokens.data(), bytes.data(), bytes.size());
  r.snapshot = in.number() != 0;
  r.page = in.take(page_bytes);
  if (r.snapshot) r.slot = in.take(slot_bytes);
  const auto length = static_cast<std::size_t>(in.rest().data() - begin.data());
  if (in.number() != XXH3_64bits(begin.data(), length)) throw Error("{}: a checksum is wrong", path.string());
  return r;
}

}  // namespace

int save_cache(const std::filesystem::path& path, const std::string& fingerprint, const PrefixCache& cache,
               std::span<const Memory> memory, Ops& ops, bool (*accept_root)(const std::string& root)) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  std::vector<PrefixCache::Entry> entries = cache.entries();
  std::erase_if(entries, [&](const auto& e) { return !accept_root(e.root); });
  std::string head = kMagic;
  put_number(head, fingerprint.size());
  head += fingerprint;
  put_number(head, entries.size());
  out << head;
  std::string record;
  for (const auto& e : entries) {
    record.clear();
    put_number(record, e.root.size());
    record += e.root;
    put_number(record, e.tokens.size());
    put(record, e.tokens.data(), e.tokens.size() * sizeof(int));
    put_number(record, e.slot >= 0 ? 1 : 0);
    put(record, places(memory, e.page, false), ops);
    if (e.slot >= 0) put(record, places(memory, e.slot, true), ops);
    put_number(record, XXH3_64bits(record.data(), record.size()));
    out << record;
  }
  out.close();
  if (!out) throw Error("{}: cannot be written", part.string());
  std::filesystem::rename(part, path);
  return static_cast<int>(entries.size());
}

int restore_cache(const std::filesystem::path& path, const std::string& fingerprint, PrefixCache& cache, RefPool& pages,
                  RefPool& slots, std::span<const Memory> memory, Ops& ops) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error("{}: cannot be read", path.string());
  std::ostringstream buffer;
  buffer << file.rdbuf();
  const std::string bytes = std::move(buffer).str();
  Reader in(bytes, path);
  if (in.take(sizeof kMagic - 1) != kMagic) throw Error("{}: not a prefix cache of this version", path.string());
  if (in.take(in.number()) != fingerprint) throw Error("{}: made by another model or with other settings", path.string());
  const std::uint64_t count = in.number();
  const std::size_t page_bytes = total(places(memory, 0, false)), slot_bytes = total(places(memory, 0, true));
  std::vector<Record> records;
  for (std::uint64_t i = 0; i < count; ++i) records.push_back(read_record(in, page_bytes, slot_bytes, path));
  if (!in.rest().empty()) throw Error("{}: {} bytes too many", path.string(), in.rest().size());

  int restored = 0;
  for (const Record& r : records) {
    const int page = pages.acquire();
    if (page < 0) break;
    fill(places(memory, page, false), r.page, ops);
    if (!cache.append(r.root, r.tokens, page)) {
      pages.release(page);  // its parent did not fit, or it is there already
      continue;
    }
    pages.release(page);
    ++restored;
    if (!r.snapshot) continue;
    const int slot = slots.acquire();
    if (slot < 0) continue;
    fill(places(memory, slot, true), r.slot, ops);
    cache.attach(r.root, r.tokens, slot);
    slots.release(slot);
  }
  return restored;
}

}  // namespace strata
