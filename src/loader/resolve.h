// What --model may name: a folder, a file, or a Hugging Face id in the local hub cache.
#pragma once

#include <filesystem>
#include <string>

namespace strata {

// The folder or file that `model` names. An id such as "Qwen/Qwen3-0.6B" is looked up in
// ~/.cache/huggingface/hub, where the snapshot that refs/main names is used (or the only one there). Nothing
// is downloaded. Throws Error saying what was tried.
std::filesystem::path resolve_model(const std::string& model);
std::filesystem::path resolve_model(const std::string& model, const std::filesystem::path& hub_cache);

}  // namespace strata
