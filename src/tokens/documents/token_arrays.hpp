#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Files of token numbers that other programs wrote:
//
//   .npy          NumPy arrays of whole numbers, of any shape
//   .bin          nanoGPT's: uint16, or uint32 for a vocabulary of more than 65,536 tokens
//                 llm.c's: the same after a header of 256 int32
//                 Megatron's, with an .idx file of the same name that says the type

#include "tokens/documents/tokenize_documents.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace orthant::tokens {

/// Where the numbers are in a file, one after another and little-endian.
struct TokenArray {
  std::filesystem::path path;
  std::int64_t offset_bytes = 0;
  std::int64_t count = 0;
  int width = 2; // bytes of a number
  bool is_signed = false;
};

/// True if the files are .npy, .bin and .idx files. Throws UserError if only some of them are.
[[nodiscard]] bool are_token_arrays(std::vector<std::filesystem::path> const& paths);

/// Finds the numbers. Throws UserError if the file is damaged or has numbers of another kind.
[[nodiscard]] TokenArray describe_token_array(std::filesystem::path const& path,
                                              std::int64_t vocabulary_size);

/// Writes the numbers of the files that options.input names, one after another, as a token file of the tokenizer. A .bin file is read once
/// if its .idx file is named, too. The documents are counted between end tokens; empty ones do not count. Collective. Throws UserError on all ranks if a file cannot be read or holds a number that is no token.
TokenFacts copy_tokens(runtime::Communicator const& comm, DocumentOptions const& options,
                       TokenizerFile const& tokenizer_file);

} // namespace orthant::tokens
