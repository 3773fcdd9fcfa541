// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/older_file.hpp"

#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"

#include <cstdint>
#include <system_error>

namespace orthant::runtime {

namespace fs = std::filesystem;

fs::path set_aside(fs::path const& path) {
  auto const target = link_target(path);
  std::error_code error;
  for (std::int64_t number = 1;; ++number) {
    auto other = target;
    other += fmt::format(".{}", number);
    if (fs::exists(fs::symlink_status(other, error))) continue;
    fs::rename(target, other, error);
    if (error) throw_user("cannot rename '{}' to '{}': {}", target.string(), other.string(), error.message());
    return other;
  }
}

fs::path set_aside_if_any(fs::path const& path) {
  std::error_code error;
  if (path.empty() || !fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return {};
  return set_aside(path);
}

} // namespace orthant::runtime
