#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles Orthant's plain HIP sources (hipSPARSE, hipBLAS) with hipcc, links a small program and runs it: without a
# device it says so, with one it checks the products. With a Kokkos for HIP it also builds everything else. Says of each part
# that is missing here what it could not check.
#
# usage: scripts/check_hip.sh
# ORTHANT_HIP_KOKKOS          a Kokkos built for HIP (default: Kokkos_ROOT, if that is one)
# ORTHANT_HIP_ARCHITECTURES   devices as the compiler names them (default: "gfx90a")
# ORTHANT_BUILD_DIR           where the objects go (default: build-hip-check in the source tree)
# shellcheck source=scripts/check_device.sh
source "$(dirname "${BASH_SOURCE[0]}")/check_device.sh"

command -v hipcc >/dev/null || PATH=$PATH:/opt/rocm/bin
if ! command -v hipcc >/dev/null; then
  say "not checked: anything; there is no hipcc here"
  exit 0
fi
mkdir -p "$build"
read -ra architectures <<<"${ORTHANT_HIP_ARCHITECTURES:-gfx90a}"
flags=(-std=c++20 -O2 -x hip -DORTHANT_ENABLE_HIP -I "$repository/src" -Wall -Wextra)
libraries=()
for architecture in "${architectures[@]}"; do flags+=("--offload-arch=$architecture"); done
for root in ${ROCM_PATH:-} /opt/rocm; do
  if [ -d "$root/include" ]; then flags+=(-isystem "$root/include"); fi
  if [ -d "$root/lib" ]; then libraries+=("-L$root/lib"); fi
done

objects=()
compile() { # SOURCE
  local object
  object=$build/$(basename "$1" .cpp).o
  hipcc "${flags[@]}" -c "$repository/$1" -o "$object"
  objects+=("$object")
  say "$1 compiles for ${architectures[*]}"
}
has_header() {
  printf '#include <%s>\n' "$1" >"$build/header.cpp"
  hipcc "${flags[@]}" -E "$build/header.cpp" >/dev/null 2>&1
}

is_whole=yes
if has_header hipsparse/hipsparse.h; then
  compile src/pmm/vendor/vendor_spmm.cpp
else
  say "not checked: src/pmm/vendor/vendor_spmm.cpp (no hipSPARSE headers here)" && is_whole=no
fi
if has_header hipsparse/hipsparse.h && has_header hipblas/hipblas.h; then
  compile src/pmm/vendor/vendor_gemm_hip.cpp
else
  say "not checked: src/pmm/vendor/vendor_gemm_hip.cpp (no hipBLAS headers here)" && is_whole=no
fi
with_rccl=ON
if ! has_header rccl/rccl.h; then
  say "not checked: RCCL collectives (no RCCL headers here)" && with_rccl=OFF
fi
if [ "$is_whole" = no ]; then
  say "not checked: linking and running, and Kokkos's kernels; that takes both libraries"
  exit 0
fi
build_all_sources HIP hipcc -DORTHANT_ENABLE_NCCL=$with_rccl
compile tests/device/vendor_check.cpp
hipcc "${objects[@]}" -o "$build/vendor_check" "${libraries[@]}" -lhipblas -lhipsparse \
  "-Wl,-rpath,$(dirname "$(dirname "$(command -v hipcc)")")/lib"
say "$build/vendor_check links"
"$build/vendor_check"
