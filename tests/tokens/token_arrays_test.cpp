// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents/token_arrays.hpp"

#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"
#include "tokens/bpe/tokenizer.hpp"
#include "tokens/bpe/tokenizer_files.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <mpi.h>

namespace orthant::testing {
namespace {

using tokens::Part;
using Numbers = std::vector<std::int32_t>;

template<class T>
std::string bytes_of(std::vector<T> const& numbers) {
  return {reinterpret_cast<char const*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string npy(std::string const& type, std::string const& shape, std::string const& bytes) {
  auto header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\1\0", 8) + std::string("\x76\0", 2) + header + bytes;
}

class TokenArrays : public ::testing::Test {
 protected:
  std::string write(std::string const& name, std::string const& bytes) const {
    auto path = folder_.file(name);
    if (world_.is_root()) test::write_file(path, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    return path;
  }
  /// The tokens of the file made from `path`, whose tokenizer has the 256 bytes and <|endoftext|>.
  Numbers copied(std::string const& path) const {
    copy(path);
    auto file = tokens::TokenFile::open(world_, folder_.file("t.h5"));
    file.verify(world_);
    Numbers ids(static_cast<std::size_t>(file.num_tokens(Part::train)));
    file.read(Part::train, 0, ids);
    return ids;
  }
  tokens::TokenFacts copy(std::string const& path) const {
    auto const definition = tokens::train_merges({}, 0);
    return tokens::copy_tokens(world_, {path, folder_.file("t.h5"), 1.0, "text", "", 1},
                               {"bytes", definition, tokens::to_tokenizer_json(definition)});
  }
  std::string message(std::string const& path) const {
    return test::message_of([&] { static_cast<void>(copied(path)); });
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder folder_{MPI_COMM_WORLD};
};

TEST_F(TokenArrays, OfNumPyAreRead) {
  EXPECT_EQ(copied(write("a.npy", npy("<u2", "4,", bytes_of<std::uint16_t>({5, 4, 256, 0})))),
            (Numbers{5, 4, 256, 0}));
  EXPECT_EQ(copied(write("b.npy", npy("<i8", "2, 3", bytes_of<std::int64_t>({1, 2, 3, 4, 5, 6})))),
            (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_NE(message(write("c.npy", npy("<f4", "1,", "abcd"))).find("numbers of the type <f4"),
            std::string::npos);
  EXPECT_NE(
      message(write("d.npy", npy("<i4", "3,", "abcdabcd"))).find("has 2 numbers, and its shape is (3,)"),
      std::string::npos);
  EXPECT_NE(message(write("g.npy", npy("<i4", "2, 9223372036854775807", "abcdabcd")))
                .find("the shape of " + folder_.file("g.npy") + ": 2 x 9223372036854775807 does not fit"),
            std::string::npos);
  EXPECT_NE(
      message(write("e.npy", npy("<i4", "2,", bytes_of<std::int32_t>({1, -1})))).find("holds the token -1"),
      std::string::npos);
  EXPECT_NE(message(write("f.npy", npy("<u4", "1,", bytes_of<std::uint32_t>({257}))))
                .find("holds the token 257, and the tokenizer has 257 tokens"),
            std::string::npos);
}

TEST_F(TokenArrays, OfNanoGptAndLlmCAreRead) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 3;
  auto const three = bytes_of<std::uint16_t>({1, 2, 3});

  EXPECT_EQ(copied(write("train.bin", three)), (Numbers{1, 2, 3}));
  EXPECT_EQ(copied(write("llmc.bin", bytes_of(header) + three)), (Numbers{1, 2, 3}));
  header[0] = 20240801;
  EXPECT_EQ(copied(write("llama.bin", bytes_of(header) + bytes_of<std::uint32_t>({1, 2, 3}))),
            (Numbers{1, 2, 3}));
  EXPECT_NE(message(write("cut.bin", bytes_of(header) + bytes_of<std::uint32_t>({1, 2})))
                .find("has 2 tokens, and its header says 3"),
            std::string::npos);
  EXPECT_NE(message(write("odd.bin", "abc")).find("no multiple of 2"), std::string::npos);
}

TEST_F(TokenArrays, OfMegatronAreRead) {
  auto const index = [](std::uint8_t type, std::vector<std::int32_t> const& lengths) {
    std::vector<std::uint64_t> const counts{lengths.size(), lengths.size() + 1};
    return std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0", 17) + static_cast<char>(type) + bytes_of(counts) +
           bytes_of(lengths);
  };
  write("m.bin", bytes_of<std::int32_t>({7, 8, 256, 9}));
  write("m.idx", index(4, {3, 1}));

  EXPECT_EQ(copied(folder_.file("m.bin")), (Numbers{7, 8, 256, 9}));
  EXPECT_EQ(copied(folder_.file("m.idx")), (Numbers{7, 8, 256, 9}));
  EXPECT_EQ(copied(folder_.file("m.*")), (Numbers{7, 8, 256, 9})) << "both names are of the same tokens";
  auto huge = index(4, {3, 1});
  huge.replace(18, 8, bytes_of<std::uint64_t>({std::uint64_t{1} << 62U}));
  write("m.idx", huge);
  EXPECT_NE(message(folder_.file("m.bin")).find("has 4 tokens, and"), std::string::npos);
  write("m.idx", index(4, {3, 2}));
  EXPECT_NE(message(folder_.file("m.bin")).find("has 4 tokens, and"), std::string::npos);
  write("m.idx", index(6, {3, 1}));
  EXPECT_NE(message(folder_.file("m.bin")).find("no type of whole numbers"), std::string::npos);
}

TEST_F(TokenArrays, HaveTheDocumentsBetweenEndTokens) {
  constexpr std::uint16_t end = 256;
  auto const documents = [&](std::vector<std::uint16_t> const& numbers) {
    return copy(write("a.bin", bytes_of(numbers))).num_documents;
  };

  EXPECT_EQ(documents({1, 2, end, 3, end, 4}), 3);
  EXPECT_EQ(documents({1, 2, end, 3, end}), 2) << "as nanoGPT writes them";
  EXPECT_EQ(documents({end, 1, 2, end, 3}), 2) << "as llm.c writes them";
  EXPECT_EQ(documents({end, 1, end, end, 2, end}), 2);
  EXPECT_EQ(documents({7}), 1);
}

TEST_F(TokenArrays, AreNotMixedWithTexts) {
  EXPECT_TRUE(tokens::are_token_arrays({"a.npy", "b.bin", "c.idx"}));
  EXPECT_FALSE(tokens::are_token_arrays({"a.txt", "b.jsonl.gz"}));
  EXPECT_NE(test::message_of([] {
              static_cast<void>(tokens::are_token_arrays({"a.txt", "b.npy"}));
            }).find("'b.npy' holds token numbers, and 'a.txt' is a text"),
            std::string::npos);
}

} // namespace
} // namespace orthant::testing
