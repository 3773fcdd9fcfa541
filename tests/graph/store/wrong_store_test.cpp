// SPDX-License-Identifier: Apache-2.0
//
// What is no sound store is refused, and a sound one is not replaced by mistake.
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/store_format.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "store_fixture.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

namespace orthant::graph {
namespace {

using runtime::Hdf5File;
using runtime::together;
using test::message_of;

TEST_F(StoreTest, RefusesToReplaceUnasked) {
  auto const path = karate();
  auto const source = open_dataset(comm, "karate");
  EXPECT_NE(message_of([&] { partition(comm, *source, path, {}); }).find("--force"), std::string::npos);
  EXPECT_NE(message_of([&] { partition(comm, *source, scratch.path(), {}); }).find("is a directory"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              partition(comm, *source, scratch.path() / "no" / "such" / "g.h5", {});
            }).find("No such file"),
            std::string::npos);
}

TEST_F(StoreTest, LeavesTheOldFileWhereTheInputIsWrong) {
  auto const path = karate();
  auto const bad = scratch.write("bad.txt", "0 1\n1 2\n");
  PartitionOptions options;
  options.replaces_output = true;
  Input input;
  input.path = bad;
  input.random_split = {0.5, 0.2, 0.2};
  auto const source = open_graph(comm, input);
  options.metis_parts = 1000; // more parts than vertices: found after the work has begun
  EXPECT_NE(message_of([&] { partition(comm, *source, path, options); }).find("only 3 vertices"),
            std::string::npos);
  EXPECT_EQ(GraphStore::open(comm, path).facts().num_vertices, 34);
  EXPECT_EQ(test::num_partial_files(scratch.path()), 0);
}

TEST_F(StoreTest, RefusesOtherFiles) {
  auto const text = scratch.write("text.h5", "this is no HDF5 file");
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, text)); }).find("not an HDF5 file"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              static_cast<void>(GraphStore::open(comm, scratch.path() / "none.h5"));
            }).find("No such file"),
            std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, scratch.path())); }).find("directory"),
            std::string::npos);

  auto const other = scratch.path() / "other.h5";
  {
    runtime::Hdf5Output file(comm, other, "weights");
    file.write_attribute("/", "format", std::string("weights"));
    file.publish();
  }
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, other)); }).find("no graph store"),
            std::string::npos);

  auto const newer = scratch.path() / "newer.h5";
  {
    runtime::Hdf5Output file(comm, newer, "store");
    file.write_attribute("/", "format", std::string("orthant graph store"));
    file.write_attribute("/", "version", store_version + 1);
    file.publish();
  }
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, newer)); }).find("version 3"),
            std::string::npos);
}

TEST_F(StoreTest, FindsAFlippedByte) {
  for (auto const* const name : {"/topology/even/entries", "/features/dense", "/labels/p1",
                                 "/vertices/p2/original_ids", "/topology/even/tile_offsets", "/split/p2"}) {
    auto const path = scratch.path() / "flip.h5";
    PartitionOptions options;
    options.replaces_output = true;
    auto const word = "sbm:vertices=2500,edges=9000,features=8,classes=3";
    partition(comm, *open_dataset(comm, word), path, options);
    if (comm.is_root()) {
      // Change one element by what the array itself says, in the middle of the file's bytes of it.
      auto const file = Hdf5File::open(path);
      auto const offset = file.offset_bytes(name);
      auto const descriptor = ::open(path.c_str(), O_RDWR);
      unsigned char byte = 0;
      auto const at = offset + 101;
      ASSERT_EQ(::pread(descriptor, &byte, 1, at), 1);
      byte ^= 4U;
      ASSERT_EQ(::pwrite(descriptor, &byte, 1, at), 1);
      ::close(descriptor);
    }
    runtime::barrier(runtime::host, comm);
    auto const message = message_of([&] { GraphStore::open(comm, path).verify(comm); });
    EXPECT_NE(message.find("is damaged"), std::string::npos) << name << ": " << message;
    EXPECT_NE(message.find(std::string(name).substr(0, 9)), std::string::npos) << message;
    auto const at_load = message_of([&] {
      auto const store = GraphStore::open(comm, path); // which finds damage of the small tables
      auto const n = store.facts().num_vertices;
      together(comm, [&] {
        static_cast<void>(store.read_block(Parity::even, {0, n}, {0, n}));
        static_cast<void>(store.read_original_ids(Order::p2, {0, n}));
        static_cast<void>(store.read_features(Order::p2, {0, n}, {0, 8}));
        static_cast<void>(store.read_labels(Order::p1, {0, n}));
        static_cast<void>(store.read_mask(Split::train, Order::p2, {0, n}));
      });
    });
    EXPECT_NE(at_load.find("is damaged"), std::string::npos) << name << ": " << at_load;
  }
}

TEST_F(StoreTest, NeverLoadsATruncatedFile) {
  auto const path = karate();
  auto const size = std::filesystem::file_size(path);
  for (auto const part : {0.0, 0.3, 0.7, 0.95}) {
    auto const cut = scratch.path() / "cut.h5";
    if (comm.is_root()) {
      std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
      std::filesystem::resize_file(cut, static_cast<std::uintmax_t>(part * static_cast<double>(size)));
    }
    runtime::barrier(runtime::host, comm);
    EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, cut)); }), "no UserError") << part;
    runtime::barrier(runtime::host, comm);
  }
}

} // namespace
} // namespace orthant::graph
