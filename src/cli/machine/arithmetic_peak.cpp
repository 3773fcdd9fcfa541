// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/arithmetic_peak.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

namespace orthant::cli {

template<class T>
double measure_gemm_peak(runtime::Communicator const& world, std::int64_t size, std::int64_t num_repeats) {
  using Square = runtime::Matrix<T>;
  using pmm::Transpose;
  runtime::DefaultExec const exec;
  auto& clock = world.instruments().clock;
  auto const extent = static_cast<std::size_t>(size);
  Square const a("orthant::cli::square", extent, extent);
  Square const b("orthant::cli::square", extent, extent);
  Square const c("orthant::cli::square", extent, extent);
  // Memory for the library's copies of operands. It is freed together with the square matrices, because many trainings need less.
  auto const room = pmm::runs_on_host ? extent + 1 : 0;
  Square const copy("orthant::cli::square", room, extent);
  pmm::LentMemory const lent(copy.data(), copy.span() * sizeof(T));
  Kokkos::deep_copy(exec, a, T{1});
  Kokkos::deep_copy(exec, b, T{2});
  auto const library = chosen_library<T>(Transpose::no, Transpose::no, {size, size, size});
  auto least = std::numeric_limits<double>::max();
  for (std::int64_t repeat = 0; repeat <= num_repeats; ++repeat) {
    runtime::compat::fence(exec, "orthant::cli::measure_gemm_peak/begin");
    runtime::barrier(runtime::host, world);
    auto const begin = clock.now();
    if (pmm::runs_on_host && pmm::chosen_gemm_math() == pmm::GemmMath::fp32)
      bare_gemm<T>(library, Transpose::no, a, Transpose::no, b, c);
    else
      pmm::local_gemm<T>(exec, 1, Transpose::no, a, Transpose::no, b, 0, c);
    runtime::compat::fence(exec, "orthant::cli::measure_gemm_peak/end");
    auto const seconds = std::chrono::duration<double>(clock.now() - begin).count();
    auto const slowest = runtime::all_reduced(world, seconds, runtime::Reduction::max);
    if (repeat > 0) least = std::min(least, slowest);
  }
  auto const edge = static_cast<double>(size);
  return 2 * edge * edge * edge * world.size() / least;
}

template double measure_gemm_peak<float>(runtime::Communicator const&, std::int64_t, std::int64_t);
template double measure_gemm_peak<double>(runtime::Communicator const&, std::int64_t, std::int64_t);

} // namespace orthant::cli
