#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Reads typed edges from lines of text: "head relation tail", three names or numbers. The first triple decides what separates them: a tab,
// '|', ';', a comma, or else blanks. Vertices and relations get their numbers in the order in which their names appear, line by line, head
// before tail. Lines that begin with '#' or '%' are comments. A first line of names of columns, such as "head relation tail" or "subject
// predicate object", is skipped.

#include "graph/graph_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// Names with numbers from 0, found by hashing.
class NameTable {
 public:
  /// The number of the name, or -1.
  [[nodiscard]] std::int64_t find(std::string_view name) const;
  /// The number of the name, which is appended if it is new.
  std::int64_t find_or_add(std::string_view name);

  [[nodiscard]] NameList const& names() const { return names_; }
  [[nodiscard]] std::int64_t size() const { return names_.size(); }

 private:
  [[nodiscard]] std::size_t slot_of(std::string_view name) const;
  void grow();

  NameList names_;
  std::vector<std::int64_t> slots_; // a power of two of numbers, -1: free; at most half are in use
};

/// What a file of triples contains.
struct TripleNames {
  NameTable vertices;
  NameTable relations;
  std::int64_t num_triples = 0;
  bool has_header = false; // names of columns
};

/// Reads a file once. Throws a UserError with the line if it is wrong, or if it has more than most_relations relations. Memory: the names,
/// and at most 40 bytes for each.
[[nodiscard]] TripleNames scan_triples(std::filesystem::path const& path);

/// The edges of a file, which one rank reads. With `adds_inverse`, each triple (u, r, v) is followed by (v, r + R, u), where R is the
/// number of relations. Throws UserError if the file has changed since it was scanned.
[[nodiscard]] std::unique_ptr<EdgeStream> read_triples(std::filesystem::path const& path,
                                                       std::shared_ptr<TripleNames const> names,
                                                       bool adds_inverse, std::int64_t batch_size);

} // namespace orthant::graph
