// Saving the prefix cache to a file and restoring it after a restart.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "ops/ops.h"
#include "runtime/prefix_cache.h"

namespace strata {

// The file (little-endian) holds a header (magic, `fingerprint`, number of entries), then one record for each page of the
// tree, parents first: root, tokens from the root, whether a snapshot follows, the bytes of the page in every layer, the bytes of the
// slot. Each record ends in the XXH3 of its bytes. `fingerprint` names whatever must be equal for the bytes to mean the same:
// model, weights' types, layers' memory.
//
// `memory` is that of `ops`. Only roots that accept_root() takes are saved (those of adapters die with the process).

// Writes a new file and renames it over `path`. Returns the number of pages. Throws Error.
int save_cache(const std::filesystem::path& path, const std::string& fingerprint, const PrefixCache& cache,
               std::span<const Memory> memory, Ops& ops, bool (*accept_root)(const std::string& root));

// Reads all of it before it changes anything; stops quietly when the pools are full. Returns the number of pages restored.
// Throws Error naming the file and what is wrong with it: damaged, of another model, of another version.
int restore_cache(const std::filesystem::path& path, const std::string& fingerprint, PrefixCache& cache, RefPool& pages,
                  RefPool& slots, std::span<const Memory> memory, Ops& ops);

}  // namespace strata
