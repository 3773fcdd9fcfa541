#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Where sources of the tests lie, for the data among them.

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace orthant::testing {

/// `folder` is below tests/ where the tests were built. If ORTHANT_TEST_SOURCES is set, as scripts/make_gpu_tree.sh has it, that is the
/// folder tests/ to look in instead.
inline std::filesystem::path where_sources_lie(std::filesystem::path const& folder) {
  char const* const moved = std::getenv("ORTHANT_TEST_SOURCES");
  if (moved == nullptr) return folder;
  constexpr std::string_view top = "/tests/";
  auto const built = folder.string();
  return std::filesystem::path(moved) / built.substr(built.rfind(top) + top.size());
}

} // namespace orthant::testing
