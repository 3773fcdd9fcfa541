#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A text as token numbers, in one HDF5 file that orthant tokenize writes (docs/tokens.md):
//
//   /tokens/train, /tokens/valid     uint16 or uint32, consecutive parts of the text
//   /vocabulary/bytes, /ends         the texts of the tokens
//   /vocabulary/tokenizer            bpe: a tokenizer.json
//   attributes of "/"                format, version, facts (JSON) and their checksum
//
// Only rank 0 opens it with HDF5. Each rank reads the plain bytes of the tokens that it needs.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/range.hpp"
#include "tokens/vocabulary.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace orthant::tokens {

enum class Part : std::uint8_t { train, valid };
inline constexpr std::array all_parts{Part::train, Part::valid};
[[nodiscard]] std::string_view name_of(Part part);
/// "/tokens/train".
[[nodiscard]] std::string array_of(Part part);

inline constexpr auto bytes_array = "/vocabulary/bytes";
inline constexpr auto ends_array = "/vocabulary/ends";
inline constexpr auto tokenizer_array = "/vocabulary/tokenizer";
inline constexpr auto file_format = "orthant tokens";
inline constexpr std::int64_t file_version = 1;

/// uint16 if all tokens of the vocabulary fit, otherwise uint32.
[[nodiscard]] runtime::Hdf5Type token_type(std::int64_t vocabulary_size);

struct PartFacts {
  std::int64_t num_tokens = 0;
  std::int64_t num_bytes = 0; // length of the text
  std::uint64_t sum = 0;      // checksum of the array: runtime/files/hdf5_file.hpp
};

/// Facts about a tokenizer of the kind bpe.
struct BpeFacts {
  std::string name;                      // of the tokenizer's file
  std::int64_t num_bytes = 0;            // of the tokenizer.json
  std::uint64_t sum = 0;                 // its checksum
  std::optional<std::int64_t> end_token; // separates documents
};

struct TokenFacts {
  std::string source; // name of the text file
  TokenizerKind tokenizer = TokenizerKind::byte;
  std::int64_t vocabulary_size = 0;
  std::array<PartFacts, all_parts.size()> parts;
  std::uint64_t sum_of_vocabulary = 0;
  std::optional<BpeFacts> bpe{}; // nullopt unless the tokenizer is bpe
  std::int64_t num_documents = 1;

  [[nodiscard]] PartFacts const& of(Part part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] std::string to_json() const;
  /// Throws a UserError with `path` if the text is not such JSON.
  [[nodiscard]] static TokenFacts from_json(std::string const& text, std::string const& path);
};

/// Checksum of the texts of a vocabulary, for TokenFacts.
[[nodiscard]] std::uint64_t sum_of(Vocabulary const& vocabulary);
/// Checksum of a tokenizer.json, for BpeFacts.
[[nodiscard]] std::uint64_t sum_of_tokenizer(std::string const& json);
/// Checksum of the JSON of the facts, for the file's attribute.
[[nodiscard]] std::int64_t sum_of(std::string const& facts);

class TokenFile {
 public:
  /// Opens a token file without reading the tokens. Throws UserError on all ranks if there is no such file, or if it is not a token file,
  /// has a newer version or is damaged. Collective.
  [[nodiscard]] static TokenFile open(runtime::Communicator const& comm, std::filesystem::path const& path);

  [[nodiscard]] TokenFacts const& facts() const { return facts_; }
  [[nodiscard]] Vocabulary const& vocabulary() const { return vocabulary_; }
  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::int64_t num_tokens(Part part) const { return facts_.of(part).num_tokens; }

  /// ids := the ids.size() tokens from `begin` on. Not collective. Throws UserError if they cannot be read, and Error if there are no such
  /// tokens.
  void read(Part part, std::int64_t begin, std::span<std::int32_t> ids);
  /// The tokenizer.json of a file whose tokenizer is bpe. Throws UserError on all ranks if it is damaged. Collective.
  [[nodiscard]] std::string tokenizer_json(runtime::Communicator const& comm) const;
  /// Reads all tokens, a share on each rank, and compares checksums. Throws UserError on all ranks if the tokens are damaged or one is
  /// outside the vocabulary. Collective.
  void verify(runtime::Communicator const& comm);
  /// Number of bytes that read() has read on this rank.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  TokenFile() = default;
  template<class T>
  void read_as(Part part, std::int64_t begin, std::span<T> tokens) const;
  template<class T>
  [[nodiscard]] std::uint64_t sum_of_share(Part part, runtime::Communicator const& comm) const;

  std::string name_;
  TokenFacts facts_;
  Vocabulary vocabulary_;
  runtime::Hdf5Type type_ = runtime::Hdf5Type::uint16;
  std::array<std::int64_t, all_parts.size()> offsets_{}; // of the arrays' bytes in the file
  std::unique_ptr<runtime::ByteSource> bytes_;
  std::vector<std::uint16_t> short_tokens_; // scratch of read()
  std::int64_t bytes_read_ = 0;
};

// The tokens of each sequence. A window consists of S tokens and, for each of them, the next token as its target. It begins at any token of
// the training part that S others follow, so that N tokens have W = N - S windows.
//
//   sequence i of a training:    window  pi_e(i mod W),  e = i div W
//
// pi_e is the keyed bijection of epoch e (runtime/numbers/random.hpp): an epoch uses every window once, and any rank can compute any
// sequence of any step without communication. The validation part is cut into windows that do not overlap, from its first token on, so that
// each of its tokens except the first is predicted once.

class TrainingWindows {
 public:
  /// Throws UserError unless there is a window: num_tokens must be at least sequence + 1.
  TrainingWindows(std::int64_t num_tokens, std::int64_t sequence, std::uint64_t seed);

  /// W, the number of windows of an epoch.
  [[nodiscard]] std::int64_t size() const { return num_windows_; }
  /// The first token of sequence i of the training; i counts from 0.
  [[nodiscard]] std::int64_t begin_of(std::int64_t i) const;

 private:
  std::int64_t num_windows_;
  std::uint64_t seed_;
};

/// Number of windows of a validation part; 0 if it has no token to predict.
[[nodiscard]] std::int64_t num_validation_windows(std::int64_t num_tokens, std::int64_t sequence);

} // namespace orthant::tokens
