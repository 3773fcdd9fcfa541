#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// From a text to a token file, whatever the tokenizer is (TokenOutput), and by characters or bytes (tokenize()).

#include "runtime/files/hdf5_output.hpp"
#include "tokens/token_file.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace orthant::tokens {

/// Writes a token file. Each rank passes the tokens of its share of the text one by one to take().
class TokenOutput {
 public:
  /// facts            must have source, tokenizer and, for bpe, its facts; the rest is filled in
  /// train_fraction   share of the tokens that are for training
  /// num_tokens       of this rank's share, which follows the shares of the ranks before
  /// tokenizer_json   of a tokenizer of the kind bpe, else empty
  /// Collective. Throws UserError on all ranks if there are no tokens or the file cannot be created. The vocabulary must outlive this object.
  TokenOutput(runtime::Communicator const& comm, std::filesystem::path const& path, TokenFacts facts,
              double train_fraction, std::int64_t num_tokens, Vocabulary const& vocabulary,
              std::string const& tokenizer_json);

  /// Writes the next token of this rank's share, whose text has this number of bytes. Not collective.
  void take(std::uint32_t token, std::size_t num_bytes);
  /// Completes the file after the last token. Returns its facts. Collective.
  TokenFacts publish();

 private:
  void write();
  template<class T>
  void write_as(Part part, std::int64_t begin);
  void write_vocabulary();

  runtime::Communicator const& comm_;
  TokenFacts facts_;
  Vocabulary const& vocabulary_;
  std::string tokenizer_json_;
  std::int64_t first_; // place of the first waiting token in the text
  runtime::Hdf5Output file_;
  Part part_ = Part::train;
  std::vector<std::uint32_t> waiting_;
};

struct TokenizeOptions {
  std::filesystem::path input;
  std::filesystem::path output;
  TokenizerKind tokenizer = TokenizerKind::character;
  double train_fraction = 0.9; // fraction of the tokens, from the first on; the rest is for validation
};

/// Converts a text to a token file. Every rank reads its share of the text's bytes twice: first to find and count the tokens, then to write
/// their numbers. Memory for the text: one block of 1 MiB. Equal input gives equal bytes on any number of ranks. A byte order mark at the beginning of the text is not a
/// token. Returns the facts of the file. Collective. Throws UserError on all ranks if the text cannot be read, is empty, or (char) is not
/// valid UTF-8.
TokenFacts tokenize(runtime::Communicator const& comm, TokenizeOptions const& options);

} // namespace orthant::tokens
