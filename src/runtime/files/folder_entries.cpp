// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/folder_entries.hpp"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <memory>
#include <string_view>

namespace orthant::runtime {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

} // namespace

std::vector<std::string> folder_entries(std::filesystem::path const& folder, std::error_code& error) {
  std::vector<std::string> names;
  error.clear();
  errno = 0;
  std::unique_ptr<DIR, CloseFolder> const open(::opendir(folder.c_str()));
  auto const next = [&] {
    errno = 0;
    return ::readdir(open.get());
  };
  if (open)
    while (auto const* const entry = next())
      if (std::string_view const name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) error = {errno, std::generic_category()};
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> folder_entries(std::filesystem::path const& folder) {
  std::error_code error;
  auto names = folder_entries(folder, error);
  if (error) throw std::filesystem::filesystem_error("cannot read the folder", folder, error);
  return names;
}

} // namespace orthant::runtime
