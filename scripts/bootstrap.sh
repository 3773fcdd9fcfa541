#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Brings everything that Orthant's build and tests need to this machine. Safe to repeat; a second run does nothing.
set -euo pipefail

# Upstream's release for --kokkos: one that Orthant was run with, CUDA 13 included (see adapt_to_cuda_13). Newer ones come as
# --kokkos-archive.
kokkos_release=4.6.01

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<TEXT
usage: scripts/bootstrap.sh [options]

Installs the Debian packages that are missing (as root), or names them for an administrator (as anybody else).

  --kokkos KIND          which Kokkos: debian (the default: Serial, from the distribution), or one of openmp, cuda
                         and hip, which build Kokkos $kokkos_release from its source archive
  --kokkos-archive FILE  build Kokkos from this .tar.gz (a path or a file:// address) instead of fetching the release
  --arch NAME            device architecture as Kokkos names it (HOPPER90, AMD_GFX90A, ..); default: this machine's
  --prefix DIR           where built packages go (default: .deps in the source tree); Kokkos to DIR/kokkos-KIND
  --slurm                Slurm and munge as well: the tests with the label slurm start a private one
  --no-packages          leave the Debian packages alone (libraries come from modules, Spack, ..)
  -h, --help             this text

A Kokkos >= 3.4 that CMake finds by itself (Kokkos_ROOT, CMAKE_PREFIX_PATH, /usr/local) takes the place of Debian's.
TEXT
}

say() { printf 'bootstrap: %s\n' "$*"; }
fail() {
  printf 'bootstrap: error: %s\n' "$*" >&2
  exit 2
}

kokkos=debian
archive=
architecture=
prefix=${ORTHANT_PREFIX:-$repository/.deps}
with_packages=yes
with_slurm=no
while [ $# -gt 0 ]; do
  case $1 in
  --kokkos | --kokkos-archive | --arch | --prefix)
    [ $# -ge 2 ] && [ -n "$2" ] || fail "$1 needs a value; see --help"
    case $1 in
    --kokkos) kokkos=$2 ;;
    --kokkos-archive) archive=${2#file://} ;;
    --arch) architecture=$2 ;;
    --prefix) prefix=$2 ;;
    esac
    shift 2
    ;;
  --no-packages) with_packages=no && shift ;;
  --slurm) with_slurm=yes && shift ;;
  -h | --help) usage && exit 0 ;;
  *) fail "unknown option '$1'; see --help" ;;
  esac
done
case $kokkos in
debian | openmp | cuda | hip) ;;
*) fail "--kokkos is debian, openmp, cuda or hip, not '$kokkos'" ;;
esac
[ -z "$archive" ] || [ "$kokkos" != debian ] || fail "--kokkos-archive needs --kokkos openmp, cuda or hip as well"
[ -z "$archive" ] || [ -r "$archive" ] || fail "cannot read the archive $archive"
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac

# ---------------------------------------------------------------------------------------------------------------
# Packages. A program counts as present when it is on PATH, a library when its development package is installed.
# ---------------------------------------------------------------------------------------------------------------
programs=(g++:g++ cmake:cmake ninja:ninja-build mpirun:openmpi-bin clang-format:clang-format python3:python3
  h5diff:hdf5-tools curl:curl)
libraries=(libopenmpi-dev libhdf5-openmpi-dev libmetis-dev libopenblas-dev libdnnl-dev zlib1g-dev libzip-dev libcli11-dev
  libtomlplusplus-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev)
slurm=(slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins libpmix2)
optional=(ccache ca-certificates unzip) # installed along, never demanded

# Whether CMake would find a Kokkos other than Debian's.
has_own_kokkos() {
  local root places
  IFS=':;' read -ra places <<<"${Kokkos_DIR:-}:${Kokkos_ROOT:-}:${CMAKE_PREFIX_PATH:-}:/usr/local:/opt/kokkos"
  for root in "${places[@]}"; do
    [ -n "$root" ] || continue
    for file in "$root"/KokkosConfig.cmake "$root"/lib*/cmake/Kokkos/KokkosConfig.cmake \
      "$root"/lib/*/cmake/Kokkos/KokkosConfig.cmake; do
      [ -e "$file" ] && return 0
    done
  done
  return 1
}

missing_of() { # the packages among $@ that are not installed
  dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    awk -v wanted="$*" '$2 == "installed" { sub(/:.*/, "", $1); present[$1] = 1 }
      END { n = split(wanted, list, " "); for (i = 1; i <= n; ++i) if (!(list[i] in present)) print list[i] }'
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  local install=(apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  say "installing: $*"
  # The package lists may be absent or out of date; they are fetched only when the plain attempt fails.
  if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null && "${install[@]}" "$@" >"$log" 2>&1; then return; fi
  say "fetching the package lists"
  apt-get update -q -o Acquire::Retries=3 >"$log" 2>&1 || { tail -n 20 "$log" >&2 && fail "apt-get update failed"; }
  "${install[@]}" "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2 && fail "apt-get install failed"; }
}

check_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: the packages of README.md must come from elsewhere; CMake will name what it misses"
    return
  fi
  local wanted=() entry
  for entry in "${programs[@]}"; do
    command -v "${entry%%:*}" >/dev/null || wanted+=("${entry#*:}")
  done
  local needed=("${libraries[@]}")
  if [ "$kokkos" = debian ] && ! has_own_kokkos; then needed+=(libtrilinos-kokkos-dev); fi
  if [ "$with_slurm" = yes ]; then needed+=("${slurm[@]}"); fi
  mapfile -t -O "${#wanted[@]}" wanted < <(missing_of "${needed[@]}")
  if [ ${#wanted[@]} -eq 0 ]; then return; fi
  if [ "$(id -u)" -ne 0 ]; then
    {
      echo "bootstrap: packages are missing. An administrator must install them, by this one line:"
      echo
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${wanted[*]}"
      echo
      echo "Then run this again. With libraries from elsewhere (modules, Spack): --no-packages."
    } >&2
    exit 2
  fi
  log=$scratch/log
  mapfile -t -O "${#wanted[@]}" wanted < <(missing_of "${optional[@]}")
  install_packages "${wanted[@]}"
}

# ---------------------------------------------------------------------------------------------------------------
# Kokkos from source
# ---------------------------------------------------------------------------------------------------------------

# The architecture that Kokkos calls the device of this machine, or nothing.
find_architecture() {
  case $kokkos in
  cuda)
    local number
    number=$({ nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } | head -n 1 | tr -d .)
    case $number in
    70 | 72) echo "VOLTA$number" ;;
    75) echo TURING75 ;;
    80 | 86 | 87) echo "AMPERE$number" ;;
    89) echo ADA89 ;;
    90) echo HOPPER90 ;;
    100 | 103 | 120) echo "BLACKWELL$number" ;;
    esac
    ;;
  hip)
    { rocminfo 2>/dev/null || true; } | sed -n 's/.*Name: *\(gfx[0-9a-f]*\).*/AMD_\U\1/p' | head -n 1
    ;;
  esac
}

fetch_release() { # leaves the archive's path in $archive
  archive=$prefix/downloads/kokkos-$kokkos_release.tar.gz
  [ -e "$archive" ] && return
  mkdir -p "$prefix/downloads"
  local address=https://github.com/kokkos/kokkos/archive/refs/tags/$kokkos_release.tar.gz
  say "fetching $address"
  curl -fsSL --retry 3 --connect-timeout 20 -o "$archive.part" "$address" ||
    fail "cannot fetch $address; copy that archive here by other means and give it as --kokkos-archive FILE"
  mv "$archive.part" "$archive"
}

# CUDA 13 changed three calls that releases before 4.7 make in one header.
adapt_to_cuda_13() { # SOURCE
  local header=$1/core/src/Cuda/Kokkos_Cuda_Instance.hpp
  grep -q 'cudaGraphAddDependencies(graph, from, to, numDependencies)' "$header" || return 0
  [ "$(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')" -ge 13 ] || return 0
  local place='cudaMemLocation{NAME < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, NAME < 0 ? 0 : NAME}'
  sed -i -e 's/AddDependencies(graph, from, to, numDependencies)/AddDependencies(graph, from, to, nullptr, numDependencies)/' \
    -e "s/cudaMemAdvise(devPtr, count, advice, device)/cudaMemAdvise(devPtr, count, advice, ${place//NAME/device})/" \
    -e "s/cudaMemPrefetchAsync(devPtr, count, dstDevice,/cudaMemPrefetchAsync(devPtr, count, ${place//NAME/dstDevice}, 0,/" "$header"
  say "three calls of Kokkos are adapted to CUDA 13"
}

build_kokkos() {
  local root=$prefix/kokkos-$kokkos
  local options=(-DKokkos_ENABLE_SERIAL=ON) compiler=()
  case $kokkos in
  openmp) options+=(-DKokkos_ENABLE_OPENMP=ON) ;;
  cuda)
    command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null || fail "--kokkos cuda needs nvcc on PATH (load the CUDA module)"
    options+=(-DKokkos_ENABLE_CUDA=ON)
    ;;
  hip)
    command -v hipcc >/dev/null || PATH=$PATH:/opt/rocm/bin
    command -v hipcc >/dev/null || fail "--kokkos hip needs hipcc on PATH (load the ROCm module)"
    options+=(-DKokkos_ENABLE_HIP=ON)
    compiler=(-DCMAKE_CXX_COMPILER=hipcc)
    ;;
  esac
  if [ "$kokkos" != openmp ]; then
    [ -n "$architecture" ] || architecture=$(find_architecture)
    [ -n "$architecture" ] || fail "no device on this machine to ask: give --arch (A100 AMPERE80, H100 HOPPER90, MI250 AMD_GFX90A, MI300 AMD_GFX942)"
  fi
  [ -z "$architecture" ] || options+=("-DKokkos_ARCH_$architecture=ON")

  # What the installation was made of. A given archive is told by its content, the release by its number.
  local origin=$kokkos_release
  if [ -n "$archive" ]; then origin=$(sha256sum "$archive" | cut -d ' ' -f 1); fi
  local stamp=$root/orthant-bootstrap.txt made_of="$kokkos $origin $architecture"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$made_of" ]; then
    [ -n "$archive" ] || fetch_release
    local work=$scratch
    mkdir "$work/source"
    tar -xzf "$archive" -C "$work/source" || fail "$archive is not a .tar.gz archive"
    local source
    source=$(dirname "$(find "$work/source" -maxdepth 3 -path '*/core/src' -print -quit)")
    source=${source%/core}
    [ -e "$source/CMakeLists.txt" ] && [ -e "$source/bin/nvcc_wrapper" ] || fail "$archive does not hold Kokkos's sources"
    if [ "$kokkos" = cuda ]; then
      # The wrapper's own default may be older than anything that this CUDA compiles for; then no compiler check passes.
      sed -i "s/^default_arch=.*/default_arch=\"sm_${architecture##*[A-Z]}\"/" "$source/bin/nvcc_wrapper"
      compiler=("-DCMAKE_CXX_COMPILER=$source/bin/nvcc_wrapper")
      adapt_to_cuda_13 "$source"
    fi
    say "building Kokkos ($kokkos${architecture:+, $architecture}) into $root"
    rm -rf "$root"
    local jobs
    jobs=$(nproc)
    {
      cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=20 \
        -DCMAKE_CXX_EXTENSIONS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DKokkos_ENABLE_TESTS=OFF \
        -DKokkos_ENABLE_EXAMPLES=OFF -DCMAKE_INSTALL_PREFIX="$root" -DCMAKE_INSTALL_LIBDIR=lib \
        "${compiler[@]}" "${options[@]}" &&
        cmake --build "$work/build" --parallel "$jobs" && cmake --install "$work/build"
    } >"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2 && fail "building Kokkos failed"; }
    printf '%s\n' "$made_of" >"$stamp"
  fi
  say "Kokkos ($kokkos) is in $root; configure with -DKokkos_ROOT=$root"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ "$with_packages" = yes ]; then check_packages; fi
if [ "$kokkos" != debian ]; then build_kokkos; fi
say "everything is here"
