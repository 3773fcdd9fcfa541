// SPDX-License-Identifier: Apache-2.0
//
// Files and folders that are not there, or are there and cannot be reached.
#include "bad_input.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

namespace orthant::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(BadInput, PathsAndFormatsThatAreNotThere) {
  EXPECT_THAT(message_of("nowhere"),
              AllOf(HasSubstr("cannot read"), HasSubstr("nowhere: No such file or directory")));
  folder_.write("folder/notes.md", "nothing");
  EXPECT_THAT(message_of("folder"),
              AllOf(HasSubstr("not a graph in a known format"), HasSubstr("looked for raw/edge.csv[.gz]")));
  folder_.write("a.npy", "x");
  EXPECT_THAT(message_of("a.npy"), HasSubstr("name the folder that holds it"));
  folder_.write("g.txt", "0 1\n");
  EXPECT_THAT(message({.path = folder_.path() / "g.txt", .format = InputFormat::npy}),
              HasSubstr("the format npy is a folder"));
  EXPECT_THAT(message({.path = folder_.path() / "g.txt", .split = "time"}), HasSubstr("has no splits"));
  write_ogb("o");
  EXPECT_THAT(message({.path = folder_.path() / "o", .split = "time"}),
              HasSubstr("has no split \"time\"; it has s"));
  EXPECT_THAT(message({.path = folder_.path() / "o", .format = InputFormat::npy}),
              HasSubstr("not a graph in a known format"));
  if (comm_.is_root()) std::filesystem::remove(folder_.path() / "o" / "split" / "s" / "valid.csv.gz");
  runtime::barrier(runtime::host, comm_);
  EXPECT_THAT(message_of("o"), AllOf(HasSubstr("cannot read"), HasSubstr("valid.csv.gz")));
  EXPECT_THROW(static_cast<void>(parse_input_format("csv")), runtime::UserError);
  if (::geteuid() != 0) { // root may read everything
    auto const locked = folder_.write("locked.txt", "0 1\n");
    std::filesystem::permissions(locked, std::filesystem::perms::none);
    EXPECT_THAT(message_of("locked.txt"), HasSubstr("locked.txt: Permission denied"));
  }
}

TEST_F(BadInput, LinksThatLeadNowhereOrInACircle) {
  auto const told = [&](std::string const& name, std::string const& target) {
    auto const graph = name.substr(0, name.find('/'));
    remove(name);
    if (comm_.is_root()) std::filesystem::create_symlink(target, folder_.path() / name);
    runtime::barrier(runtime::host, comm_);
    auto const text = message_of(graph);
    remove(name);
    return text;
  };

  for (std::string const name : {"arrays/edge_index.npy",
                                 "arrays/edge_weight.npy",
                                 "arrays/x.npy",
                                 "arrays/x_indptr.npy",
                                 "arrays/x_data.npy",
                                 "arrays/labels.npy",
                                 "arrays/train_idx.npy",
                                 "arrays/valid_idx.npy",
                                 "arrays/meta.json",
                                 "arrays/split",
                                 "arrays/raw",
                                 "arrays/npy",
                                 "ogb/raw",
                                 "ogb/raw/edge.csv.gz",
                                 "ogb/raw/edge-weight.csv",
                                 "ogb/raw/num-node-list.csv.gz",
                                 "ogb/raw/num-edge-list.csv.gz",
                                 "ogb/raw/node-feat.csv.gz",
                                 "ogb/raw/node-label.csv.gz",
                                 "ogb/raw/node-label.npz",
                                 "ogb/split",
                                 "ogb/split/a",
                                 "ogb/split/s",
                                 "ogb/split/s/train.csv.gz"}) {
    write_ogb("ogb");
    write_npy("arrays");
    remove("arrays/x.npy");
    auto const last = std::filesystem::path(name).filename().string();
    EXPECT_THAT(told(name, "nowhere"),
                AllOf(HasSubstr("cannot read"), HasSubstr(name + ": it is a symbolic link to nowhere")));
    EXPECT_THAT(told(name, last), AllOf(HasSubstr("cannot read"), HasSubstr(name),
                                        HasSubstr("Too many levels of symbolic links")));
  }
}

TEST_F(BadInput, EntriesThatAreNoFilesAndListsWithoutTheOthers) {
  write_npy("p");
  remove("p/x.npy");
  if (comm_.is_root()) {
    EXPECT_EQ(::mkfifo((folder_.path() / "p" / "x.npy").c_str(), 0600), 0);
  }
  runtime::barrier(runtime::host, comm_);
  EXPECT_THAT(message_of("p"), HasSubstr("x.npy: it is a pipe or a device; a regular file is wanted"));
  write_npy("s");
  folder_.write("s/split", "a file, not a folder");
  EXPECT_THAT(message_of("s"), HasSubstr("split: Not a directory"));
  write_npy("v");
  write_array<std::int64_t>("v/valid_idx.npy", "<i8", {1}, {0});
  EXPECT_THAT(message_of("v"),
              HasSubstr("has a part of a split but no train_idx.npy: a split needs train, valid (or val)"));
  write_npy("x");
  remove("x/x.npy");
  write_array<float>("x/x_data.npy", "<f4", {1}, {0});
  EXPECT_THAT(message_of("x"), HasSubstr("x_shape.npy: No such file or directory"));
}

} // namespace
} // namespace orthant::graph
