// SPDX-License-Identifier: Apache-2.0

#include "runtime/files/safetensors.hpp"

#include "runtime/error.hpp"
#include "support/scratch_folder.hpp"

#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A file of that header and those bytes behind it, put together here byte by byte.
std::filesystem::path file_of(test::ScratchFolder const& folder, std::string const& header,
                              std::string const& data) {
  auto const path = folder.file("hand.safetensors");
  std::string bytes;
  for (auto shift = 0; shift < 64; shift += 8)
    bytes.push_back(static_cast<char>((std::uint64_t{header.size()} >> shift) & 0xffU));
  std::ofstream(path, std::ios::binary) << bytes << header << data;
  return path;
}

/// Little-endian bytes of 16-bit and 32-bit words.
std::string words16(std::initializer_list<unsigned> words) {
  std::string bytes;
  for (auto const word : words)
    bytes += {static_cast<char>(word & 0xffU), static_cast<char>(word >> 8)};
  return bytes;
}
std::string words32(std::initializer_list<std::uint32_t> words) {
  std::string bytes;
  for (auto const word : words)
    for (auto shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<char>((word >> shift) & 0xffU));
  return bytes;
}

TEST(Safetensors, AreReadFromBytesWrittenByHand) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path =
      file_of(folder,
              R"({"b":{"dtype":"F16","shape":[3],"data_offsets":[8,14]},)"
              R"("a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
              R"("c":{"dtype":"BF16","shape":[],"data_offsets":[14,16]},)"
              R"("none":{"dtype":"F64","shape":[0,7],"data_offsets":[16,16]},)"
              R"("__metadata__":{"format":"pt"}}   )",
              words32({0x3f800000U, 0xc0200000U}) + words16({0x3c00U, 0xc000U, 0x0001U, 0x4049U}));
  SafetensorsFile const file(path);

  ASSERT_EQ(file.tensors().size(), 4U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_THAT(file.read<float>("a"), ElementsAre(1.0F, -2.5F));
  EXPECT_THAT(file.read<double>("b"), ElementsAre(1.0, -2.0, 0x1p-24));
  EXPECT_THAT(file.read<float>("c"), ElementsAre(3.140625F));
  EXPECT_TRUE(file.read<float>("none").empty());
  EXPECT_THAT(file.read<float>("a", Range{1, 2}), ElementsAre(-2.5F));
  EXPECT_THAT(file.read<double>("b", Range{0, 2}), ElementsAre(1.0, -2.0));
  EXPECT_TRUE(file.read<float>("b", Range{3, 3}).empty());
  EXPECT_THROW((void)file.read<float>("b", Range{2, 4}), Error);
  EXPECT_THROW((void)file.read<float>("d"), UserError);
}

TEST(Safetensors, GoOutAndComeBack) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("round.safetensors");
  std::vector<Tensor> const tensors{{"w", TensorType::float64, {2, 3}}, {"b", TensorType::float64, {1}}};
  write_safetensors<double>(path, tensors, {{"model", "gcn"}, {"quote", "\"\\"}}, [](std::size_t i) {
    return i == 0 ? std::vector<double>{1, 2, 3, 4, 5, 1e-300} : std::vector<double>{-7};
  });
  SafetensorsFile const file(path);

  EXPECT_EQ(file.metadata(), (TensorMetadata{{"model", "gcn"}, {"quote", "\"\\"}}));
  EXPECT_THAT(file.read<double>("w"), ElementsAre(1, 2, 3, 4, 5, 1e-300));
  EXPECT_THAT(file.read<double>("b"), ElementsAre(-7));
  std::uint64_t header_bytes = 0;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&header_bytes), 8);
  EXPECT_EQ(header_bytes % 8, 0U);
  EXPECT_EQ(std::filesystem::file_size(path), 8 + header_bytes + 7 * 8);
}

// Rows of a large tensor are asked for in pieces.
TEST(Safetensors, AreWrittenByRows) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("rows.safetensors");
  auto const width = most_numbers_of_piece / 2 - 1;
  std::vector<Tensor> const tensors{{"v", TensorType::float32, {3}}, {"w", TensorType::float32, {5, width}}};
  std::vector<Range> asked;
  write_safetensors<float>(path, tensors, {}, [&](std::size_t i, Range rows) {
    if (i == 0) return std::vector<float>{7, 8, 9};
    asked.push_back(rows);
    std::vector<float> numbers;
    for (auto row = rows.begin; row < rows.end; ++row)
      numbers.insert(numbers.end(), static_cast<std::size_t>(width), static_cast<float>(row));
    return numbers;
  });

  EXPECT_THAT(asked, ElementsAre(Range{0, 2}, Range{2, 4}, Range{4, 5}));
  SafetensorsFile const file(path);
  EXPECT_THAT(file.read<float>("v"), ElementsAre(7, 8, 9));
  EXPECT_THAT(file.read<float>("w", Range{width - 1, width + 1}), ElementsAre(0, 1));
  EXPECT_THAT(file.read<float>("w", Range{5 * width - 1, 5 * width}), ElementsAre(4));
}

TEST(Safetensors, ThatLieAreRefused) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const eight = std::string(8, '\0');
  struct Case {
    std::string header, data, message;
  };
  std::vector<Case> const cases{
      {"", "", "no JSON"},
      {"[]", "", "no JSON object"},
      {R"({"a":)", "", "no JSON"},
      {R"({"a":3})", "", "'a' has no dtype"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", eight, "no data_offsets"},
      {R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", eight, "of the type \"I64\""},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,8]}})", eight, "of the type 7"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":"2","data_offsets":[0,8]}})", eight, "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", eight,
       "no list of counts"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", eight,
       "has 8 bytes, but its shape needs 12"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", eight,
       "does not fit in 64"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,8]}})", eight,
       "does not fit in 64"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight, "no range"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", eight, "no range"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight,
       "begins at byte 4 of the data, not at 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       eight, "not at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight, "take 4 bytes, but 8 follow"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "", "take 8 bytes, but 0 follow"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       eight, "'a' twice"},
      {R"({"__metadata__":{"a":1}})", "", "'a' of its __metadata__ is no text"},
      {R"({"__metadata__":[]})", "", "__metadata__ is no JSON object"},
      {std::string(100'000, '['), "", "nested deeper"},
      {R"({"a":{"dtype":)" + std::string(100'000, '[') + std::string(100'000, ']') + R"(,"shape":[]}})", "",
       "nested deeper"},
  };
  for (auto const& [header, data, message] : cases)
    try {
      SafetensorsFile const file(file_of(folder, header, data));
      ADD_FAILURE() << "taken: " << header.substr(0, 100);
    } catch (UserError const& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << header.substr(0, 100);
      EXPECT_THAT(error.what(), HasSubstr("hand.safetensors")) << header.substr(0, 100);
    }
}

TEST(Safetensors, WithAHeaderThatCannotBeThereAreRefused) {
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("short.safetensors");
  for (auto const& bytes :
       {std::string(), std::string(7, '\0'), std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"),
        std::string("\x03\0\0\0\0\0\0\0{}", 10), std::string(8, '\x7f')}) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THROW(SafetensorsFile{path}, UserError) << bytes.size();
  }
  EXPECT_THROW(SafetensorsFile{folder.file("absent")}, UserError);
}

} // namespace
} // namespace orthant::runtime
