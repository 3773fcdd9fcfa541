// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/checkpoint_folder.hpp"

#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/files/temporary_path.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace orthant::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "checkpoint-";
constexpr std::string_view suffix = ".h5";

std::string name_of(std::int64_t number) {
  return fmt::format("{}{:06}{}", prefix, number, suffix);
}

/// None for a file that has no name of a checkpoint.
std::optional<std::int64_t> number_of(std::string const& name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  std::int64_t number = 0;
  auto const* const end = name.data() + name.size() - suffix.size();
  auto const read = std::from_chars(name.data() + prefix.size(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 1 || name_of(number) != name) return std::nullopt;
  return number;
}

} // namespace

fs::path checkpoint_path(fs::path const& folder, std::int64_t step) {
  return folder / name_of(step);
}

std::vector<std::int64_t> checkpoint_numbers(fs::path const& folder) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (auto const& name : runtime::folder_entries(folder, error))
    if (auto const number = number_of(name)) numbers.push_back(*number);
  if (error && error != std::errc::no_such_file_or_directory)
    runtime::throw_user("cannot read the folder of checkpoints '{}': {}", folder.string(), error.message());
  std::ranges::sort(numbers);
  return numbers;
}

void require_writable_folder(fs::path const& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    runtime::throw_user("cannot make the folder of checkpoints '{}': {}", folder.string(), error.message());
  for (auto const& entry : runtime::folder_entries(folder, error)) {
    auto const name = entry.substr(0, std::min(entry.find(suffix), entry.size()) + suffix.size());
    if (name != entry && number_of(name)) runtime::remove_leftovers(folder / name);
  }
  runtime::require_writable(checkpoint_path(folder, 0), "checkpoint"); // no checkpoint has that name
}

std::vector<fs::path> set_aside_later_checkpoints(fs::path const& folder, std::int64_t step,
                                                  fs::path const& resumed) {
  std::error_code error;
  auto const numbers = checkpoint_numbers(folder);
  auto const own = std::ranges::find_if(numbers, [&](std::int64_t number) {
    return fs::equivalent(checkpoint_path(folder, number), resumed, error);
  });
  auto const is_here = own != numbers.end();
  // An earlier version has counted more files than there were steps: its file is not to be taken for a later one.
  auto const is_misnamed = is_here && *own > step;
  auto const newest = is_misnamed ? step - 1 : is_here ? *own : step;
  std::vector<fs::path> names;
  for (auto const number : numbers)
    if (number > newest && (!is_here || number != *own))
      names.push_back(runtime::set_aside(checkpoint_path(folder, number)));
  if (is_misnamed) fs::rename(checkpoint_path(folder, *own), checkpoint_path(folder, step), error);
  if (names.empty() && !is_misnamed) return names;
  auto const left = checkpoint_numbers(folder);
  if (left.empty())
    fs::remove(folder / "latest", error);
  else
    point_latest_to(folder, left.back());
  return names;
}

void point_latest_to(fs::path const& folder, std::int64_t number) {
  // A link cannot be changed, but another one can take its name.
  auto const latest = folder / "latest";
  runtime::remove_leftovers(latest);
  runtime::TemporaryPath link(runtime::partial_name(latest, runtime::draw_token()));
  std::error_code error;
  fs::create_symlink(name_of(number), link.path(), error);
  if (!error) fs::rename(link.path(), latest, error);
  if (error) return;
  link.keep();
}

void remove_older_checkpoints(fs::path const& folder, std::int64_t newest, std::int64_t num_kept) noexcept {
  try {
    auto numbers = checkpoint_numbers(folder);
    std::erase_if(numbers, [&](std::int64_t number) { return number > newest; });
    auto const num_older = static_cast<std::int64_t>(numbers.size()) - num_kept;
    std::error_code ignored;
    for (std::int64_t i = 0; i < num_older; ++i)
      fs::remove(checkpoint_path(folder, numbers[static_cast<std::size_t>(i)]), ignored);
  } catch (...) { // no memory
  }
}

} // namespace orthant::models
