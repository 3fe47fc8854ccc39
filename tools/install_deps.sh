#!/usr/bin/env bash
# Installs the Debian packages that building and testing Strata takes; says what is missing when it cannot.
set -euo pipefail

packages=(
  build-essential cmake ninja-build pkg-config git
  libsimdjson-dev nlohmann-json3-dev libboost1.81-dev libcli11-dev libspdlog-dev libfmt-dev libedit-dev
  libssl-dev libhwy-dev libpcre2-dev libutf8proc-dev libxxhash-dev libexpected-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3 python3-venv ccache
)
# Wanted by some tests and by the format check; their absence is reported by those tests, not here.
optional=(clang-14 libclang-rt-14-dev clang-format clang-tidy chromium)

missing() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

if ! command -v dpkg-query >/dev/null; then
  echo "This script knows Debian 12 and its kin. Elsewhere, install the equivalents of:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
fi

need=$(missing "${packages[@]}")
extra=$(missing "${optional[@]}")
[ -z "$need$extra" ] && exit 0

sudo=""
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null; then
    sudo=sudo
  elif [ -z "$need" ]; then
    exit 0
  else
    echo "These packages are missing, and neither root nor sudo is here to install them:" >&2
    printf '  %s\n' $need >&2
    exit 1
  fi
fi

export DEBIAN_FRONTEND=noninteractive
echo "installing packages:" $need $extra >&2
$sudo apt-get update -qq
if [ -n "$need" ] && ! $sudo apt-get install -y -qq $need >/dev/null; then
  echo "apt-get could not install:" $need >&2
  exit 1
fi
for package in $extra; do
  $sudo apt-get install -y -qq "$package" >/dev/null 2>&1 || echo "not installed (its tests will be skipped): $package" >&2
done
