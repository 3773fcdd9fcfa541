#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Contents of a graph store: one HDF5 file that every grid and every number of ranks can load.
//
// The matrix A (an edge (source, target) is the entry A[target, source]) is stored twice permuted:
//   even parity  A[p1, p2]   rows in order p1, columns in order p2
//   odd parity   A[p2, p1]
// so that layers alternate between them (Plexus, arXiv 2505.04083, section 5.1). If A is symmetric, the odd matrix is the transpose of the
// even one; if p1 = p2, both are equal. In these cases only the even one is in the file. Each is cut into tiles (distribution.hpp) with
// entries of four bytes: 16 bits for the row and 16 for the column.
//
//   /facts                        attribute: StoreFacts as JSON; facts_crc32 protects it
//   /topology/{even,odd}/entries  uint32 [nnz], weights float [nnz] if weighted, relations uint16 [nnz] if edges have relations,
//                     and the tables of tiles; features float [nnz x F] row-major if edges have features, with a CRC-32 for each tile
//   /vertices/{p1,p2}/original_ids, degrees, weight_sums (if weighted), positions_in_other_order,
//                     clusters int32 (if there are clusters)
//   /vertices/edge_feature_means  float64 [F x N] in order p2, if edges have features: the mean over the entries of a row without self loops
//   /features/dense float [D x N] in order p2, each column contiguous; /features/remainders alike, of features in fp64; /features/sparse like a topology
//   /labels/{p1,p2} int32 [N], int8 [C x N] if multi-label, or float64 [C x N] if real; /labels/names like names of relations; /split/{p1,p2} uint8 [N], bits of Split, or
//                     [S x N] of S splits
//   /relations/names/{offsets,text}, num_entries int64 [R] if edges have relations; source_types and target_types int64 [R] if vertices
//                     have types, which are ranges of original ids (facts); /vertices/names/{offsets,text} by original id if
//                     vertices have names: int64 [names + 1] and uint8, name i is the text from offset i to offset i + 1
//   /links/{valid,test}/{positives,negatives} int32 or int64 [2 x n] positions in p1, sorted, if edges were held out
//   /checksums/..                 CRC-32 of every 1,024 elements of each array above
//
// Order p2 is absent if p1 = p2. All arrays are contiguous and little-endian, so that they can be read without HDF5.

#include "graph/graph_source.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// Newest version that is read and written.
inline constexpr std::int64_t store_version = 2;
inline constexpr std::int64_t most_clusters = std::int64_t{1} << 24;
/// Arrays of RelationEnds.
inline constexpr std::array<char const*, 2> relation_ends_arrays{"/relations/source_types",
                                                                 "/relations/target_types"};

/// The two orders in which rows and columns are stored: position i holds the vertex with original id p[i].
enum class Order : std::uint8_t { p1, p2 };
[[nodiscard]] constexpr Order other(Order order) {
  return order == Order::p1 ? Order::p2 : Order::p1;
}

/// Selects one of the two stored matrices: even layers use A[p1, p2], odd layers A[p2, p1].
enum class Parity : std::uint8_t { even, odd };
[[nodiscard]] constexpr Order row_order(Parity parity) {
  return parity == Parity::even ? Order::p1 : Order::p2;
}
[[nodiscard]] constexpr Order column_order(Parity parity) {
  return other(row_order(parity));
}

enum class PermutationKind : std::uint8_t { natural, single, twofold, cluster, pieces };

/// symmetric: D^-1/2 (A + I) D^-1/2.  row: D^-1 (A + I).  D = row sums of A + I, where A excludes its own self loops. none: A unchanged,
/// with its own self loops and without added ones.
enum class Normalization : std::uint8_t { symmetric, row, none };

/// Entries of a block where a vertex meets itself (equal original ids, not equal positions).
enum class SelfLoops : std::uint8_t {
  added,    // one entry (value 1) per vertex, in place of self loops of A: A' + I
  as_given, // self loops of A only: A
  dropped,  // none: A'
};
/// symmetric and row add self loops; none keeps the self loops of A.
[[nodiscard]] constexpr SelfLoops usual_self_loops(Normalization normalization) {
  return normalization == Normalization::none ? SelfLoops::as_given : SelfLoops::added;
}

/// The operator of a network: D^-1/2 A* D^-1/2, D^-1 A* or A*. A* is A with the chosen self loops; D has its row sums.
struct GraphOperator {
  Normalization normalization = Normalization::symmetric;
  SelfLoops self_loops = SelfLoops::added;

  friend bool operator==(GraphOperator const&, GraphOperator const&) = default;
};

enum class Split : std::uint8_t { train = 0, valid = 1, test = 2 };

/// Links for evaluations: edges that were held out of A (positive), or pairs that are not edges (negative).
enum class LinkKind : std::uint8_t { positive, negative };

/// Words of the command line: "double", "single", "none", "cluster", "pieces" for a permutation, and "sym", "row", "none" for a
/// normalization. Throws UserError on another word.
[[nodiscard]] PermutationKind parse_permutation(std::string_view word);
[[nodiscard]] Normalization parse_normalization(std::string_view word);
[[nodiscard]] std::string_view name_of(PermutationKind kind);
[[nodiscard]] std::string_view name_of(Normalization normalization);
/// Accepts "add", "keep" or "drop". Throws UserError on another word.
[[nodiscard]] SelfLoops parse_self_loops(std::string_view word);
[[nodiscard]] std::string_view name_of(SelfLoops self_loops);
[[nodiscard]] std::string_view name_of(Split split);
[[nodiscard]] std::string_view name_of(FeatureKind kind);
[[nodiscard]] std::string_view name_of(LabelKind kind);

struct StoreFacts {
  std::int64_t num_vertices = 0;
  std::int64_t num_entries = 0;    // of A, including reverse edges and its own self loops
  std::int64_t num_self_loops = 0; // among num_entries
  std::int64_t max_degree = 0;     // largest number of entries of a row, without self loops
  bool is_symmetric = false;       // A equals its transpose
  bool is_weighted = false;
  /// Number of negative entries of A off the diagonal. Empty without weights, or in an old store that has no such count.
  std::optional<std::int64_t> num_negative_weights{};
  std::int64_t num_edge_features = 0; // 0: edges have no features
  PermutationKind permutation = PermutationKind::twofold;
  Normalization normalization = Normalization::symmetric;
  std::optional<SelfLoops> other_self_loops{}; // if not the usual ones; not in the file
  std::uint64_t seed = 0;
  std::int64_t num_clusters = 0; // 0 if there are none

  FeatureKind feature_kind = FeatureKind::none;
  std::int64_t num_features = 0;
  std::int64_t num_feature_entries = 0;  // sparse only
  bool features_have_values = false;     // sparse only; false: every stored entry is 1
  bool features_have_remainders = false; // dense only: fp32 remainders of fp64 features are stored
  LabelKind label_kind = LabelKind::none;
  std::int64_t num_classes = 0; // LabelKind::real: number of targets of a vertex
  std::int64_t num_labelled = 0;
  bool has_split = false;
  std::string split_name;
  std::array<std::int64_t, 3>
      split_sizes{}; // train, valid, test: of the split in use; in the file, those of split 0
  std::vector<std::array<std::int64_t, 3>> sizes_of_splits{}; // if there are several splits
  std::array<std::int64_t, 3> num_held_out{}; // edges not in A, by Split; also number of negatives; 0: none

  /// Names in the order of their numbers, and the number of entries of each; empty for a graph without relations. In the file they are
  /// arrays: to_json() has only their number.
  std::vector<std::string> relations{};
  std::vector<std::int64_t> relation_entries{};
  std::int64_t relation_name_bytes = 0;   // of all names
  std::int64_t vertex_name_bytes = 0;     // of all names; 0: vertices have no names
  std::vector<VertexType> vertex_types{}; // empty: all vertices are alike
  std::vector<RelationEnds>
      relation_ends{}; // [relations] if vertices have types; in the file they are arrays
  /// Names of the classes in their order; empty if classes are only numbers. The file has them in an array.
  std::vector<std::string> class_names{};
  std::int64_t class_name_bytes = 0; // of all names

  std::string name;   // name of the data set
  std::string format; // input format

  /// False if p1 = p2: there is one order, and both parities are the same matrix.
  [[nodiscard]] bool has_two_orders() const {
    return permutation == PermutationKind::twofold || permutation == PermutationKind::cluster;
  }
  /// True if the odd matrix is neither equal to the even one nor its transpose, and is in the file.
  [[nodiscard]] bool has_odd_topology() const { return has_two_orders() && !is_symmetric; }
  [[nodiscard]] std::int64_t num_relations() const { return std::ssize(relations); }
  [[nodiscard]] bool has_vertex_names() const { return vertex_name_bytes > 0; }
  [[nodiscard]] std::int64_t num_types() const { return std::ssize(vertex_types); }
  /// Whether vertices of some types have no features, and those of others have.
  [[nodiscard]] bool has_bare_types() const;
  /// Original ids of a type. Without types all vertices have type 0.
  [[nodiscard]] Range ids_of_type(std::int64_t type) const;
  /// The type of a vertex.
  [[nodiscard]] std::int64_t type_of(std::int64_t original_id) const;
  [[nodiscard]] std::int64_t num_splits() const {
    return has_split ? std::max<std::int64_t>(1, std::ssize(sizes_of_splits)) : 0;
  }
  [[nodiscard]] bool has_class_names() const { return class_name_bytes > 0; }
  /// Version of a store with these facts: 2 if it has relations, names of vertices or classes, remainders of features, several splits,
  /// targets of regression or features of edges.
  [[nodiscard]] std::int64_t version() const {
    bool const is_new = num_relations() > 0 || has_vertex_names() || has_class_names() ||
                        features_have_remainders || num_splits() > 1 || label_kind == LabelKind::real ||
                        num_edge_features > 0;
    return is_new ? 2 : 1;
  }
  /// True if edges were held out for link prediction.
  [[nodiscard]] bool has_links() const { return num_held_out[1] + num_held_out[2] > 0; }
  [[nodiscard]] GraphOperator graph_operator() const {
    return {normalization, other_self_loops.value_or(usual_self_loops(normalization))};
  }
  [[nodiscard]] bool adds_self_loops() const { return graph_operator().self_loops == SelfLoops::added; }
  /// Number of entries of the operator.
  [[nodiscard]] std::int64_t num_operator_entries() const {
    auto const self_loops = graph_operator().self_loops;
    if (self_loops == SelfLoops::as_given) return num_entries;
    return num_entries - num_self_loops + (self_loops == SelfLoops::added ? num_vertices : 0);
  }

  [[nodiscard]] std::string to_json() const;
  /// Throws a UserError with `file` if the text is not such JSON or if the facts contradict each other.
  [[nodiscard]] static StoreFacts from_json(std::string const& text,
                                            std::string const& file = "a graph store");
  /// A sentence that describes a contradiction among these facts; empty if there is none.
  [[nodiscard]] std::string contradiction() const;
  [[nodiscard]] std::string contradiction_of_splits() const;
};

} // namespace orthant::graph
