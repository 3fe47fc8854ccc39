#include "loader/resolve.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

fs::path home_folder() {
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? user->pw_dir : "/";
}

// "org/name" or "name", of the characters the hub allows.
bool is_hub_id(const std::string& s) {
  const bool allowed = std::all_of(s.begin(), s.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  const auto slash = s.find('/');
  return allowed && !s.empty() && s.front() != '/' && s.back() != '/' && s.find("..") == std::string::npos &&
         s.front() != '.' &&
         s.find('/', slash == std::string::npos ? s.size() : slash + 1) == std::string::npos;
}

// The snapshot to use of a model in the cache; `why` says so when there is none.
fs::path snapshot_of(const fs::path& folder, std::string& why) {
  std::string commit;
  std::ifstream(folder / "refs" / "main") >> commit;
  if (!commit.empty()) {
    fs::path snapshot = folder / "snapshots" / commit;
    if (fs::is_directory(snapshot)) return snapshot;
    why = fmt::format("refs/main names snapshot {}, which is not there", commit);
    return {};
  }
  std::vector<fs::path> snapshots;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", none))
    snapshots.push_back(entry.path());
  if (snapshots.size() == 1) return snapshots[0];
  why = fmt::format("no refs/main, and {} snapshots", snapshots.size());
  return {};
}

}  // namespace

fs::path resolve_model(const std::string& model) {
  return resolve_model(model, home_folder() / ".cache" / "huggingface" / "hub");
}

fs::path resolve_model(const std::string& model, const fs::path& hub_cache) {
  if (model.empty()) throw Error("no model given");
  if (fs::exists(model)) return model;
  if (!is_hub_id(model)) throw Error("{}: no such file or folder (and not a Hugging Face id)", model);
  std::string name = "models--" + model;
  if (const auto slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  const fs::path folder = hub_cache / name;
  std::string why = "no such folder";
  if (fs::is_directory(folder)) {
    fs::path snapshot = snapshot_of(folder, why);
    if (!snapshot.empty()) return snapshot;
  }
  throw Error("{}: no such file or folder, nor in the local hub cache: tried {} ({})", model, folder.string(),
              why);
}

}  // namespace strata
