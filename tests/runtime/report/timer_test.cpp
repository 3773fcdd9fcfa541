// SPDX-License-Identifier: Apache-2.0
//
// The seconds of phases, and the timers that measure them.
#include "runtime/report/timer.hpp"

#include "runtime/comm/communicator.hpp"

#include <Kokkos_Core.hpp>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace orthant::runtime {
namespace {

using testing::ElementsAre;

TEST(PhaseTimes, AddUpInOrderOfAppearance) {
  PhaseTimes phases;
  phases.add("spmm", 0.5);
  phases.add("gemm", 0.25);
  phases.add("spmm", 0.125);

  EXPECT_EQ(phases.to_json().dump(), R"({"spmm":0.625,"gemm":0.25})");
  EXPECT_EQ(phases.seconds("spmm"), 0.625);
  EXPECT_EQ(phases.seconds("unheard of"), 0);
  phases.clear();
  EXPECT_EQ(phases.to_json().dump(), "{}");
  phases.add("gemm", 1);
  EXPECT_EQ(phases.to_json().dump(), R"({"gemm":1.0})");
}

TEST(ScopedTimer, MeasuresItsLifeOnce) {
  Instruments instruments;
  PhaseTimes phases;
  double stopped = 0;
  {
    ScopedTimer timer(instruments, phases, "work");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    stopped = timer.stop();
    EXPECT_EQ(timer.stop(), stopped);
  }
  EXPECT_GE(stopped, 0.005);
  EXPECT_EQ(phases.seconds("work"), stopped);
  EXPECT_EQ(phases.phases().front().calls, 1);
}

std::vector<std::string>* seen_regions = nullptr; // Kokkos's callbacks carry no state

TEST(ScopedTimer, IsARegionOfKokkosTools) {
  std::vector<std::string> regions;
  seen_regions = &regions;
  Kokkos::Tools::Experimental::set_push_region_callback(
      [](char const* name) { seen_regions->emplace_back(name); });
  Kokkos::Tools::Experimental::set_pop_region_callback([] { seen_regions->emplace_back("end"); });
  Instruments instruments;
  PhaseTimes phases;
  {
    ScopedTimer const outer(instruments, phases, "forward");
    ScopedTimer inner(instruments, phases, "aggregate");
    inner.stop();
  }
  Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
  Kokkos::Tools::Experimental::set_pop_region_callback(nullptr);
  EXPECT_THAT(regions, ElementsAre("forward", "aggregate", "end", "end"));
}

} // namespace
} // namespace orthant::runtime
