#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles Orthant's plain CUDA sources (cuBLAS, cuSPARSE, and NCCL where it, MPI and fmt are found) with nvcc, links a
# small program and runs it: without a device it says so, with one it checks the products. Needs a CUDA toolkit alone.
# With a Kokkos for CUDA it also builds everything else. Says of each part that is missing here what it could not check.
#
# usage: scripts/check_cuda.sh
# ORTHANT_CUDA_KOKKOS          a Kokkos built for CUDA (default: Kokkos_ROOT, if that is one)
# ORTHANT_CUDA_ARCHITECTURES   compute capabilities without the dot (default: "80 90")
# ORTHANT_BUILD_DIR            where the objects go (default: build-cuda-check in the source tree)
# shellcheck source=scripts/check_device.sh
source "$(dirname "${BASH_SOURCE[0]}")/check_device.sh"

command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
if ! command -v nvcc >/dev/null; then
  say "not checked: anything; there is no nvcc here"
  exit 0
fi
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
  say "$source compiles for ${architectures[*]/#/sm_}"
}

printf '#include <%s>\n' cublas_v2.h cusparse.h >"$build/headers.cpp"
if ! nvcc -x cu -E "$build/headers.cpp" >/dev/null 2>"$build/headers.log"; then
  say "not checked: anything (no cuBLAS or cuSPARSE headers here)"
  exit 0
fi
compile src/pmm/vendor/vendor_gemm_cuda.cpp
compile src/pmm/vendor/vendor_spmm.cpp
compile tests/device/vendor_check.cpp
nvcc "$build/vendor_gemm_cuda.o" "$build/vendor_spmm.o" "$build/vendor_check.o" -o "$build/vendor_check" \
  -lcublas -lcusparse -Xlinker -rpath -Xlinker "$(dirname "$(dirname "$(command -v nvcc)")")/lib64"
say "$build/vendor_check links"

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
  compile src/runtime/backends/nccl_backend.cpp "${mpi[@]}" "${fmt_for_nvcc[@]}" -DOMPI_SKIP_MPICXX -DORTHANT_ENABLE_NCCL
  with_nccl=ON
else
  with_nccl=OFF
  say "not checked: the NCCL backend (no MPI, NCCL, fmt or nlohmann-json headers here)"
fi
build_all_sources CUDA KOKKOS/bin/nvcc_wrapper -DORTHANT_ENABLE_NCCL=$with_nccl
"$build/vendor_check"
