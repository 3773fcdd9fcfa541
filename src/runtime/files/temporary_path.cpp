// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/temporary_path.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <mutex>
#include <random>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {
namespace {

constexpr std::string_view marker = ".partial-";
constexpr std::size_t num_digits = 16;

/// List of all objects of the process, because an abort ends the whole process and std::terminate has no access to objects.
struct Registry {
  std::mutex mutex;
  TemporaryPath* first = nullptr;
};

Registry& registry() {
  static Registry all;
  return all;
}

} // namespace

TemporaryPath::TemporaryPath(std::filesystem::path path) : path_(std::move(path)) {
  auto& all = registry();
  std::lock_guard const lock(all.mutex);
  next_ = std::exchange(all.first, this);
  if (next_ != nullptr) next_->previous_ = this;
}

TemporaryPath::~TemporaryPath() {
  {
    auto& all = registry();
    std::lock_guard const lock(all.mutex);
    (previous_ != nullptr ? previous_->next_ : all.first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  remove();
}

void TemporaryPath::keep() noexcept {
  std::lock_guard const lock(registry().mutex);
  is_kept_ = true;
}

void TemporaryPath::remove() const noexcept {
  if (is_kept_) return;
  try {
    std::error_code error;
    constexpr auto most_attempts = 3; // ranks may remove one folder at the same time
    for (auto i = 0; i < most_attempts; ++i) {
      std::filesystem::remove_all(path_, error);
      if (!error) return;
    }
  } catch (...) { // no memory; the next run removes it
  }
}

void remove_temporaries() noexcept {
  auto& all = registry();
  std::lock_guard const lock(all.mutex);
  for (auto const* each = all.first; each != nullptr; each = each->next_)
    each->remove();
}

std::uint64_t draw_token() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::uint64_t draw_token(Communicator const& comm) {
  auto token = comm.is_root() ? static_cast<std::int64_t>(draw_token()) : 0;
  broadcast(host, comm, std::span(&token, 1), 0);
  return static_cast<std::uint64_t>(token);
}

std::filesystem::path partial_name(std::filesystem::path const& path, std::uint64_t token) {
  auto name = path;
  name += fmt::format("{}{:016x}", marker, token);
  return name;
}

bool is_partial_name(std::string_view candidate, std::string_view name) {
  if (!candidate.starts_with(name)) return false;
  candidate.remove_prefix(name.size());
  if (!candidate.starts_with(marker)) return false;
  candidate.remove_prefix(marker.size());
  auto const is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return candidate.size() == num_digits && std::ranges::all_of(candidate, is_digit);
}

bool is_in_use(std::filesystem::path const& path) noexcept {
  // A file on which another program holds a lease is refused at once, and counts as unused.
  auto descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0)
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); // a folder
  if (descriptor < 0) return false;
  auto const is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return is_locked;
}

void remove_leftovers(std::filesystem::path const& path) noexcept {
  namespace fs = std::filesystem;
  try {
    auto const folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    auto const name = path.filename().string();
    std::error_code ignored;
    for (auto const& found : folder_entries(folder, ignored))
      if (is_partial_name(found, name) && !is_in_use(folder / found)) fs::remove_all(folder / found, ignored);
  } catch (...) { // no memory
  }
}

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
