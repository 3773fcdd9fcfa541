#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Bootstraps this machine, builds Orthant and runs its tests: those that show an installation to be right, or all. The
# skipped ones are named with the reason; the last line printed is the count of all.
#
# usage: scripts/test.sh [--all] [--kokkos KIND] [--preset NAME] [ctest options, such as -R runtime]
#   --all           builds and runs every test but those with the label soak: what a change needs before it lands
#   --kokkos KIND   the Kokkos that scripts/bootstrap.sh --kokkos KIND builds, in a build tree of its own
#   --preset NAME   a preset of CMakePresets.json (asan, debug, ..), in a build tree of its own
# ORTHANT_BUILD_DIR   the build tree (default: build in the source tree)
# ORTHANT_JOBS        compilations and tests at a time (default: the number of cores)
# CI                  where set and not empty, a compiler warning is an error
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kokkos=debian
preset=
targets=(--target orthant_default_tests)
tests=(-LE "large|soak")
while [ $# -gt 0 ]; do
  case $1 in
  --all) targets=() tests=(-LE soak) && shift ;;
  --kokkos) kokkos=${2:?--kokkos needs a value} && shift 2 ;;
  --preset) preset=${2:?--preset needs a value} && shift 2 ;;
  -h | --help) sed -n '7,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) break ;;
  esac
done

"$repository/scripts/bootstrap.sh" --kokkos "$kokkos"

build=$repository/build
options=()
if [ -n "$preset" ]; then
  build=$build-$preset
  options+=(--preset "$preset")
fi
if [ "$kokkos" != debian ]; then
  build=$build-$kokkos
  options+=("-DKokkos_ROOT=${ORTHANT_PREFIX:-$repository/.deps}/kokkos-$kokkos")
fi
build=${ORTHANT_BUILD_DIR:-$build}
jobs=${ORTHANT_JOBS:-$(nproc)}
if [ -n "${CI:-}" ]; then options+=(-DORTHANT_ENABLE_WERROR=ON); fi
# Sources of some folders are compiled together: a third of the seconds of a first build, more after a change.
if [ ! -e "$build/CMakeCache.txt" ]; then options+=(-G Ninja -DCMAKE_UNITY_BUILD=ON); fi

cmake -S "$repository" -B "$build" "${options[@]}"
cmake --build "$build" --parallel "$jobs" "${targets[@]}"

# Open MPI refuses to start as root unless it is told twice; containers have no other user.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error "${tests[@]}" --parallel "$jobs" "$@" | tee "$log" || status=$?

awk -f "$repository/scripts/skipped_tests.awk" "$log" "$build/Testing/Temporary/LastTest.log"
# ctest counts a skipped test as passed; here the three are told apart.
awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/ {
       if (/ Passed +[0-9.]+ sec/) ++passed; else if (/\*\*\*Skipped/) ++skipped; else ++failed
     }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
exit "$status"
