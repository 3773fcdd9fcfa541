// SPDX-License-Identifier: Apache-2.0
#include "cli/options/command.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace orthant::cli {
namespace {

namespace fs = std::filesystem;

/// False for devices such as /dev/null, which several options may name.
bool is_file_or_folder(fs::path const& path) {
  std::error_code error;
  auto const status = fs::status(path, error);
  return fs::is_regular_file(status) || fs::is_directory(status);
}

bool are_same(fs::path const& a, fs::path const& b) {
  std::error_code error;
  if (fs::exists(a, error) && fs::exists(b, error))
    return is_file_or_folder(a) && fs::equivalent(a, b, error);
  auto const place_of = [&](fs::path const& path) {
    return fs::weakly_canonical(fs::absolute(runtime::link_target(path)), error);
  };
  auto const place = place_of(a);
  return !place.empty() && place == place_of(b);
}

/// True for files that readers of graphs look for in a folder.
bool may_be_of_graph(fs::path const& path) {
  constexpr std::array<std::string_view, 9> endings{".npy", ".npz", ".gz", ".csv",  ".txt",
                                                    ".tsv", ".mtx", ".el", ".edges"};
  auto const ending = path.extension().string();
  return path.filename() == "meta.json" ||
         std::ranges::find(endings, std::string_view(ending)) != endings.end();
}

/// True if `file` is one of the files that make up a graph in `folder`.
bool is_of_graph_in(fs::path const& folder, fs::path const& file, int most_folders = 2) { // split/NAME
  std::error_code error;
  if (!fs::is_directory(folder, error) || !fs::is_regular_file(file, error)) return false;
  auto const names = runtime::folder_entries(folder, error); // a folder that cannot be read holds no input
  return std::ranges::any_of(names, [&](std::string const& name) {
    return (may_be_of_graph(name) && fs::equivalent(folder / name, file, error)) ||
           (most_folders > 0 && is_of_graph_in(folder / name, file, most_folders - 1));
  });
}

bool is_output(FileOption const& file) {
  return file.use != FileOption::Use::input;
}

void require_distinct(FileOption const& output, FileOption const& other) {
  if (are_same(*output.path, *other.path)) {
    if (is_output(other))
      runtime::throw_user("{} and {} both write '{}'; name different files", output.name, other.name,
                          *output.path);
    runtime::throw_user("{} would overwrite '{}', which {} reads; name another file", output.name,
                        *output.path, other.name);
  }
  if (is_of_graph_in(*other.path, *output.path))
    runtime::throw_user("{} would overwrite '{}', a file of the graph in the folder of {}; name another file",
                        output.name, *output.path, other.name);
  if (is_of_graph_in(*output.path, *other.path))
    runtime::throw_user("{} would overwrite '{}', which {} names; name another folder", output.name,
                        *other.path, other.name);
}

} // namespace

void require_distinct_files(runtime::Communicator const& comm, std::span<FileOption const> files) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!is_output(files[i]) || files[i].path->empty()) continue;
      for (std::size_t j = 0; j < files.size(); ++j) {
        auto const is_seen = is_output(files[j]) && j <= i;
        if (!is_seen && !files[j].path->empty()) require_distinct(files[i], files[j]);
      }
    }
  });
}

void require_new_files(runtime::Communicator const& comm, std::span<FileOption const> files,
                       std::function<bool()> const& may_replace, std::string_view advice) {
  runtime::together(comm, [&] {
    if (!comm.is_root() || may_replace()) return;
    for (auto const& file : files) {
      std::error_code error;
      if (file.use != FileOption::Use::output || file.path->empty()) continue;
      if (fs::is_regular_file(*file.path, error) && fs::file_size(*file.path, error) > 0)
        runtime::throw_user("{} '{}' exists; --force replaces it{}", file.name, *file.path, advice);
    }
  });
}

} // namespace orthant::cli
