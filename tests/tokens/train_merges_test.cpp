// SPDX-License-Identifier: Apache-2.0
//
// The merges that BpeTrainer of Hugging Face's tokenizers 0.23.3 learns with ByteLevel and its alphabet.

#include "tokens/bpe/tokenizer.hpp"

#include "support/scratch_folder.hpp"
#include "tokens/bpe/tokenizer_files.hpp"
#include "tokens/documents/tokenize_documents.hpp"
#include "tokens/token_file.hpp"

#include <cstdlib>
#include <gtest/gtest.h>
#include <mpi.h>

namespace orthant::testing {
namespace {

/// "left right" per line, as merges.txt has them.
std::string lines_of(tokens::TokenizerDefinition const& definition) {
  std::string lines;
  for (auto const& [left, right, merged] : definition.merges)
    lines += tokens::to_byte_characters(definition.texts[left]) + " " +
             tokens::to_byte_characters(definition.texts[right]) + "\n";
  return lines;
}

TEST(TrainMerges, TakesTheMostFrequentPairAndOfEqualOnesTheSmallest) {
  auto const definition = tokens::train_merges({{"abab", 2}, {"bc", 4}, {"xyz", 1}}, 5);

  // ab and bc occur four times. Then abab and xy have less.
  EXPECT_EQ(lines_of(definition), "a b\nb c\nab ab\nx y\nxy z\n");
  EXPECT_EQ(definition.texts.size(), 256U + 5 + 1);
  EXPECT_EQ(definition.texts.back(), "<|endoftext|>");
}

TEST(TrainMerges, EndsWhenNothingIsLeft) {
  EXPECT_EQ(lines_of(tokens::train_merges({{"aaaa", 1}}, 100)), "a a\naa aa\n");
}

TEST(TrainMerges, OfTinyshakespeareAreThoseOfTokenizers) {
  auto const* const data = std::getenv("ORTHANT_DATA");
  auto const path = std::string(data == nullptr ? "" : data) + "/datasets/tinyshakespeare/input.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "ORTHANT_DATA has no tinyshakespeare";
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  constexpr std::int64_t num_tokens = 2048;

  auto const trained = tokens::train_tokenizer(world, path, "text", 2, num_tokens);

  auto const lines = lines_of(trained.definition);
  EXPECT_EQ(trained.definition.merges.size(), 2048U);
  EXPECT_EQ(lines.substr(0, lines.find("o u")), "\u0120 t\nh e\n\u0120 a\n");
  EXPECT_EQ(tokens::sum_of_tokenizer(lines), 0x5ff7d024650ab7db);
}

} // namespace
} // namespace orthant::testing
