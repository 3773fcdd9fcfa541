# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What check_cuda.sh and check_hip.sh have in common; they source it with their arguments. Sets repository, check (the
# script's name) and build (the folder for objects).
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
check=$(basename "$0" .sh)
say() { printf '%s: %s\n' "$check" "$*"; }
fail() {
  printf '%s: error: %s\n' "$check" "$*" >&2
  exit 2
}
case ${1:-} in
-h | --help) sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
?*) fail "no arguments are taken; see --help" ;;
esac
build=${ORTHANT_BUILD_DIR:-$repository/build-${check#check_}-check}

# kokkos_for DEVICE FOLDER: whether the Kokkos installed there was built for CUDA or HIP.
kokkos_for() {
  local config
  config=$(compgen -G "$2/lib*/cmake/Kokkos/KokkosConfigCommon.cmake" | head -n 1)
  [ -n "$config" ] && grep -q "^set(Kokkos_DEVICES.*$1" "$config"
}

# build_all_sources DEVICE COMPILER [options]: orthant and all test programs, with the Kokkos that ORTHANT_DEVICE_KOKKOS or
# Kokkos_ROOT names. Nothing of it is run.
build_all_sources() {
  local device=$1 compiler=$2 variable=ORTHANT_$1_KOKKOS kokkos programs large
  shift 2
  kokkos=${!variable:-}
  if [ -z "$kokkos" ] && kokkos_for "$device" "${Kokkos_ROOT:-}"; then kokkos=$Kokkos_ROOT; fi
  if [ -z "$kokkos" ]; then
    say "not checked: Kokkos's kernels, orthant and the test programs for $device ($variable names no Kokkos built for it)"
    return
  fi
  kokkos_for "$device" "$kokkos" || fail "$kokkos holds no Kokkos built for $device"
  env -u Kokkos_ROOT cmake -S "$repository" -B "$build/kokkos" -G Ninja -DKokkos_ROOT="$kokkos" \
    -DCMAKE_CXX_COMPILER="${compiler/#KOKKOS/$kokkos}" -DORTHANT_ENABLE_WERROR=ON "$@"
  cmake --build "$build/kokkos" --parallel "${ORTHANT_JOBS:-$(nproc)}"
  # The arguments of a kernel with 512 bytes of them or more travel through one buffer of the host, which a recorded step cannot.
  large=$(find "$build/kokkos/src" -name '*.o' -exec nm -C {} + | grep -o 'cuda_parallel_launch_\(constant\|global\)_memory<.*') || true
  if [ -n "$large" ]; then
    printf '%s: error: kernels with 512 bytes of arguments or more:\n%s\n' "$check" "$large" >&2
    exit 1
  fi
  programs=("$build"/kokkos/bin/test_*)
  say "orthant and ${#programs[@]} test programs compile and link for $device with the Kokkos in $kokkos"
}
