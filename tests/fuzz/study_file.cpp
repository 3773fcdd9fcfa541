// SPDX-License-Identifier: Apache-2.0
//
// A study file, and the points that it asks for.

#include "cli/study/study_file.hpp"
#include "fuzz/fuzz_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace orthant;
  return fuzz::accept_or_refuse([&] {
    auto const study = cli::parse_study(fuzz::text_of(data, size), "study.toml");
    for (auto const& point : cli::points_of(study))
      if (point.key.find('/') != std::string::npos || point.ranks < 1) __builtin_trap();
  });
}
