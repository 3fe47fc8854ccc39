#!/bin/sh
# Runs black-box tests with the private Python environment: run_pytest.sh FILE [ARGUMENT...]. Exit 77 (skipped) without it.
cd "$(dirname "$0")"
if [ ! -x ../../.venv/bin/pytest ]; then
  echo "SKIPPED: $1 needs .venv (tools/make_venv.sh)"
  exit 77
fi
exec ../../.venv/bin/pytest -q -p no:cacheprovider "$@"
