#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What is in a graph store: one HDF5 file that every grid and every number of ranks can load.
//
// The matrix A (an edge (source, target) is the entry A[target, source]) is stored twice permuted:
//   even parity  A[p1, p2]   rows in order p1, columns in order p2
//   odd parity   A[p2, p1]
// so that layers alternate between them (Plexus, arXiv 2505.04083, section 5.1). Where A is symmetric the odd
// one is the transpose of the even one, and where p1 = p2 both are the same: then only even is in the file.
// Each is cut in tiles (distribution.hpp) whose entries are four bytes: 16 bits of row and of column.
//
//   /facts                        attribute: this struct as JSON; facts_crc32 guards it
//   /topology/{even,odd}/entries  uint32 [nnz], weights float [nnz] where weighted, and the tables of tiles
//   /vertices/{p1,p2}/original_ids, degrees, weight_sums (weighted), positions_in_other_order,
//                     clusters int32 (where there are clusters)
//   /features/dense float [D x N] in order p2, a column contiguous; /features/sparse as a topology
//   /labels/{p1,p2} int32 [N], or int8 [C x N] where multi-label; /split/{p1,p2} uint8 [N], bits of Split
//   /links/{valid,test}/{positives,negatives} int32 or int64 [2 x n] positions in p1, sorted, if edges were held out
//   /checksums/..                 CRC-32 of every 1,024 elements of each array above
// Order p2 is absent where p1 = p2. All arrays are contiguous and little-endian: they are read without HDF5.

#include "graph/graph_source.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orthant::graph {

inline constexpr std::int64_t store_version = 1;
inline constexpr std::int64_t most_clusters = std::int64_t{1} << 24;

/// The two orders in which rows and columns are stored: position i holds the vertex with original id p[i].
enum class Order : std::uint8_t { p1, p2 };
[[nodiscard]] constexpr Order other(Order order) {
  return order == Order::p1 ? Order::p2 : Order::p1;
}

/// Which of the two stored matrices a layer uses: even layers A[p1, p2], odd layers A[p2, p1].
enum class Parity : std::uint8_t { even, odd };
[[nodiscard]] constexpr Order row_order(Parity parity) {
  return parity == Parity::even ? Order::p1 : Order::p2;
}
[[nodiscard]] constexpr Order column_order(Parity parity) {
  return other(row_order(parity));
}

enum class PermutationKind : std::uint8_t { natural, single, twofold, cluster, pieces };

/// symmetric: D^-1/2 (A + I) D^-1/2.  row: D^-1 (A + I).  D = row sums of A + I, where A is without its own
/// self loops. none: A as it is, its own self loops kept and none added.
enum class Normalization : std::uint8_t { symmetric, row, none };

/// What a block holds on the places where a vertex meets itself (original ids equal, not positions).
enum class SelfLoops : std::uint8_t {
  added,    // one entry (value 1) for every vertex, in place of any self loops of A's own: A' + I
  as_given, // A's own and nothing else: A
  dropped,  // none: A'
};
/// symmetric and row add self loops, and none takes those that A has.
[[nodiscard]] constexpr SelfLoops usual_self_loops(Normalization normalization) {
  return normalization == Normalization::none ? SelfLoops::as_given : SelfLoops::added;
}

/// What a network multiplies by: D^-1/2 A* D^-1/2, D^-1 A* or A*. A* is A with these self loops, D has its row sums.
struct GraphOperator {
  Normalization normalization = Normalization::symmetric;
  SelfLoops self_loops = SelfLoops::added;

  friend bool operator==(GraphOperator const&, GraphOperator const&) = default;
};

enum class Split : std::uint8_t { train = 0, valid = 1, test = 2 };

/// Of links that evaluations judge: edges that were held out of A, or pairs that are no edges.
enum class LinkKind : std::uint8_t { positive, negative };

/// "double", "single", "none", "cluster", "pieces" and "sym", "row", "none", as on the command line. UserError
/// on another.
[[nodiscard]] PermutationKind parse_permutation(std::string_view word);
[[nodiscard]] Normalization parse_normalization(std::string_view word);
[[nodiscard]] std::string_view name_of(PermutationKind kind);
[[nodiscard]] std::string_view name_of(Normalization normalization);
/// "add", "keep" or "drop".
[[nodiscard]] SelfLoops parse_self_loops(std::string_view word);
[[nodiscard]] std::string_view name_of(SelfLoops self_loops);
[[nodiscard]] std::string_view name_of(Split split);
[[nodiscard]] std::string_view name_of(FeatureKind kind);
[[nodiscard]] std::string_view name_of(LabelKind kind);

struct StoreFacts {
  std::int64_t num_vertices = 0;
  std::int64_t num_entries = 0;    // of A, reverse edges and its own self loops included
  std::int64_t num_self_loops = 0; // among num_entries
  std::int64_t max_degree = 0;     // entries of a row, self loops not counted
  bool is_symmetric = false;       // A equals its transpose
  bool is_weighted = false;
  /// Entries of A off the diagonal; none: no weights, or a store that was made before they were counted.
  std::optional<std::int64_t> num_negative_weights{};
  PermutationKind permutation = PermutationKind::twofold;
  Normalization normalization = Normalization::symmetric;
  std::optional<SelfLoops> other_self_loops{}; // in place of the usual ones; not in the file
  std::uint64_t seed = 0;
  std::int64_t num_clusters = 0; // 0: none

  FeatureKind feature_kind = FeatureKind::none;
  std::int64_t num_features = 0;
  std::int64_t num_feature_entries = 0; // sparse only
  bool features_have_values = false;    // sparse only; false: every stored entry is 1
  LabelKind label_kind = LabelKind::none;
  std::int64_t num_classes = 0;
  std::int64_t num_labelled = 0;
  bool has_split = false;
  std::string split_name;
  std::array<std::int64_t, 3> split_sizes{};  // train, valid, test
  std::array<std::int64_t, 3> num_held_out{}; // edges that are not in A, by Split; as many negatives. 0: none

  std::string name;   // of the data set
  std::string format; // that it came from

  /// False where p1 = p2: one order, and both parities are one matrix.
  [[nodiscard]] bool has_two_orders() const {
    return permutation == PermutationKind::twofold || permutation == PermutationKind::cluster;
  }
  /// True where the odd matrix is neither the even one nor its transpose, and is in the file.
  [[nodiscard]] bool has_odd_topology() const { return has_two_orders() && !is_symmetric; }
  /// Whether edges were held out, to be predicted.
  [[nodiscard]] bool has_links() const { return num_held_out[1] + num_held_out[2] > 0; }
  [[nodiscard]] GraphOperator graph_operator() const {
    return {normalization, other_self_loops.value_or(usual_self_loops(normalization))};
  }
  [[nodiscard]] bool adds_self_loops() const { return graph_operator().self_loops == SelfLoops::added; }
  /// Of the operator.
  [[nodiscard]] std::int64_t num_operator_entries() const {
    auto const self_loops = graph_operator().self_loops;
    if (self_loops == SelfLoops::as_given) return num_entries;
    return num_entries - num_self_loops + (self_loops == SelfLoops::added ? num_vertices : 0);
  }

  [[nodiscard]] std::string to_json() const;
  /// Throws UserError, which names `file`, if the text is no such JSON or if the facts contradict each other.
  [[nodiscard]] static StoreFacts from_json(std::string const& text,
                                            std::string const& file = "a graph store");
  /// What is wrong with these facts by themselves, in a sentence; empty if nothing is.
  [[nodiscard]] std::string contradiction() const;
};

} // namespace orthant::graph
