// SPDX-License-Identifier: Apache-2.0
//
// Where Kokkos's default execution space is a device; takes the place of fma_work_host.cpp.
#include "cli/machine/fma_work.hpp"

namespace orthant::cli {

template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec) {
  constexpr auto steps = 1 << 14;
  constexpr auto num_chains = 8; // a multiprocessor with all its threads needs few of each
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  runtime::Vector<T> const sums("orthant::cli::fma", static_cast<std::size_t>(num_threads));
  Kokkos::parallel_for(
      "orthant::cli::fma", Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, num_threads),
      KOKKOS_LAMBDA(std::int64_t thread) {
        T chains[num_chains];
        for (int chain = 0; chain < num_chains; ++chain)
          chains[chain] = static_cast<T>(chain);
        auto const factor = T(0.5) + static_cast<T>(thread % 2) / 4; // nothing for the compiler to compute
        for (int step = 0; step < steps; ++step)
          for (int chain = 0; chain < num_chains; ++chain)
            chains[chain] = chains[chain] * factor + T(1);
        T sum = 0;
        for (int chain = 0; chain < num_chains; ++chain)
          sum += chains[chain];
        sums(static_cast<std::size_t>(thread)) = sum;
      });
  return num_threads * steps * num_chains * 2;
}

template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

} // namespace orthant::cli
