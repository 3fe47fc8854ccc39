#!/usr/bin/env bash
# Checks the CUDA backend on a machine with a Hopper GPU: builds, compares with the CPU, runs engine, evaluation, server and
# benchmarks, and prints one table. Exit 1 when a line of it says FAILED.
#
#   tools/gpu_check.sh [--quick] [--deps DIR] [--build DIR] [--only PATTERN]
#
# --quick  under 3 minutes where it is built already: no sanitizer, fewer engine tests, the short evaluation
# --deps   a folder with usr/include and usr/lib where the libraries of tools/install_deps.sh lie, if they are not installed
# --build  the build folder (default: build/cuda)
# --only   runs the lines whose name matches the pattern (an extended regular expression)
set -uo pipefail
cd "$(dirname "$0")/.."

quick=0 deps="" build=build/cuda only=.
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1 ;;
    --deps) deps=$(realpath "$2"); shift ;;
    --build) build=$2; shift ;;
    --only) only=$2; shift ;;
    *) sed -n '2,12p' "$0"; exit 2 ;;
  esac
  shift
done

missing=()
have() { command -v "$1" >/dev/null || [ -x "/usr/local/cuda/bin/$1" ] || [ -n "$deps" -a -x "$deps/usr/bin/$1" ]; }
for tool in nvcc cmake ninja python3 nvidia-smi; do
  have "$tool" || missing+=("$tool")
done
have pkg-config || have pkgconf || missing+=(pkg-config)
if [ ${#missing[@]} -gt 0 ]; then
  echo "gpu_check: missing here: ${missing[*]}" >&2
  exit 1
fi
export PATH=$PATH:/usr/local/cuda/bin
prefix=()
if [ -n "$deps" ]; then
  lib=$deps/usr/lib/x86_64-linux-gnu
  prefix=(-DCMAKE_PREFIX_PATH="$deps/usr")
  export PATH=$PATH:$deps/usr/bin PKG_CONFIG_SYSROOT_DIR=$deps PKG_CONFIG_PATH=$lib/pkgconfig:$deps/usr/share/pkgconfig
  export CPLUS_INCLUDE_PATH=$deps/usr/include:$deps/usr/include/x86_64-linux-gnu LIBRARY_PATH=$lib LD_LIBRARY_PATH=$lib:${LD_LIBRARY_PATH:-}
fi

logs=$build/gpu_check
mkdir -p "$logs"
table="" failed=0
add() { # name, result, seconds
  table+=$(printf '| %-34s | %-100s | %6s |' "$1" "$2" "$3")$'\n'
}

# line NAME COMMAND...: runs it with output to a log; the last line of summarise() of the log is the result.
line() {
  local name=$1 log status start=$SECONDS result
  shift
  [[ $name =~ $only ]] || return 0
  log="$logs/${name//[^a-z0-9]/_}.log"
  "$@" >"$log" 2>&1
  status=$?
  result=$(summarise "$log")
  if [ $status -ne 0 ]; then
    failed=1
    result="FAILED ($status) ${result:0:60}"
    echo "--- $name:" && grep -E 'Failure|error|Error|FAILED|expected|Expected|which|differ|==' "$log" | head -40
    tail -5 "$log"
  fi
  add "$name" "${result:0:100}" "$((SECONDS - start))"
}
summarise() {
  grep -E '^RESULT: |\[  PASSED  \]|\[  FAILED  \] [0-9]+ test|ERROR SUMMARY|RACECHECK SUMMARY' "$1" | tail -1 | sed 's/^RESULT: //; s/^=* *//'
}

build_all() {
  cmake --preset cuda -B "$build" "${prefix[@]}" && cmake --build "$build" --target strata cuda_test cuda_bench step_bench
}
tests() { "$build/tests/cuda/cuda_test" --gtest_brief=1 --gtest_filter="$1"; }

# evaluate CASES FLAGS...: accuracies must be those of the eval.json beside the cases.
evaluate() {
  local cases=models/tiny-hybrid/$1
  shift
  "$build/src/cli/strata" eval --backend cuda --json --cases "$cases" "$@" >"$logs/eval.json" || return 1
  python3 - "$logs/eval.json" "$cases" "$(dirname "$cases")/eval.json" <<'PY'
import collections, json, sys
got, want = json.load(open(sys.argv[1])), json.load(open(sys.argv[3]))
count = collections.Counter(json.loads(line)["task"] for line in open(sys.argv[2]))
# As tests/cli/eval_test.py: a case may go the other way; tasks without a reference (the long ones) must nearly all be right.
worse = [f"{task}: {share:.3f}, reference {want.get(task, 1):.3f}" for task, share in got["accuracy"].items()
         if abs(share - want.get(task, 1)) > 1.01 / count[task]]
drafts = f", {got['accepted']} of {got['drafted']} drafts" if got.get("drafted") else ""
print("differ:", *worse, sep="\n") if worse else None
print(f"RESULT: {got['cases']} cases, {got['same_as_reference']:.3f} as the reference{drafts}")
sys.exit(1 if worse else 0)
PY
}

# The evaluation's questions by 64 clients at once, by each official package that is installed: accuracies of the tasks whose answer is
# plain text.
ask() {
  python3 - "$1" models/tiny-hybrid <<'PY'
import json, sys, urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
url, model = sys.argv[1:]
plain = {"recall", "haystack", "arithmetic", "repeat", "reverse", "sort", "count", "json", "hello"}
cases = [c for c in map(json.loads, open(f"{model}/eval.jsonl")) if c["task"] in plain]
def by_http(case):
    body = {"messages": case["messages"], "temperature": 0, "max_tokens": 200}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["message"]["content"]
def by_openai(case):
    reply = openai_client.chat.completions.create(model=served, messages=case["messages"], temperature=0, max_tokens=200)
    return reply.choices[0].message.content
def by_anthropic(case):
    system = " ".join(m["content"] for m in case["messages"] if m["role"] == "system")
    turns = [m for m in case["messages"] if m["role"] != "system"]
    reply = anthropic_client.messages.create(model=served, messages=turns, system=system, max_tokens=200, extra_body={"temperature": 0})
    return "".join(part.text for part in reply.content if part.type == "text")
served = json.load(urllib.request.urlopen(url + "/v1/models", timeout=60))["data"][0]["id"]
ways = {}  # the official clients where they are installed
try:
    import openai
    openai_client, ways["openai"] = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0), by_openai
except ImportError:
    pass
try:
    import anthropic
    anthropic_client, ways["anthropic"] = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0), by_anthropic
except ImportError:
    pass
want, worse, results = json.load(open(f"{model}/eval.json")), [], []
for name, ask in (ways or {"plain HTTP": by_http}).items():
    with ThreadPoolExecutor(64) as clients:
        right = list(clients.map(lambda case: ask(case).strip() == case["want"].strip(), cases))
    tasks = defaultdict(list)
    for case, ok in zip(cases, right):
        tasks[case["task"]].append(ok)
    worse += [f"{name}: {t} {sum(r) / len(r):.3f}, reference {want[t]:.3f}" for t, r in tasks.items() if abs(sum(r) / len(r) - want[t]) > 0.021]
    results.append(f"{sum(right)} of {len(cases)} right by {name}")
print("differ:", *worse, sep="\n") if worse else None
print("RESULT: " + ", ".join(results))
sys.exit(1 if worse else 0)
PY
}

# Server with drafts, 64 clients at once; then its own report.
serve() {
  "$build/src/cli/strata" serve --backend cuda --port 0 --max-sequences 64 --speculate mtp --draft-tokens 3 "$@" >"$logs/server.txt" 2>&1 &
  local server=$! url="" status
  for _ in $(seq 100); do
    url=$(grep -o 'http://[^ ]*' "$logs/server.txt" | head -1)
    [ -n "$url" ] && break
    sleep 0.1
  done
  "$build/src/cli/strata" bench --url "$url" --requests 512 --concurrency 64 --json-file "$logs/load.json"
  status=$?
  ask "$url" | tee "$logs/ask.txt" || status=1
  python3 -c "import urllib.request; urllib.request.urlopen('$url/health')" || status=1
  python3 -c "import urllib.request; print(urllib.request.urlopen('$url/metrics').read().decode())" | grep -E '^strata_[a-z_]*(step|forward|draft|verify)' || true
  kill -TERM $server && wait $server || status=1
  python3 -c "import json; r = json.load(open('$logs/load.json')); print('RESULT: ' + '''$(sed -n 's/^RESULT: //p' "$logs/ask.txt")''' + '; %d of %d requests, %.0f tokens/s' % (r['ok'], r['requests'], r['output_tokens_per_second']))"
  return $status
}

speed() {
  "$build/src/cli/strata" bench --backend cuda --json >"$logs/speed.json" || return 1
  python3 -c "import json; r = json.load(open('$logs/speed.json')); print('RESULT: prefill %.0f tokens/s; ms a step: ' % r['prefill']['tokens_per_second'] + ', '.join('%dx%d %.3f' % (d['batch'], d['context'], d['seconds'] * 1e3) for d in r['decode']))"
}

sanitize() { # tool, filter, flags of the sanitizer...
  local tool=$1 filter=$2
  shift 2
  compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" "$build/tests/cuda/cuda_test" --gtest_brief=1 --gtest_filter="$filter"
}

line "build" build_all
[ $failed = 1 ] && { echo "$table"; exit 1; }
line "operators against the CPU" tests '*Parity*:*OnGpu*-*EngineOnGpu*:*ModelParity*'
line "whole models against the CPU" tests '*ModelParity*'
if [ $quick = 1 ]; then
  line "engine" tests '*EngineOnGpu*-*ScoresEvery*:*ChunksAndCompany*'
  line "evaluation" evaluate eval.jsonl --batch 64 --limit 200
  line "evaluation, MTP drafts" evaluate eval.jsonl --batch 64 --speculate mtp --draft-tokens 3 --limit 200
else
  line "engine" tests '*EngineOnGpu*'
  for drafts in none mtp ngram; do  # a fixed number: left to itself the engine soon finds that a model this small gains nothing
    flags="--speculate $drafts"
    [ $drafts = none ] || flags+=" --draft-tokens 3"
    line "evaluation, drafts: $drafts" evaluate eval.jsonl --batch 64 $flags
    line "long evaluation, drafts: $drafts" evaluate eval_long.jsonl --batch 16 $flags
  done
  for adapter in polite bracket; do
    line "evaluation, adapter $adapter" evaluate lora/$adapter/eval.jsonl --batch 16 --speculate mtp --draft-tokens 3 --lora models/tiny-hybrid/lora/$adapter
  done
fi
line "server, 64 clients, MTP drafts" serve
line "speed of tiny-hybrid" speed
if [ $quick = 0 ]; then
  line "operator benchmarks (below)" "$build/bench/cuda_bench"
  line "memcheck, operators" sanitize memcheck '*Parity*:*DrawOnGpu*of_320:*DrawOnGpu*of_8193:CudaBackend*-*ModelParity*:*MoreMemory*'
  line "racecheck, drawing and convolution" sanitize racecheck '*DrawOnGpu*of_320:*RecurrenceParity.Conv/*'
  # The kernel with a ring of copies; with all kernels of these tests it takes two minutes.
  line "racecheck, chunked recurrence" sanitize racecheck '*RecurrenceParity.GatedDelta/*' --kernel-name kernel_substring=walk_kernel
fi

printf '\n%s, %s, driver %s\n\n' "$(date -u +%F)" "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)" \
  "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)"
printf '| %-34s | %-100s | %6s |\n|%s|%s|%s|\n' check result s "$(printf -- '-%.0s' {1..36})" "$(printf -- '-%.0s' {1..102})" "$(printf -- '-%.0s' {1..8})"
printf '%s' "$table"
[ -f "$logs/operator_benchmarks__below_.log" ] && echo && cat "$logs/operator_benchmarks__below_.log"
exit $failed
