// SPDX-License-Identifier: Apache-2.0
//
// Stores whose every checksum is right and which are wrong all the same: each must be refused, by every rank
// alike, with one line that names the file and what is wrong in it.
#include "hostile_stores.hpp"

#include "graph/generate/generators.hpp"
#include "graph/graph_probe.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/store_reader.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace orthant::graph {
namespace {

using runtime::Communicator;
using runtime::together;
using runtime::UserError;
using testing::HostileStore;
using testing::Stage;

class HostileStoreTest : public ::testing::Test {
 protected:
  Communicator comm{MPI_COMM_WORLD, "world"};
  testing::ScratchFolder scratch{comm};

  std::filesystem::path make(GraphSource const& source) {
    auto path = scratch.path() / "sound.h5";
    PartitionOptions options;
    options.replaces_output = true;
    partition(comm, source, path, options);
    GraphStore::open(comm, path).verify(comm);
    return path;
  }
  std::filesystem::path with_labels() {
    return make(*open_dataset(comm, "sbm:vertices=300,edges=2000,features=8,classes=3"));
  }
  std::filesystem::path with_weights() {
    Input input;
    input.path = scratch.write("weighted.txt", "0 1 0.5\n1 0 0.25\n2 1 3\n2 2 7\n4 3 1\n0 1 2.5\n3 0 1e-3\n");
    input.is_directed = true;
    return make(*open_graph(comm, input));
  }

  /// Reads all that training, evaluation and export read.
  static void read_all(GraphStore const& store) {
    auto const& facts = store.facts();
    auto const n = facts.num_vertices;
    for (auto const order : {Order::p1, Order::p2}) {
      static_cast<void>(store.read_original_ids(order, {0, n}));
      static_cast<void>(store.read_other_positions(order, {0, n}));
      static_cast<void>(store.read_degrees(order, {0, n}));
      if (facts.label_kind == LabelKind::single) static_cast<void>(store.read_labels(order, {0, n}));
      static_cast<void>(store.read_mask(Split::valid, order, {0, n}));
      if (facts.feature_kind == FeatureKind::dense)
        static_cast<void>(store.read_features(order, {0, n}, {0, facts.num_features}));
    }
    for (auto const parity : {Parity::even, Parity::odd}) {
      for (int const parts : {1, 3})
        for (int i = 0; i < parts; ++i) {
          auto const rows = runtime::balanced_range(n, parts, i);
          static_cast<void>(store.read_block(parity, rows, {0, n}, SelfLoops::added));
          static_cast<void>(store.read_block(parity, {0, n}, rows, SelfLoops::dropped));
        }
      static_cast<void>(store.read_scales(parity, {0, n}, {0, n}));
    }
  }

  /// The stage at which the store is refused, and the message. Stage after the last if it is not.
  std::pair<int, std::string> refusal_of(std::filesystem::path const& path) {
    int stage = static_cast<int>(Stage::open);
    try {
      auto const store = GraphStore::open(comm, path);
      ++stage;
      together(comm, [&] { read_all(store); });
      ++stage;
      store.verify(comm);
      ++stage;
    } catch (UserError const& error) {
      return {stage, error.what()};
    }
    return {stage, "it was accepted"};
  }

  void expect_refused(std::filesystem::path const& sound, std::vector<HostileStore> const& stores) {
    for (auto const& hostile : stores) {
      auto const path = scratch.path() / "hostile.h5";
      if (comm.is_root()) {
        std::filesystem::copy_file(sound, path, std::filesystem::copy_options::overwrite_existing);
        testing::StoreEditor editor(path);
        hostile.edit(editor);
      }
      runtime::barrier(runtime::host, comm);
      auto const [stage, message] = refusal_of(path);
      EXPECT_LE(stage, static_cast<int>(hostile.stage)) << hostile.name << ": " << message;
      EXPECT_NE(message.find(hostile.message), std::string::npos) << hostile.name << ": " << message;
      EXPECT_NE(message.find("hostile.h5"), std::string::npos) << hostile.name << ": " << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << hostile.name << ": " << message;
      if (hostile.stage == Stage::read) { // and verify() finds it by itself
        auto const store = GraphStore::open(comm, path);
        EXPECT_THROW(store.verify(comm), UserError) << hostile.name;
      }
      runtime::barrier(runtime::host, comm);
    }
  }
};

TEST_F(HostileStoreTest, MisshapenArraysAreRefusedWhenItIsOpened) {
  expect_refused(with_labels(), testing::misshapen_stores());
}

TEST_F(HostileStoreTest, WrongFactsAreRefused) {
  expect_refused(with_labels(), testing::stores_with_wrong_facts());
}

TEST_F(HostileStoreTest, WrongValuesAreRefused) {
  expect_refused(with_labels(), testing::stores_with_wrong_values());
}

TEST_F(HostileStoreTest, WrongWeightsAreRefused) {
  expect_refused(with_weights(), testing::stores_with_wrong_weights());
}

TEST_F(HostileStoreTest, WrongRelationsAreRefused) {
  Input input;
  input.path = scratch.write("triples.txt", "a r b\na s b\nb r c\nc s d\nd s d\nd r a\nb s a\n");
  input.format = InputFormat::triples;
  expect_refused(make(*open_graph(comm, input)), testing::stores_with_wrong_relations());
}

TEST_F(HostileStoreTest, APipeIsRefusedAtOnce) {
  auto const path = scratch.path() / "pipe.h5";
  if (comm.is_root()) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  runtime::barrier(runtime::host, comm);
  EXPECT_NE(refusal_of(path).second.find("no regular file"), std::string::npos);
}

// Damage to HDF5's own structures is the user's to mend too: UserError that names the file, or no harm at
// all.
TEST_F(HostileStoreTest, DamagedStructureIsAUsersError) {
  auto const sound = with_labels();
  auto const size = static_cast<std::int64_t>(std::filesystem::file_size(sound));
  int num_refused = 0;
  for (std::int64_t k = 0; k < 60; ++k) {
    auto const path = scratch.path() / "damaged.h5";
    if (comm.is_root()) {
      std::filesystem::copy_file(sound, path, std::filesystem::copy_options::overwrite_existing);
      auto const descriptor = ::open(path.c_str(), O_RDWR);
      unsigned char const byte = 0xa5;
      for (std::int64_t i = 0; i < 8; ++i) // superblock and first headers, then everywhere
        EXPECT_EQ(::pwrite(descriptor, &byte, 1, (k < 20 ? k * 24 : k * size / 60) + i), 1);
      ::close(descriptor);
    }
    runtime::barrier(runtime::host, comm);
    auto const [stage, message] = refusal_of(path);
    if (stage > static_cast<int>(Stage::verify)) continue;
    ++num_refused;
    EXPECT_NE(message.find("damaged.h5"), std::string::npos) << k << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << k << ": " << message;
    runtime::barrier(runtime::host, comm);
  }
  EXPECT_GT(num_refused, 30);
}

} // namespace
} // namespace orthant::graph
