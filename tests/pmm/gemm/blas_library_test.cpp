// SPDX-License-Identifier: Apache-2.0
//
// Which core type OpenBLAS should be told, for processors that this machine need not have.
#include "pmm/gemm/blas_library.hpp"

#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Processor;
using runtime::Vectors;

// What cpuid says of an Intel processor of family 6, model 207, which OpenBLAS 0.3.21 takes for a Prescott.
Processor const emerald_rapids{"INTEL(R) XEON(R) PLATINUM 8581C", "GenuineIntel", Vectors::avx512};
Processor const alder_lake{"12th Gen Intel(R) Core(TM) i7-1260P", "GenuineIntel", Vectors::avx2};
Processor const zen_2{"AMD EPYC 7742 64-Core Processor", "AuthenticAMD", Vectors::avx2};
Processor const zen_5{"AMD EPYC 9755 128-Core Processor", "AuthenticAMD", Vectors::avx512};
Processor const dhyana{"Hygon C86 7185 32-core Processor", "HygonGenuine", Vectors::avx2};
Processor const ivy_bridge{"Intel(R) Core(TM) i5-3320M", "GenuineIntel", Vectors::avx};
Processor const nehalem{"Intel(R) Xeon(R) CPU X5570", "GenuineIntel", Vectors::sse};
Processor const graviton{"aarch64", "", Vectors::unknown};

std::optional<std::string> better(std::string const& core, Processor const& processor) {
  return better_core({"OpenBLAS 0.3.21", core, true}, processor, std::nullopt);
}

TEST(BlasLibrary, AnOldCoreIsReplacedByTheBestForTheProcessor) {
  for (auto const* old :
       {"Prescott", "Core2", "Penryn", "Nehalem", "Barcelona", "Opteron", "Generic", "PRESCOTT"}) {
    EXPECT_EQ(better(old, emerald_rapids), "SkylakeX") << old;
    EXPECT_EQ(better(old, zen_5), "SkylakeX") << old;
    EXPECT_EQ(better(old, alder_lake), "Haswell") << old;
    EXPECT_EQ(better(old, zen_2), "Zen") << old;
    EXPECT_EQ(better(old, dhyana), "Zen") << old;
    EXPECT_EQ(better(old, ivy_bridge), "Sandybridge") << old;
    EXPECT_EQ(better(old, nehalem), std::nullopt) << old;
  }
  for (auto const* narrow : {"Sandybridge", "Bulldozer"}) {
    EXPECT_EQ(better(narrow, emerald_rapids), "SkylakeX") << narrow;
    EXPECT_EQ(better(narrow, alder_lake), "Haswell") << narrow;
    EXPECT_EQ(better(narrow, ivy_bridge), std::nullopt) << narrow;
  }
  for (auto const* half : {"Haswell", "Zen"})
    EXPECT_EQ(better(half, emerald_rapids), "SkylakeX") << half;
}

TEST(BlasLibrary, ACoreAsWideAsTheProcessorIsLeftAlone) {
  for (auto const* wide : {"SkylakeX", "Cooperlake", "SapphireRapids"})
    for (auto const& processor : {emerald_rapids, zen_5, zen_2, nehalem})
      EXPECT_EQ(better(wide, processor), std::nullopt) << wide << " on " << processor.name;
  // One vector length: which of these is better is OpenBLAS's to know.
  for (auto const* core : {"Haswell", "Zen", "Excavator", "Steamroller", "Piledriver"})
    for (auto const& processor : {alder_lake, zen_2, dhyana, ivy_bridge})
      EXPECT_EQ(better(core, processor), std::nullopt) << core << " on " << processor.name;
}

TEST(BlasLibrary, WhatIsUnknownIsLeftAlone) {
  for (auto const* core : {"", "Unknown", "Zen7", "NEOVERSEV1", "POWER10"})
    for (auto const& processor : {emerald_rapids, zen_2, graviton})
      EXPECT_EQ(better(core, processor), std::nullopt) << core << " on " << processor.name;
  EXPECT_EQ(better("Generic", graviton), std::nullopt);
}

TEST(BlasLibrary, TheUsersChoiceStands) {
  BlasLibrary const library{"OpenBLAS 0.3.21", "Prescott", true};

  for (auto const* chosen : {"Prescott", "Haswell", "nonsense", ""})
    EXPECT_EQ(better_core(library, emerald_rapids, chosen), std::nullopt) << chosen;
}

TEST(BlasLibrary, ABuildForOneCoreIsSlowAndCannotBeHelped) {
  BlasLibrary const library{"OpenBLAS 0.3.21", "HASWELL", false};

  EXPECT_EQ(better_core(library, emerald_rapids, std::nullopt), std::nullopt);
  EXPECT_TRUE(has_slow_core(library, emerald_rapids));
  EXPECT_FALSE(has_slow_core(library, zen_2));
}

TEST(BlasLibrary, ItsOwnCoreIsKnown) {
  auto const library = find_blas_library();

  EXPECT_FALSE(library.name.empty());
  if (runtime::find_processor().vectors == Vectors::unknown || library.core.empty()) return;
  EXPECT_NE(vectors_of_core(library.core), Vectors::unknown) << library.core;
}

} // namespace
} // namespace orthant::testing
