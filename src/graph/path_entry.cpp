// SPDX-License-Identifier: Apache-2.0
#include "graph/path_entry.hpp"

#include "runtime/error.hpp"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// `path` does not exist after following links. Throws if `path` itself is a link.
void refuse_dangling_link(std::filesystem::path const& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return;
  std::error_code ignored; // the target is only for the message
  throw_user("cannot read {}: it is a symbolic link to {}, which does not exist", path.string(),
             std::filesystem::read_symlink(path, ignored).string());
}

} // namespace

bool has_entry(std::filesystem::path const& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) throw_user("cannot read {}: {}", path.string(), std::strerror(errno));
  refuse_dangling_link(path);
  auto const folder = path.parent_path();
  if (!folder.empty() && ::stat(folder.c_str(), &status) != 0) refuse_dangling_link(folder);
  return false;
}

std::optional<std::filesystem::path> find_first(std::filesystem::path const& folder,
                                                std::initializer_list<char const*> names) {
  std::optional<std::filesystem::path> found;
  for (auto const* const name : names)
    if (has_entry(folder / name) && !found) found = folder / name;
  return found;
}

bool is_folder_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos;
}

} // namespace orthant::graph
