// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/fma_loop.hpp"
#include "cli/machine/fma_work.hpp"
#include "pmm/kernels/host_parts.hpp"

namespace orthant::cli {

template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec) {
  constexpr auto steps = std::int64_t{1} << 19;
  static auto const loop = supported_fma_loops<T>().back();
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  runtime::Vector<T> const sums("orthant::cli::fma", static_cast<std::size_t>(num_threads));
  pmm::for_each_part(exec, "orthant::cli::fma", num_threads, [=](std::int64_t begin, std::int64_t end) {
    for (auto thread = begin; thread < end; ++thread)
      sums(static_cast<std::size_t>(thread)) = loop.run(steps, T{0.5}, T{1});
  });
  return num_threads * steps * loop.flops_per_step;
}

template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

} // namespace orthant::cli
