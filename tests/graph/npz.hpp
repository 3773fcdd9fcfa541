#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Writes .npz archives with libzip.

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>
#include <zip.h>

namespace orthant::testing {

/// A .npz archive with these members.
inline void write_npz(std::filesystem::path const& path,
                      std::vector<std::pair<std::string, std::string>> const& members, bool is_compressed) {
  int code = 0;
  auto* const archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  ASSERT_NE(archive, nullptr);
  for (auto const& [name, content] : members) {
    auto* const data = zip_source_buffer(archive, content.data(), content.size(), 0);
    auto const index = zip_file_add(archive, name.c_str(), data, 0);
    ASSERT_GE(index, 0);
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                             is_compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
  }
  ASSERT_EQ(zip_close(archive), 0);
}

} // namespace orthant::testing
