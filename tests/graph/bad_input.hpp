#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// For tests of wrong input: each case is one line of text for the user, the same on all ranks, that names the
// file and the line or byte.

#include "graph/arrays/npy.hpp"
#include "graph/read/open_graph.hpp"
#include "graph_probe.hpp"

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// The text with a few random bytes changed, dropped, doubled or cut off; the same for equal numbers.
inline std::string mutant(std::string text, std::uint64_t number) {
  auto const draw = [&](std::size_t bound) {
    number = number * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(number >> 33) % bound;
  };
  constexpr std::string_view bytes = "\"'{},;|\t \n\r-+.0195eDx%#\\\x01\xff";
  for (auto changes = 1 + draw(4); changes > 0 && !text.empty(); --changes) {
    auto const place = draw(text.size());
    switch (draw(5)) {
    case 0:
      text[place] = bytes[draw(bytes.size())];
      break;
    case 1:
      text.erase(place, 1 + draw(4));
      break;
    case 2:
      text.insert(place, 1, bytes[draw(bytes.size())]);
      break;
    case 3:
      text.insert(place, text.substr(place, 1 + draw(12)));
      break;
    default:
      if (draw(4) == 0) text.resize(place);
    }
  }
  return text;
}

class BadInput : public ::testing::Test {
 protected:
  runtime::Communicator comm_ = runtime::Communicator(MPI_COMM_WORLD, "world");
  testing::ScratchFolder folder_ = testing::ScratchFolder(comm_);

  /// What a user is told who reads `input`; checked to be one line, and one and the same on all ranks.
  std::string message(Input const& input) const {
    std::string text = "accepted";
    try {
      static_cast<void>(testing::read_whole(comm_, *open_graph(comm_, input), 100));
    } catch (runtime::UserError const& error) {
      text = error.what();
    }
    std::vector<std::int64_t> hash{static_cast<std::int64_t>(std::hash<std::string>{}(text) >> 1)};
    for (auto const other : testing::gather_all(comm_, hash))
      EXPECT_EQ(other, hash[0]) << "the ranks disagree; here: " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
  }
  std::string message_of(std::string const& name) const { return message({.path = folder_.path() / name}); }

  /// A sound OGB folder of five vertices, into which a test puts its mistake.
  void write_ogb(std::string const& name) const {
    folder_.write(name + "/raw/edge.csv.gz", "0,1\n1,2\n2,3\n3,4\n");
    folder_.write(name + "/raw/num-node-list.csv.gz", "5\n");
    folder_.write(name + "/raw/num-edge-list.csv.gz", "4\n");
    folder_.write(name + "/raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n9,10\n");
    folder_.write(name + "/raw/node-label.csv.gz", "0\n1\nnan\n0\n1\n");
    folder_.write(name + "/split/s/train.csv.gz", "0\n");
    folder_.write(name + "/split/s/valid.csv.gz", "1\n");
    folder_.write(name + "/split/s/test.csv.gz", "2\n");
  }
  /// The same as .npy.
  void write_npy(std::string const& name) const {
    write_array<std::int64_t>(name + "/edge_index.npy", "<i8", {2, 3}, {0, 1, 2, 1, 2, 3});
    write_array<float>(name + "/x.npy", "<f4", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    write_array<std::int64_t>(name + "/labels.npy", "<i8", {4}, {0, 1, -1, 1});
  }
  template<class T>
  void write_array(std::string const& name, std::string const& type, std::vector<std::int64_t> const& shape,
                   std::vector<T> const& values) const {
    folder_.write(name, testing::npy(type, shape, values));
  }
  void remove(std::string const& name) const {
    if (comm_.is_root()) std::filesystem::remove_all(folder_.path() / name);
    runtime::barrier(runtime::host, comm_);
  }
};

} // namespace orthant::graph
