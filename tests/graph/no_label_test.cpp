// SPDX-License-Identifier: Apache-2.0
//
// -100, -1 and nan in a file of labels: none.

#include "graph/read/open_graph.hpp"
#include "graph_probe.hpp"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::graph {
namespace {

using ::testing::ElementsAre;
using testing::npy;
using testing::read_whole;
using testing::ScratchFolder;

TEST(NoLabel, IsOneOfThreeNumbersInEveryKindOfFile) {
  runtime::Communicator const comm(MPI_COMM_WORLD, "world");
  ScratchFolder const folder(comm);
  auto const whole_of = [&](char const* name) {
    return read_whole(comm, *open_graph(comm, {.path = folder.path() / name}));
  };

  folder.write("text/raw/edge.csv", "0,1\n1,2\n2,3\n");
  folder.write("text/raw/num-node-list.csv", "4\n");
  folder.write("text/raw/num-edge-list.csv", "3\n");
  folder.write("text/raw/node-label.csv", "-100\n2\n-1\nnan\n");
  EXPECT_THAT(whole_of("text").classes, ElementsAre(-1, 2, -1, -1));
  folder.write("text/raw/node-label.csv", "-100,1\n0,-100\n-1,nan\n1,1\n");
  EXPECT_THAT(whole_of("text").indicator, ElementsAre(-1, 1, 0, -1, -1, -1, 1, 1));

  folder.write("npy/edge_index.npy", npy<std::int64_t>("<i8", {2, 3}, {0, 1, 2, 1, 2, 3}));
  folder.write("npy/labels.npy", npy<std::int64_t>("<i8", {4}, {-100, 2, -1, 0}));
  EXPECT_THAT(whole_of("npy").classes, ElementsAre(-1, 2, -1, 0));
  folder.write("npy/labels.npy", npy<float>("<f4", {4}, {-100, 2, std::nanf(""), -1}));
  EXPECT_THAT(whole_of("npy").classes, ElementsAre(-1, 2, -1, -1));
  folder.write("npy/labels.npy", npy<float>("<f4", {4, 2}, {-100, 1, 0, std::nanf(""), 1, -1, 0, 0}));
  EXPECT_THAT(whole_of("npy").indicator, ElementsAre(-1, 1, 0, -1, 1, -1, 0, 0));
}

} // namespace
} // namespace orthant::graph
