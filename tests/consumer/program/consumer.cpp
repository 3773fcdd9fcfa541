// SPDX-License-Identifier: Apache-2.0
//
// What a user of the installed libraries may write first: each rank fills a vector, and the ranks sum it.

#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/job/job_end.hpp"

#include <fmt/format.h>

namespace rt = orthant::runtime;

int main(int argc, char** argv) {
  return rt::run_main(argc, argv, {}, [](rt::Environment& environment) {
    auto const& world = environment.world();
    rt::Vector<double, Kokkos::DefaultHostExecutionSpace> numbers("consumer::numbers", 3);
    Kokkos::deep_copy(numbers, world.rank() + 1.0);

    rt::all_reduce(rt::host, world, std::span<double>(numbers.data(), numbers.size()));

    double const expected = 0.5 * world.size() * (world.size() + 1);
    ORTHANT_REQUIRE(numbers(0) == expected && numbers(2) == expected, "sum is ", numbers(0));
    if (world.is_root()) fmt::print("{} ranks agree on {}\n", world.size(), numbers(2));
    return rt::exit_done;
  });
}
