#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A text as numbers of tokens, in one HDF5 file that orthant tokenize writes (docs/tokens.md):
//
//   /tokens/train, /tokens/valid     uint16 or uint32, the parts of the text one after the other
//   /vocabulary/bytes, /ends         the texts of the tokens
//   attributes of "/"                format, version, facts (JSON) and their checksum
//
// Rank 0 alone opens it with HDF5. All ranks read plain bytes of the tokens that they need.

#include "runtime/comm/communicator.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/range.hpp"
#include "tokens/vocabulary.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
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
inline constexpr auto file_format = "orthant tokens";
inline constexpr std::int64_t file_version = 1;

/// uint16 as long as all tokens of the vocabulary fit.
[[nodiscard]] runtime::Hdf5Type token_type(std::int64_t vocabulary_size);

struct PartFacts {
  std::int64_t num_tokens = 0;
  std::int64_t num_bytes = 0; // of the text
  std::uint64_t sum = 0;      // of the array: runtime/files/array_sum.hpp
};

struct TokenFacts {
  std::string source; // name of the text's file
  TokenizerKind tokenizer = TokenizerKind::byte;
  std::int64_t vocabulary_size = 0;
  std::array<PartFacts, all_parts.size()> parts;
  std::uint64_t sum_of_vocabulary = 0;

  [[nodiscard]] PartFacts const& of(Part part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] std::string to_json() const;
  /// Throws UserError, which names `path`, if the text is no such JSON.
  [[nodiscard]] static TokenFacts from_json(std::string const& text, std::string const& path);
};

/// Of the texts of a vocabulary, for TokenFacts.
[[nodiscard]] std::uint64_t sum_of(Vocabulary const& vocabulary);
/// Of the JSON of the facts, for the file's attribute.
[[nodiscard]] std::int64_t sum_of(std::string const& facts);

class TokenFile {
 public:
  /// Throws UserError, the same on all ranks: no such file, not one of tokens, a newer version, damaged. The tokens
  /// themselves are not read. Collective.
  [[nodiscard]] static TokenFile open(runtime::Communicator const& comm, std::filesystem::path const& path);

  [[nodiscard]] TokenFacts const& facts() const { return facts_; }
  [[nodiscard]] Vocabulary const& vocabulary() const { return vocabulary_; }
  [[nodiscard]] std::string const& name() const { return name_; }
  [[nodiscard]] std::int64_t num_tokens(Part part) const { return facts_.of(part).num_tokens; }

  /// ids := the tokens from `begin` on, as many as there is room for. Not collective. Throws UserError if they
  /// cannot be read, and Error if there are no such tokens.
  void read(Part part, std::int64_t begin, std::span<std::int32_t> ids);
  /// Reads all tokens, a share on each rank, and compares checksums. Throws UserError, the same on all ranks, if
  /// they are damaged or one is beyond the vocabulary. Collective.
  void verify(runtime::Communicator const& comm);
  /// By read() on this rank.
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

// Which tokens are in which sequence. A window is S tokens and the one behind each: it begins at any token of the
// training part that S others follow, so N tokens have W = N - S windows.
//
//   sequence i of a training:    window  pi_e(i mod W),  e = i div W
//
// pi_e is the keyed bijection of epoch e (runtime/numbers/random.hpp): an epoch takes every window once, and any
// rank knows any sequence of any step without a message. The validation part is cut from its first token on in
// windows that do not overlap, so each of its tokens but the first is predicted once.

class TrainingWindows {
 public:
  /// Throws UserError unless there is a window: at least sequence + 1 tokens.
  TrainingWindows(std::int64_t num_tokens, std::int64_t sequence, std::uint64_t seed);

  /// W, the windows of an epoch.
  [[nodiscard]] std::int64_t size() const { return num_windows_; }
  /// The first token of sequence i of the training, from 0.
  [[nodiscard]] std::int64_t begin_of(std::int64_t i) const;

 private:
  std::int64_t num_windows_;
  std::uint64_t seed_;
};

/// The number of windows of a validation part; 0 if it has no token to predict.
[[nodiscard]] std::int64_t num_validation_windows(std::int64_t num_tokens, std::int64_t sequence);

} // namespace orthant::tokens
