// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/build_info.hpp"

#include "cli/commands/git_description.hpp"
#include "cli/machine/blas_core.hpp"
#include "cli/options/shared_options.hpp"
#include "pmm/gemm/blas_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"

#include <Kokkos_Core.hpp>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <mpi.h>
#include <string_view>
#include <vector>

namespace orthant::cli {
namespace {

std::string kokkos_version() {
  return fmt::format("{}.{}.{}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100);
}

std::vector<std::string> execution_spaces() {
  std::vector<std::string> spaces;
#if defined(KOKKOS_ENABLE_CUDA)
  spaces.emplace_back("Cuda");
#endif
#if defined(KOKKOS_ENABLE_HIP)
  spaces.emplace_back("HIP");
#endif
#if defined(KOKKOS_ENABLE_OPENMP)
  spaces.emplace_back("OpenMP");
#endif
#if defined(KOKKOS_ENABLE_THREADS)
  spaces.emplace_back("Threads");
#endif
#if defined(KOKKOS_ENABLE_SERIAL)
  spaces.emplace_back("Serial");
#endif
  return spaces;
}

/// MPI library at run time, such as "Open MPI v4.1.4"; it may differ from the one at compile time.
std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  auto const library = std::string_view(text.data());
  return std::string(library.substr(0, library.find_first_of(",\n")));
}

std::string hdf5_library() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  H5get_libversion(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

constexpr bool has_nccl = ORTHANT_HAS_NCCL != 0;

} // namespace

std::string version() {
  return fmt::format("{} ({})", ORTHANT_VERSION, git_description);
}

nlohmann::ordered_json backends() {
  auto const blas = pmm::find_blas_library();
  auto const processor = runtime::find_processor();
  return {{"build", ORTHANT_BUILD_TYPE},
          {"compiler", ORTHANT_COMPILER},
          {"kokkos", kokkos_version()},
          {"spaces", execution_spaces()},
          {"mpi", mpi_library()},
          {"nccl", has_nccl},
          {"hdf5", hdf5_library()},
          {"gemm_math", gemm_maths()},
          {"blas", blas.name},
          {"blas_core", blas.core},
          {"dense_libraries", pmm::gemm_libraries()},
          {"processor", processor.name},
          {"vectors", name_of(processor.vectors)}};
}

std::string describe_build() {
  auto const processor = runtime::find_processor();
  return fmt::format("orthant {}\n"
                     "build       {}, {}\n"
                     "Kokkos      {}: {} (default {})\n"
                     "products    {}\n"
                     "BLAS        {}\n"
                     "dense       {}\n"
                     "processor   {}, {}\n"
                     "MPI         {}\n"
                     "NCCL        {}\n"
                     "HDF5        {}, parallel\n",
                     version(), ORTHANT_BUILD_TYPE, ORTHANT_COMPILER, kokkos_version(),
                     fmt::join(execution_spaces(), ", "), Kokkos::DefaultExecutionSpace::name(),
                     fmt::join(gemm_maths(), ", "), describe_blas(), fmt::join(pmm::gemm_libraries(), ", "),
                     processor.name, name_of(processor.vectors), mpi_library(), has_nccl ? "yes" : "no",
                     hdf5_library());
}

} // namespace orthant::cli
