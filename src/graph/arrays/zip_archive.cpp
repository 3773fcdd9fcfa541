// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/zip_archive.hpp"

#include "graph/crc32.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <span>
#include <zip.h>
#include <zlib.h>

namespace orthant::graph {

using runtime::throw_user;

namespace {

struct DiscardArchive {
  void operator()(zip_t* archive) const noexcept { zip_discard(archive); }
};
struct CloseMember {
  void operator()(zip_file_t* member) const noexcept { zip_fclose(member); }
};
using Archive = runtime::UniqueHandle<zip_t*, nullptr, DiscardArchive>;
using Member = runtime::UniqueHandle<zip_file_t*, nullptr, CloseMember>;

Archive open_archive(std::filesystem::path const& path) {
  static_cast<void>(
      runtime::detail::open_to_read(path)); // throws with the system's reason if the file cannot be opened
  int code = 0;
  // Directory and member headers must agree: readers differ in which of them they use.
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (!archive.owns() && code == ZIP_ER_EXISTS) // found by the comparison
    throw_user("{} holds two members of the same name", path.string());
  if (!archive.owns()) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    std::string const reason = zip_error_strerror(&error);
    zip_error_fini(&error);
    throw_user("cannot read {} as an .npz archive: {}", path.string(), reason);
  }
  return archive;
}

std::vector<std::string> members_of(zip_t* archive) {
  std::vector<std::string> names;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i)
    if (char const* const name = zip_get_name(archive, static_cast<zip_uint64_t>(i), 0))
      names.emplace_back(name);
  return names;
}

class ZipMember final : public runtime::ByteSource {
 public:
  ZipMember(std::filesystem::path const& path, std::string const& member)
      : archive_(open_archive(path)),
        name_(path.string() + "(" + member + ")") {
    auto const members = members_of(archive_.get());
    auto const index = zip_name_locate(archive_.get(), member.c_str(), 0);
    if (index < 0)
      throw_user("{} has no member {}; it holds {}", path.string(), member,
                 fmt::join(std::span(members).first(std::min<std::size_t>(members.size(), 20)), ", "));
    index_ = static_cast<zip_uint64_t>(index);
    zip_stat_t status{};
    zip_stat_init(&status);
    if (zip_stat_index(archive_.get(), index_, 0, &status) != 0 || (status.valid & ZIP_STAT_SIZE) == 0)
      throw_user("cannot read {}: {}", name_, zip_strerror(archive_.get()));
    auto const method = (status.valid & ZIP_STAT_COMP_METHOD) != 0 ? int{status.comp_method} : -1;
    if (method != ZIP_CM_STORE && method != ZIP_CM_DEFLATE)
      throw_user("{}: compression method {} cannot be read; numpy's savez and savez_compressed can", name_,
                 method);
    is_stored_ = method == ZIP_CM_STORE;
    check_size(path, status);
    size_ = static_cast<std::int64_t>(status.size);
    if (is_stored_ && (status.valid & ZIP_STAT_CRC) != 0) stored_check_sum_ = status.crc;
    reopen();
  }

  [[nodiscard]] std::optional<std::uint32_t> stored_check_sum() const { return stored_check_sum_; }

  std::string const& name() const override { return name_; }
  std::int64_t size() const override { return size_; }
  bool has_random_access() const override { return is_stored_; }
  std::int64_t bytes_read() const override { return bytes_read_; }

  void read(std::int64_t offset, std::span<std::byte> out) override {
    move_to(offset);
    fill(out);
    if (position_ == size_ && !is_stored_) check_end();
  }

 private:
  /// Compares the size in the directory with the archive: arrays are allocated according to this size.
  void check_size(std::filesystem::path const& path, zip_stat_t const& status) const {
    auto const archive_bytes = std::filesystem::file_size(path);
    auto const packed = (status.valid & ZIP_STAT_COMP_SIZE) != 0 ? status.comp_size : archive_bytes;
    constexpr zip_uint64_t best_ratio = 1032; // of deflate: 258 bytes in 2 bits
    auto const most = is_stored_ ? packed : best_ratio * (std::min(packed, archive_bytes) + 1);
    if (packed > archive_bytes || status.size > most)
      throw_user("{}: {} bytes are claimed, more than the archive of {} bytes can hold (damaged?)", name_,
                 status.size, archive_bytes);
  }

  /// Reads the end, where libzip compares length and checksum.
  void check_end() {
    std::byte more{};
    auto const got = zip_fread(member_.get(), &more, 1);
    if (got < 0) throw_user("cannot read {}: {}", name_, zip_file_strerror(member_.get()));
    if (got > 0) throw_user("{} goes on after the {} bytes that the archive claims", name_, size_);
  }

  void reopen() {
    member_.reset();
    member_ = Member(zip_fopen_index(archive_.get(), index_, 0));
    if (!member_.owns()) throw_user("cannot read {}: {}", name_, zip_strerror(archive_.get()));
    position_ = 0;
  }

  void move_to(std::int64_t offset) {
    if (offset == position_) return;
    if (is_stored_) {
      if (zip_fseek(member_.get(), offset, SEEK_SET) != 0)
        throw_user("cannot read {} at byte {}: {}", name_, offset, zip_file_strerror(member_.get()));
      position_ = offset;
      return;
    }
    if (offset < position_) reopen();
    std::array<std::byte, 65536> passed_over;
    while (position_ < offset) {
      auto const count = std::min(offset - position_, static_cast<std::int64_t>(passed_over.size()));
      fill(std::span(passed_over).first(static_cast<std::size_t>(count)));
    }
  }

  void fill(std::span<std::byte> out) {
    while (!out.empty()) {
      auto const got = zip_fread(member_.get(), out.data(), out.size());
      if (got < 0)
        throw_user("cannot read {} at byte {}: {}", name_, position_, zip_file_strerror(member_.get()));
      if (got == 0) throw_user("{} ends at byte {} (truncated?)", name_, position_);
      position_ += got;
      bytes_read_ += got;
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }

  Archive archive_;
  Member member_; // after the archive, so that it is closed first
  std::string name_;
  zip_uint64_t index_ = 0;
  std::int64_t size_ = 0;
  std::int64_t position_ = 0;
  std::int64_t bytes_read_ = 0;
  bool is_stored_ = false;
  std::optional<std::uint32_t> stored_check_sum_;
};

} // namespace

std::vector<std::string> list_zip_members(std::filesystem::path const& archive) {
  return members_of(open_archive(archive).get());
}

std::unique_ptr<runtime::ByteSource> open_zip_member(std::filesystem::path const& archive,
                                                     std::string const& member) {
  return std::make_unique<ZipMember>(archive, member);
}

std::optional<std::uint32_t> stored_check_sum(std::filesystem::path const& archive,
                                              std::string const& member) {
  return ZipMember(archive, member).stored_check_sum();
}

namespace {

std::uint32_t check_sum_of(runtime::ByteSource& bytes, runtime::Range range) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(most, range.size())));
  std::uint32_t sum = 0;
  for (auto offset = range.begin; offset < range.end; offset += most) {
    auto const part = std::span(piece).first(static_cast<std::size_t>(std::min(most, range.end - offset)));
    bytes.read(offset, part);
    sum = crc32_of(part, sum);
  }
  return sum;
}

} // namespace

void check_stored_members(runtime::Communicator const& comm, std::vector<ArchiveMember> const& members) {
  for (auto const& [archive, name] : members) {
    std::optional<std::uint32_t> expected;
    std::array<std::int64_t, 2> mine{}; // checksum and length of this rank's part
    runtime::together(comm, [&] {
      expected = stored_check_sum(archive, name);
      if (!expected) return;
      auto const bytes = open_zip_member(archive, name);
      auto const range = runtime::balanced_range(bytes->size(), comm.size(), comm.rank());
      mine = {check_sum_of(*bytes, range), range.size()};
    });
    if (!expected) continue;

    std::vector<std::int64_t> parts(2 * static_cast<std::size_t>(comm.size()));
    runtime::all_gather(runtime::host, comm, std::span<std::int64_t const>(mine), std::span(parts));
    uLong sum = 0;
    for (std::size_t i = 0; i < parts.size(); i += 2)
      sum = crc32_combine(sum, static_cast<uLong>(parts[i]), static_cast<z_off_t>(parts[i + 1]));
    if (sum != *expected)
      runtime::throw_user("{}({}): the check sum is {:08x}, but the archive says {:08x} (damaged?)",
                          archive.string(), name, sum, *expected);
  }
}

} // namespace orthant::graph
