// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/collectives.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "runtime/files/staged_file.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sys/resource.h>

namespace orthant::runtime {
namespace {

using test::message_of;
using test::num_partial_files;
using test::ScratchFolder;
using test::text_of_file;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path path_of(ScratchFolder const& folder) {
  return fs::path(folder.file("x")).parent_path();
}

/// While it lives this process can write no file beyond `num_bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    auto limit = before_;
    limit.rlim_cur = num_bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(FileSizeLimit const&) = delete;
  FileSizeLimit& operator=(FileSizeLimit const&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

std::span<std::byte const> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// One file, all ranks --------------------------------------------------------------------------------------

TEST(StagedFile, IsThereWhenAllRanksHaveWritten) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("letters");
  if (world.is_root()) test::write_file(path, "old");
  barrier(host, world);

  auto staged = StagedFile::create(world, path, "letters");
  std::string const mine(1, static_cast<char>('a' + world.rank()));
  staged.file().write_at(world.rank(), bytes_of(mine));
  auto const before = text_of_file(path);
  barrier(host, world);
  staged.publish(world);

  EXPECT_EQ(before, "old");
  EXPECT_EQ(text_of_file(path), std::string("abcdefgh").substr(0, static_cast<std::size_t>(world.size())));
  EXPECT_EQ(num_partial_files(path_of(folder)), 0);
}

TEST(StagedFile, OneRankMayLeaveAlone) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("left");
  if (world.is_root()) test::write_file(path, "old");
  barrier(host, world);
  {
    auto staged = StagedFile::create(world, path, "text");
    // The last rank fails; the others are still at work when it is gone.
    if (world.rank() == world.size() - 1) staged = StagedFile();
    barrier(host, world);
    EXPECT_EQ(num_partial_files(path_of(folder)), 0);
    barrier(host, world);
  }
  EXPECT_EQ(text_of_file(path), "old");
}

TEST(StagedFile, RemovesWhatAKilledJobHasLeft) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("w.h5");
  auto const stranger = folder.file("w.h5.partial-notes");
  if (world.is_root()) {
    test::write_file(path + ".partial-0123456789abcdef", "half");
    test::write_file(stranger, "mine");
  }
  barrier(host, world);

  auto staged = StagedFile::create(world, path, "text");
  staged.publish(world);

  EXPECT_EQ(text_of_file(stranger), "mine");
  EXPECT_FALSE(fs::exists(path + ".partial-0123456789abcdef"));
}

// Neither removes what the other is still writing; the one that is ready last wins.
TEST(StagedFile, TwoJobsDoNotMixTheirData) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("contended");
  auto first = StagedFile::create(world, path, "text");
  auto second = StagedFile::create(world, path, "text");
  if (world.is_root()) {
    first.file().write_at(0, bytes_of("first"));
    second.file().write_at(0, bytes_of("second"));
  }

  auto const message = message_of([&] { first.publish(world); });
  second.publish(world);

  EXPECT_EQ(message, "no UserError");
  EXPECT_EQ(text_of_file(path), "second");
}

TEST(StagedFile, AFullDiskLeavesTheOldFile) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("full");
  if (world.is_root()) test::write_file(path, "old");
  barrier(host, world);

  auto const written = message_of([&] {
    auto staged = StagedFile::create(world, path, "weights");
    FileSizeLimit const limit(4096);
    std::string const text(10'000, 'x');
    staged.file().write_at(0, bytes_of(text));
  });
  auto const reserved = message_of([&] {
    auto staged = StagedFile::create(world, path, "weights");
    FileSizeLimit const limit(4096);
    staged.file().reserve(10'000);
    std::string const text(10'000, 'x'); // where space cannot be reserved
    staged.file().write_at(0, bytes_of(text));
  });
  barrier(host, world);

  EXPECT_EQ(written, "cannot write the weights file '" + path + "': File too large");
  EXPECT_THAT(reserved, HasSubstr("File too large"));
  EXPECT_EQ(text_of_file(path), "old");
  EXPECT_EQ(num_partial_files(path_of(folder)), 0);
}

// One file, one process ------------------------------------------------------------------------------------

TEST(StagedFile, RefusesFoldersDevicesAndMissingFolders) {
  Communicator const world(MPI_COMM_WORLD, "world");

  EXPECT_EQ(message_of([&] { require_writable(world, "/nowhere/w.h5", "weights"); }),
            "cannot open the weights file '/nowhere/w.h5': there is no folder '/nowhere'");
  EXPECT_THAT(message_of([&] { require_writable(world, "/tmp", "weights"); }), HasSubstr("Is a directory"));
  EXPECT_THAT(message_of([&] { require_writable(world, "/dev/null", "weights"); }), HasSubstr("is a device"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(StagedFile, WritesThroughLinks) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  if (!world.is_root()) return;
  fs::create_symlink("later", folder.file("link"));
  fs::create_symlink("loop", folder.file("loop"));

  StagedFile staged(folder.file("link"), "text");
  staged.file().append("content");
  staged.publish();

  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(text_of_file(folder.file("later")), "content");
  EXPECT_THAT(message_of([&] { StagedFile(folder.file("loop"), "text"); }), HasSubstr("too many links"));
}

TEST(TemporaryPath, AllGoBeforeAnAbort) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  if (!world.is_root()) return;
  TemporaryPath const file(folder.file("file"));
  TemporaryPath const tree(folder.file("tree"));
  TemporaryPath kept(folder.file("kept"));
  for (auto const* const name : {"file", "kept"})
    test::write_file(folder.file(name), "text");
  fs::create_directories(folder.file("tree") + "/deep");
  kept.keep();

  remove_temporaries();

  EXPECT_FALSE(fs::exists(folder.file("file")) || fs::exists(folder.file("tree")));
  EXPECT_TRUE(fs::exists(folder.file("kept")));
}

// HDF5 -----------------------------------------------------------------------------------------------------

/// Each rank writes its rows of one matrix, its part of a vector, and one column of another matrix.
void write_arrays(Communicator const& comm, Hdf5Output& file) {
  constexpr std::int64_t rows = 7;
  constexpr std::int64_t columns = 5;
  file.create_array("/matrix", Hdf5Type::float32, {rows, columns});
  file.create_array("/deep/er/cube", Hdf5Type::int32, {2, 3, 4});
  file.create_array("/none", Hdf5Type::float64, {0, 3});
  file.write_attribute("/", "text", std::string("hello"));
  file.write_attribute("/deep", "number", std::int64_t{-7});
  file.reserve_space();
  auto const size = comm.size();
  for (std::int64_t column = comm.rank(); column < columns; column += size) {
    std::vector<float> values(rows);
    std::iota(values.begin(), values.end(), static_cast<float>(10 * column));
    file.write("/matrix", {0, column}, {rows, 1}, std::span<float const>(values));
  }
  if (comm.rank() == size - 1) {
    std::vector<std::int32_t> values(24);
    std::iota(values.begin(), values.end(), 0);
    std::vector<std::int32_t> box{105, 106, 109, 110};
    file.write("/deep/er/cube", {0, 0, 0}, {2, 3, 4}, std::span<std::int32_t const>(values));
    file.write("/deep/er/cube", {0, 1, 1}, {1, 2, 2}, std::span<std::int32_t const>(box));
  }
  file.write("/none", {0, 0}, {0, 3}, std::span<double const>());
}

void expect_arrays(Hdf5File const& file) {
  auto const matrix = file.read_all<float>("/matrix");
  ASSERT_EQ(matrix.size(), 35U);
  for (std::size_t row = 0; row < 7; ++row)
    for (std::size_t column = 0; column < 5; ++column)
      EXPECT_EQ(matrix[row * 5 + column], static_cast<float>(10 * column + row));
  std::vector<std::int32_t> cube(24);
  std::iota(cube.begin(), cube.end(), 0);
  for (std::size_t const place : {5U, 6U, 9U, 10U})
    cube[place] += 100;
  EXPECT_EQ(file.read_all<std::int32_t>("/deep/er/cube"), cube);
  EXPECT_TRUE(file.read_all<double>("/none").empty());
  EXPECT_EQ(file.read_text("/", "text"), "hello");
  EXPECT_EQ(file.read_integer("/deep", "number"), -7);
}

TEST(Hdf5Output, ReadsBackAndHasTheSameBytesFromAnyNumberOfRanks) {
  Communicator const world(MPI_COMM_WORLD, "world");
  Communicator const self(MPI_COMM_SELF, "self");
  ScratchFolder const folder(MPI_COMM_WORLD);

  Hdf5Output shared(world, folder.file("shared.h5"), "test");
  write_arrays(world, shared);
  auto const num_bytes = shared.publish();
  Hdf5Output memory("memory");
  write_arrays(self, memory);

  expect_arrays(Hdf5File::open(folder.file("shared.h5")));
  expect_arrays(memory.take_memory());
  EXPECT_EQ(fs::file_size(folder.file("shared.h5")), static_cast<std::uintmax_t>(num_bytes));
  if (!world.is_root()) return;
  Hdf5Output alone(self, folder.file("alone.h5"), "test");
  write_arrays(self, alone);
  alone.publish();
  EXPECT_EQ(text_of_file(folder.file("shared.h5")), text_of_file(folder.file("alone.h5")));
}

TEST(Hdf5Output, RefusesDataThatDoNotFit) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  Hdf5Output file(world, folder.file("file.h5"), "test");
  file.create_array("/a", Hdf5Type::int32, {10});
  std::vector<std::int32_t> const values(4);
  std::span<std::int32_t const> const data(values);
  std::vector<std::uint8_t> const bytes(16);

  EXPECT_THROW(file.write("/a", {7}, {4}, data), Error);
  EXPECT_THROW(file.write("/a", {-1}, {4}, data), Error);
  EXPECT_THROW(file.write("/a", {0}, {5}, data), Error);
  EXPECT_THROW(file.write("/b", {0}, {4}, data), Error);
  EXPECT_THROW(file.write("/a", {0}, {4}, std::span<std::uint8_t const>(bytes)), Error);
}

TEST(Hdf5Output, AFullDiskEndsItOnAllRanksAndNothingIsLeft) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("full.h5");
  if (world.is_root()) test::write_file(path, "old");
  barrier(host, world);

  auto const write = [&](rlim_t limit_bytes) {
    return message_of([&] {
      FileSizeLimit const limit(limit_bytes);
      Hdf5Output file(world, path, "weights");
      file.create_array("/a", Hdf5Type::int32, {10'000});
      file.reserve_space();
      file.publish();
    });
  };
  auto const for_data = write(4096);     // of 40,000 bytes
  auto const for_structure = write(100); // not even of the first block
  barrier(host, world);

  EXPECT_THAT(for_data, HasSubstr("File too large"));
  EXPECT_THAT(for_structure, HasSubstr("File too large"));
  EXPECT_EQ(text_of_file(path), "old");
  EXPECT_EQ(num_partial_files(path_of(folder)), 0);
}

TEST(Hdf5Output, OneRankMayLeaveAlone) {
  Communicator const world(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(MPI_COMM_WORLD);
  auto file = std::make_unique<Hdf5Output>(world, folder.file("left.h5"), "store");
  file->create_array("/a", Hdf5Type::int32, {10});

  // A collective close would wait here for ranks that are not going to close.
  if (world.rank() == world.size() - 1) file.reset();
  barrier(host, world);

  EXPECT_EQ(num_partial_files(path_of(folder)), 0);
  barrier(host, world);
}

} // namespace
} // namespace orthant::runtime
