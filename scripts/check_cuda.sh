#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles Orthant's plain CUDA sources (cuBLAS, cuSPARSE, and NCCL where it, MPI and fmt are found) with nvcc, links a
# small program and runs it: without a device it says so, with one it checks the products. Needs a CUDA toolkit alone; no Kokkos.
#
# usage: scripts/check_cuda.sh
# ORTHANT_CUDA_ARCHITECTURES   compute capabilities without the dot (default: "80 90")
# ORTHANT_BUILD_DIR            where the objects go (default: build-cuda-check in the source tree)
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
-h | --help) sed -n '4,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
?*) echo "check_cuda: error: no arguments are taken; see --help" >&2 && exit 2 ;;
esac

command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null; then
  echo "check_cuda: no nvcc here: the CUDA sources were not compiled"
  exit 0
fi
build=${ORTHANT_BUILD_DIR:-$repository/build-cuda-check}
mkdir -p "$build"
read -ra architectures <<<"${ORTHANT_CUDA_ARCHITECTURES:-80 90}"
flags=(-std=c++20 -O2 -x cu -I "$repository/src" --expt-relaxed-constexpr -Werror all-warnings -Xcompiler "-Wall,-Wextra,-Werror")
for architecture in "${architectures[@]}"; do
  flags+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done

compile() { # SOURCE, further flags
  local source=$1
  shift
  nvcc "${flags[@]}" "$@" -c "$repository/$source" -o "$build/$(basename "$source" .cpp).o"
  echo "check_cuda: $source compiles for ${architectures[*]/#/sm_}"
}

printf '#include <%s>\n' cublas_v2.h cusparse.h >"$build/headers.cpp"
if ! nvcc -x cu -E "$build/headers.cpp" >/dev/null 2>"$build/headers.log"; then
  echo "check_cuda: not checked: anything (no cuBLAS or cuSPARSE headers here)"
  exit 0
fi
compile src/pmm/vendor_gemm_cuda.cpp
compile src/pmm/vendor_spmm.cpp
compile tests/device/vendor_check.cpp
nvcc "$build/vendor_gemm_cuda.o" "$build/vendor_spmm.o" "$build/vendor_check.o" -o "$build/vendor_check" \
  -lcublas -lcusparse -Xlinker -rpath -Xlinker "$(dirname "$(dirname "$(command -v nvcc)")")/lib64"
echo "check_cuda: $build/vendor_check links"

# The NCCL backend's headers bring those of MPI, fmt and nlohmann-json.
mpi=()
if command -v mpicxx >/dev/null; then
  for word in $(mpicxx --showme:compile 2>/dev/null || mpicxx -show); do
    case $word in -I*) mpi+=(-isystem "${word#-I}") ;; esac
  done
fi
printf '#include <%s>\n' mpi.h nccl.h fmt/format.h nlohmann/json.hpp >"$build/headers.cpp"
# nvcc takes fmt 9's consteval format strings only so, and warns of its long doubles.
fmt_for_nvcc=(-DFMT_USE_CONSTEXPR=1 -diag-suppress 20208)
if nvcc -std=c++20 -x cu -E "${mpi[@]}" "${fmt_for_nvcc[@]}" "$build/headers.cpp" >/dev/null 2>"$build/headers.log"; then
  compile src/runtime/collectives_nccl.cpp "${mpi[@]}" "${fmt_for_nvcc[@]}" -DOMPI_SKIP_MPICXX -DORTHANT_ENABLE_NCCL
else
  echo "check_cuda: not checked: the NCCL backend (no MPI, NCCL, fmt or nlohmann-json headers here)"
fi
"$build/vendor_check"
