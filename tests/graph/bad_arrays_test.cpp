// SPDX-License-Identifier: Apache-2.0
//
// Arrays (.npy) whose header, type or values are wrong.
#include "bad_input.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <limits>

namespace orthant::graph {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(BadInput, NpyThatCannotBeRead) {
  write_npy("n");
  auto const told = [&](std::string const& content) {
    folder_.write("n/edge_index.npy", content);
    return message_of("n");
  };
  auto const sound = npy_header("<i8", {2, 3}) + std::string(48, '\0');
  auto const with = [&](std::string const& from, std::string const& to) {
    auto text = sound;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_EQ(told(sound), "accepted");
  EXPECT_THAT(told("PK\x03\x04 not an array at all"), HasSubstr("edge_index.npy is not a .npy array"));
  EXPECT_THAT(told("\x93NUM"), HasSubstr("is not a .npy array"));
  EXPECT_THAT(told(with("<i8", ">i8")), AllOf(HasSubstr("big-endian ('>i8')"), HasSubstr("newbyteorder")));
  EXPECT_THAT(told(with("<i8", "<f8")), AllOf(HasSubstr("type '<f8'"), HasSubstr("vertex ids are integers")));
  EXPECT_THAT(told(with("<i8", "<c8")), HasSubstr("type '<c8' cannot be read"));
  EXPECT_THAT(told(with("False", "True ")), HasSubstr("Fortran order"));
  EXPECT_THAT(told(with("(2, 3)", "(3, 2)")),
              HasSubstr("shape [3, 2]; [2, edges], sources above targets, is wanted"));
  EXPECT_THAT(told(with("(2, 3)", "(2, 4)")), HasSubstr("needs 192 bytes, but the file has 176"));
  EXPECT_THAT(told(with("'descr'", "'nonsense'")),
              HasSubstr("the .npy header is not that of a plain array of numbers, at its character 13"));
  auto newer = sound;
  newer[6] = 4;
  EXPECT_THAT(told(newer), HasSubstr("edge_index.npy: .npy version 4.0; versions 1 to 3 can be read"));
  EXPECT_THAT(told(sound.substr(0, 40)), HasSubstr("the header should end at byte 128"));
  EXPECT_THAT(told(npy_header("<i8", {2, std::int64_t{1} << 62}) + std::string(48, '\0')),
              HasSubstr("does not fit in 64 bits"));
}

TEST_F(BadInput, SparseFeaturesThatDoNotFit) {
  write_npy("n");
  remove("n/x.npy");
  auto const told = [&](std::vector<std::int64_t> const& indptr, std::vector<std::int32_t> const& indices) {
    write_array("n/x_indptr.npy", "<i8", {static_cast<std::int64_t>(indptr.size())}, indptr);
    write_array("n/x_indices.npy", "<i4", {static_cast<std::int64_t>(indices.size())}, indices);
    write_array<float>("n/x_data.npy", "<f4", {3}, {1, 2, 3});
    write_array<std::int64_t>("n/x_shape.npy", "<i8", {2}, {4, 6});
    return message_of("n");
  };
  EXPECT_EQ(told({0, 1, 2, 2, 3}, {5, 0, 1}), "accepted");
  EXPECT_THAT(told({0, 1, 2, 3}, {5, 0, 1}),
              AllOf(HasSubstr("x_indptr.npy: shape [4]"), HasSubstr("[5] is wanted")));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {5, 0}), HasSubstr("x_indices.npy: shape [2]"));
  EXPECT_THAT(told({0, 2, 1, 2, 3}, {5, 0, 1}), HasSubstr("x_indptr.npy: offset at element 2"));
  EXPECT_THAT(told({0, 1, 2, 2, 9}, {5, 0, 1}), HasSubstr("x_indptr.npy: the offsets go from 0 to 9"));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {6, 0, 1}), HasSubstr("x_indices.npy: column 6 at element 0"));
  EXPECT_THAT(told({0, 2, 2, 2, 3}, {5, 5, 1}), HasSubstr("has column 5 twice"));
}

TEST_F(BadInput, NpyHeadersThatLie) {
  write_npy("n");
  auto const told = [&](std::string const& dictionary, std::size_t num_bytes = 48) {
    auto const length = static_cast<char>(dictionary.size());
    folder_.write("n/edge_index.npy", std::string("\x93NUMPY\x01\x00", 8) + length + '\0' + dictionary +
                                          std::string(num_bytes, '\0'));
    return message_of("n");
  };

  EXPECT_EQ(told("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }"), "accepted");
  EXPECT_EQ(told("{\"shape\": (2L, 3L), \"fortran_order\": False, \"descr\": \"<i8\"}\n"), "accepted");
  for (std::string const shape : {"(2, 10000000000000000000003)", "(2, -3)", "(2, 9223372036854775808)"})
    EXPECT_THAT(told("{'descr': '<i8', 'fortran_order': False, 'shape': " + shape + ", }"),
                HasSubstr("edge_index.npy: the shape " + shape + " in the .npy header cannot be"));
  EXPECT_THAT(told("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3, 4611686018427387904, 4), }"),
              HasSubstr("does not fit in 64 bits"));
  for (std::string const shape : {"(2, 3.0)", "(2 3)", "(two, 3)", "2, 3", "(2, 3", "(2,, 3)", "(6)", "None"})
    EXPECT_THAT(told("{'descr': '<i8', 'fortran_order': False, 'shape': " + shape + ", }"),
                HasSubstr("edge_index.npy: the .npy header is not that of a plain array of numbers"))
        << shape;
  EXPECT_THAT(told("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), } x"),
              HasSubstr("header is not"));
  EXPECT_THAT(told("{'descr': '<i8', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"),
              HasSubstr("header is not"));
  EXPECT_THAT(told("{'descr': [('<i8', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (2, 3), }"),
              HasSubstr("edge_index.npy: a structured array"));
  EXPECT_THAT(told("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }"),
              HasSubstr("type '|O' cannot be read"));
  EXPECT_THAT(told("{'fortran_order': False, 'shape': (2, 3), }"), HasSubstr("header is not"));
}

TEST_F(BadInput, NpyHeaderOfGigabytes) {
  write_npy("n");
  std::string const head("\x93NUMPY\x02\x00\xf4\xff\xff\xef", 12); // 4 GiB in a file with holes
  auto const path = folder_.write("n/x.npy", head);
  if (comm_.is_root()) std::filesystem::resize_file(path, std::uintmax_t{1} << 32);
  runtime::barrier(runtime::host, comm_);

  EXPECT_THAT(message_of("n"), HasSubstr("x.npy: a header of 4026531828 bytes is claimed"));
}

TEST_F(BadInput, IntegersOfTheWrongKind) {
  constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
  write_npy("u");
  write_array<std::uint64_t>("u/labels.npy", "<u8", {4}, {0, 1, largest, 1}); // -1 if it wrapped
  EXPECT_THAT(message_of("u"),
              HasSubstr("labels.npy: 18446744073709551615 at element 2 (byte 144) is too large"));
  write_npy("m");
  write_array<std::uint8_t>("m/train_idx.npy", "|b1", {2}, {0, 1});
  for (std::string const part : {"valid", "test"})
    write_array<std::int64_t>("m/" + part + "_idx.npy", "<i8", {0}, {});
  EXPECT_THAT(message_of("m"), AllOf(HasSubstr("train_idx.npy: type '|b1'"), HasSubstr("flatnonzero")));
  write_npy("b");
  write_array<std::uint8_t>("b/edge_index.npy", "|b1", {2, 2}, {0, 1, 1, 0});
  EXPECT_THAT(message_of("b"), HasSubstr("edge_index.npy: type '|b1'; vertex ids are integers"));
  write_npy("f");
  write_array<double>("f/labels.npy", "<f8", {4}, {0, 1 - 1e-12, 0, 1}); // 1 as a float
  folder_.write("f/meta.json", R"({"num_classes": 2})");
  EXPECT_THAT(message_of("f"), HasSubstr("labels.npy: label 0.999999999999 at element 1"));
}

TEST_F(BadInput, LabelsWithoutColumns) {
  write_npy("n");
  write_array<std::int64_t>("n/labels.npy", "<i8", {4, 0}, {});
  EXPECT_THAT(message_of("n"), HasSubstr("labels.npy: shape [4, 0]; [vertices], or [vertices, classes]"));
}

TEST_F(BadInput, SparseShapesAndOffsets) {
  write_npy("n");
  remove("n/x.npy");
  auto const told = [&](std::vector<std::int64_t> const& indptr, std::vector<std::int64_t> const& shape,
                        std::int64_t column = 5) {
    write_array("n/x_indptr.npy", "<i8", {static_cast<std::int64_t>(indptr.size())}, indptr);
    write_array<std::int64_t>("n/x_indices.npy", "<i8", {3}, {column, 0, 1});
    write_array<float>("n/x_data.npy", "<f4", {3}, {1, 2, 3});
    write_array<std::int64_t>("n/x_shape.npy", "<i8", {2}, shape);
    return message_of("n");
  };

  EXPECT_THAT(told({0, 1, 2, 2, 3}, {4, -5}), HasSubstr("x_shape.npy: the number of features is -5"));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {4, std::int64_t{1} << 62}),
              HasSubstr("x_shape.npy: the number of features is 4611686018427387904; it must be between"));
  // Both columns are 5 in 32 bits.
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {4, std::int64_t{1} << 33}, (std::int64_t{1} << 32) + 5),
              HasSubstr("x_shape.npy: the number of features is 8589934592"));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {-1, 6}), HasSubstr("x_shape.npy says -1 vertices"));
  EXPECT_THAT(told({0, 1, 2, 2, 3}, {std::numeric_limits<std::int64_t>::max(), 6}),
              HasSubstr("x_shape.npy says 9223372036854775807 vertices"));
  EXPECT_THAT(told({1, 1, 2, 2, 3}, {4, 6}),
              HasSubstr("x_indptr.npy: the offsets go from 1 to 3; they must go from 0 to 3"));
  EXPECT_THAT(told({100, 100, 100, 100, 103}, {4, 6}), HasSubstr("the offsets go from 100 to 103"));
  EXPECT_THAT(told({0, 1, 2, 2, 2}, {4, 6}), HasSubstr("the offsets go from 0 to 2"));
  EXPECT_THAT(told({0, -1, 2, 2, 3}, {4, 6}), HasSubstr("x_indptr.npy: offset at element 1"));
  EXPECT_THAT(told({0, std::numeric_limits<std::int64_t>::max(), 2, 2, 3}, {4, 6}),
              HasSubstr("x_indptr.npy: offset at element 2"));
}

/// A list must have one dimension: an array of two with as many numbers may mean something else.
TEST_F(BadInput, ListsOfTwoDimensions) {
  write_npy("n");
  remove("n/x.npy");
  auto const write_sparse = [&](std::vector<std::int64_t> const& indices_shape,
                                std::vector<std::int64_t> const& data_shape) {
    write_array<std::int64_t>("n/x_indptr.npy", "<i8", {5}, {0, 1, 2, 2, 3});
    write_array<std::int64_t>("n/x_indices.npy", "<i8", indices_shape, {5, 0, 1});
    write_array<float>("n/x_data.npy", "<f4", data_shape, {1, 2, 3});
    write_array<std::int64_t>("n/x_shape.npy", "<i8", {2}, {4, 6});
  };

  write_sparse({3, 1}, {3});
  EXPECT_THAT(message_of("n"), HasSubstr("x_indices.npy: shape [3, 1]; [entries] is wanted"));
  write_sparse({3}, {1, 3});
  EXPECT_THAT(message_of("n"), HasSubstr("x_data.npy: shape [1, 3]; [entries] is wanted"));
}

} // namespace
} // namespace orthant::graph
