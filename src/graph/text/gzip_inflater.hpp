#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Inflates a .gz file on a thread of its own, a few pieces ahead, while the caller parses. The thread holds
// raw buffers only (no Kokkos Views). Files of several gzip members, one after the other, read as one.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace orthant::graph {

class GzipInflater {
 public:
  /// Each piece has this much free room in front of it: where the caller may put the end of the piece before.
  static constexpr std::size_t headroom = std::size_t{1} << 16;

  explicit GzipInflater(std::filesystem::path const& path);
  GzipInflater(GzipInflater const&) = delete;
  GzipInflater& operator=(GzipInflater const&) = delete;
  ~GzipInflater();

  /// The next piece, empty at the end. It is lent until the next call. Throws UserError where the file cannot
  /// be read, is not gzip, is damaged or ends early.
  [[nodiscard]] std::span<char> next();

  /// Compressed bytes that have been taken in, and all of them.
  [[nodiscard]] std::int64_t bytes_done() const;
  [[nodiscard]] std::int64_t bytes_total() const;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

} // namespace orthant::graph
