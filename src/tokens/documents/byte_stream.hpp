#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a file from its beginning to its end: of a range of a plain file, or of the text of a .gz or .zst file.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace orthant::tokens {

class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(ByteStream const&) = delete;
  ByteStream& operator=(ByteStream const&) = delete;
  virtual ~ByteStream() = default;

  /// Appends some bytes to `text`. Returns false if there are no more. Throws UserError if they cannot be read.
  [[nodiscard]] virtual bool append_to(std::string& text) = 0;
};

/// True if the name ends in ".gz" or ".zst".
[[nodiscard]] bool is_compressed(std::filesystem::path const& path);
/// The name without such an ending.
[[nodiscard]] std::filesystem::path name_of_text(std::filesystem::path const& path);

/// Throws UserError if the file cannot be opened, or is a .zst file and this program was built without libzstd.
[[nodiscard]] std::unique_ptr<ByteStream> open_compressed(std::filesystem::path const& path);
[[nodiscard]] std::unique_ptr<ByteStream> open_range(std::filesystem::path const& path, std::int64_t begin,
                                                     std::int64_t end);

namespace detail {
/// In zstd.cpp or no_zstd.cpp.
[[nodiscard]] std::unique_ptr<ByteStream> open_zstd(std::filesystem::path const& path);
} // namespace detail

} // namespace orthant::tokens
