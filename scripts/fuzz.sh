#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fuzzes the parsers of what comes from outside (tests/fuzz/README.md), under the address and undefined-behaviour
# sanitizers. An input that breaks a parser is kept in tests/fuzz/kept/TARGET, where the test suite replays it.
#
# usage: scripts/fuzz.sh [options] [TARGET ..]     (npy npz edge_text table_text matrix_market input_folder store checkpoint
#                                                   token_file safetensors gguf study_file machine_file config command_line;
#                                                   default: all, one after the other)
#   --runs N      inputs per target (default 1000000)
#   --seconds S   and at most so long (default 300)
# ORTHANT_FUZZ_BUILD_DIR   the build tree (default: build-fuzz in the source tree)
# CXX                      the clang++ to use (default: the newest that is installed, 15 at least)
# ORTHANT_JOBS             compilations at a time (default: the number of cores)
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fail() {
  printf 'fuzz: error: %s\n' "$*" >&2
  exit 2
}

runs=1000000
seconds=300
while [ $# -gt 0 ]; do
  case $1 in
  --runs) runs=${2:?--runs needs a value} && shift 2 ;;
  --seconds) seconds=${2:?--seconds needs a value} && shift 2 ;;
  -h | --help) sed -n '4,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  -*) fail "unknown option '$1'; see --help" ;;
  *) break ;;
  esac
done
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  targets=(npy npz edge_text table_text matrix_market input_folder store checkpoint token_file safetensors gguf study_file
    machine_file config command_line)
fi
for target in "${targets[@]}"; do
  [ -e "$repository/tests/fuzz/$target.cpp" ] || fail "there is no target '$target'; see --help"
done

if [ -z "${CXX:-}" ]; then
  for version in 19 18 17 16 15; do
    if command -v "clang++-$version" >/dev/null; then CXX=clang++-$version && break; fi
  done
fi
[ -n "${CXX:-}" ] || fail "no clang++ of version 15 or newer here; on Debian 12: apt-get install clang-16 libclang-rt-16-dev"

"$repository/scripts/bootstrap.sh"
build=${ORTHANT_FUZZ_BUILD_DIR:-$repository/build-fuzz}
cmake -S "$repository" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DORTHANT_ENABLE_FUZZERS=ON \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1"
cmake --build "$build" --parallel "${ORTHANT_JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz_}"

# Leaks are Open MPI's and HDF5's own; a parser that takes more than 1 GiB for a small input is broken.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
status=0
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  found=$build/found/$target
  kept=$repository/tests/fuzz/kept/$target
  mkdir -p "$corpus" "$found"
  folders=("$corpus" "$build/tests/fuzz/seeds/$target")
  [ ! -d "$kept" ] || folders+=("$kept")
  log=$build/$target.log
  if "$build/bin/fuzz_$target" -runs="$runs" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3072 \
    -malloc_limit_mb=1024 -artifact_prefix="$found/" -print_final_stats=1 -verbosity=0 "${folders[@]}" >"$log" 2>&1; then
    printf '%-15s %s inputs, nothing found\n' "$target" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  else
    status=1
    mkdir -p "$kept"
    find "$found" -type f -exec mv {} "$kept/" \;
    printf '%-15s FOUND an input, now in %s; the report: %s\n' "$target" "$kept" "$log"
    grep -m 1 -E 'ERROR:|runtime error:|what\(\)|SUMMARY' "$log" || true
  fi
done
exit "$status"
