#!/usr/bin/env python3
"""Checks that includes under src/ go one way only, and that no CUDA header leaves its place.

usage: include_check.py [SRC]      exit 1 with one line a violation
       include_check.py --self-test   plants a violation of each kind and expects it to be found
"""
import pathlib
import re
import sys
import tempfile

# Folders in the order of the data flow: a file may include its own folder and those before it, with these exceptions.
ORDER = ["base", "tensor", "ops", "loader", "layers", "model", "runtime", "text", "server", "cli"]
MAY_ONLY = {  # folder -> what it may include beside itself
    "ops": {"base", "tensor"},
    "loader": {"base", "tensor"},
    "layers": {"base", "tensor", "ops"},
    "text": {"base"},
    "server": {"base", "text", "runtime"},
}
SERVER_RUNTIME = {"engine.h", "request.h", "metrics.h", "constraint.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')
CUDA = re.compile(r"^(cuda|cublas|cub/|nccl|thrust/|mma\.h|cooperative_groups)")


def violations(src):
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        relative = path.relative_to(src)
        folder = relative.parts[0]
        cuda_allowed = relative.parts[:2] == ("ops", "cuda") or path.stem.startswith("runner_cuda")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            name = found[1]
            where = f"{relative}:{number}: "
            if CUDA.match(name) and not cuda_allowed:
                yield where + f"CUDA header {name} outside ops/cuda and runtime/runner_cuda"
            parts = name.split("/")
            if len(parts) < 2 or parts[0] not in ORDER or not (src / parts[0]).is_dir():
                continue
            if parts[0] == folder:
                if folder == "ops" and relative.parts[1] == "cpu" and parts[1] == "cuda":
                    yield where + "ops/cpu includes ops/cuda"
                continue
            if ORDER.index(parts[0]) > ORDER.index(folder):
                yield where + f"{folder}/ includes {name}: includes go from later folders to earlier ones"
            elif folder in MAY_ONLY and parts[0] not in MAY_ONLY[folder]:
                yield where + f"{folder}/ may not include {name}"
            elif folder == "server" and parts[0] == "runtime" and parts[1] not in SERVER_RUNTIME:
                yield where + f"server/ sees the engine's face only, not {name}"


def self_test():
    planted = {
        "layers/a.h": '#include "runtime/engine.h"',
        "text/b.h": '#include "ops/ops.h"',
        "server/c.cpp": '#include "runtime/scheduler.h"',
        "model/d.cpp": "#include <cuda_runtime.h>",
        "ops/cpu/e.cpp": '#include "ops/cuda/f.h"',
    }
    with tempfile.TemporaryDirectory() as folder:
        src = pathlib.Path(folder)
        for name in ORDER:
            (src / name).mkdir()
        for name, line in planted.items():
            (src / name).parent.mkdir(exist_ok=True)
            (src / name).write_text(line + "\n")
        (src / "cli/fine.cpp").write_text('#include "server/app.h"\n#include "base/check.h"\n#include <vector>\n')
        found = list(violations(src))
    if len(found) != len(planted):
        print("planted", len(planted), "violations, found:", *found, sep="\n  ")
        return 1
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    src = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "src")
    found = list(violations(src))
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
