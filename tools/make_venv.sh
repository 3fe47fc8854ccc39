#!/bin/sh
# Makes the private Python environment of the tests (.venv at the root of the repository), or leaves it when it is up to date.
set -eu
cd "$(dirname "$0")/.."
wanted=$(sha256sum tools/test_requirements.txt | cut -d' ' -f1)
if [ -x .venv/bin/pytest ] && [ "$(cat .venv/made_from 2>/dev/null)" = "$wanted" ]; then exit 0; fi
rm -rf .venv
python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check -r tools/test_requirements.txt
echo "$wanted" > .venv/made_from
