#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks if a graph can be normalized. The degree of a vertex is the sum of the weights of its row, plus 1 if self loops are added:
//
//   sym   D^-1/2 A* D^-1/2    every degree must be positive
//   row   D^-1 A*             no degree may be zero; negative ones are allowed
//   none  A*                  any finite weights (the store has no others)
//
// In the precision of the products, the absolute values of a row must have a finite sum, and the factor of the degree must be a normal
// number. A degree counts as zero if it is at most the rounding error of a sum of weights stored as floats: FLT_EPSILON times the sum of
// their absolute values. A vertex without edges and without a self loop is isolated: its row of A^ is zero, which is allowed.
// Batches that renormalize their edges compute degrees over any subset of the neighbors, so that the degree must be positive for every
// subset.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace orthant::graph {

/// Precision of the products with an operator.
enum class Precision : std::uint8_t { fp32, fp64 };

/// Neighbors that a degree includes: all, or only those within a batch.
enum class Neighborhood : std::uint8_t { whole, within_batch };

/// Sums over the weights of a row of A without self loops.
struct RowWeights {
  double sum = 0;
  double negative = 0;                                    // sum of absolute negative weights
  double least = std::numeric_limits<double>::infinity(); // smallest nonzero absolute value
  bool has_entries = true;

  void add(float weight);
};

/// Vertices whose degrees cannot be used.
struct UnfitVertices {
  std::int64_t count = 0;
  std::int64_t first = -1; // smallest original id
  double degree = 0;       // of vertex `first`
  double size = 0;         // of vertex `first`: sum of its absolute weights
};

/// Counts the vertices whose degree cannot be inverted, for all normalizations at once.
class OperatorCheck {
 public:
  explicit OperatorCheck(SelfLoops self_loops) : self_loops_(self_loops) {}

  /// Adds the vertex with original id `id`.
  void add(std::int64_t id, RowWeights const& weights);
  /// Sums over the ranks, which must have added disjoint vertices. Collective.
  void finish(runtime::Communicator const& comm);

  [[nodiscard]] UnfitVertices const& unfit(Normalization normalization, Precision precision,
                                           Neighborhood neighbors = Neighborhood::whole) const {
    return unfit_[place_of(normalization, precision, neighbors)];
  }
  /// The largest sum of absolute weights of a row without self loops.
  [[nodiscard]] double largest_size() const { return largest_size_; }

  /// "--normalize sym needs .., and those of 2 of 8 vertices are not, first vertex 3 with -2"; empty if all degrees are usable.
  [[nodiscard]] std::string describe(Normalization normalization, Precision precision,
                                     std::int64_t num_vertices) const;
  /// Operators that the graph allows, for messages; with `names_normalizations` also those with other normalizations.
  [[nodiscard]] std::string what_fits(Normalization normalization, Precision precision,
                                      bool names_normalizations) const;

 private:
  [[nodiscard]] static std::size_t place_of(Normalization normalization, Precision precision,
                                            Neighborhood neighbors) {
    if (normalization == Normalization::none) return num_conditions;
    return (normalization == Normalization::row ? 4U : 0U) + (precision == Precision::fp64 ? 2U : 0U) +
           (neighbors == Neighborhood::within_batch ? 1U : 0U);
  }

  static constexpr std::size_t num_conditions = 8;

  SelfLoops self_loops_;
  std::array<UnfitVertices, num_conditions + 1>
      unfit_{}; // by condition; the last one stands for no condition and is always empty
  double largest_size_ = 0;
};

/// Intended use of a store's operator.
struct OperatorUse {
  Precision precision = Precision::fp32;
  Neighborhood neighbors = Neighborhood::whole;
  bool is_of_model = false; // the model allows no other --normalize
};

/// A warning that the store's operator has no significant entry off its diagonal; empty if it has one. `largest_size` is
/// OperatorCheck::largest_size() of a graph with weights.
[[nodiscard]] std::string describe_effect(StoreFacts const& facts, std::string const& name,
                                          double largest_size, Precision precision);

struct OperatorFindings {
  std::string refusal; // reason why there is no such operator; empty if there is one
  std::string warning; // that the operator has no effect; empty if it has one
};

/// Checks the current operator of the store (GraphStore::set_operator), which must be equal on all ranks. Reads degrees or sums of weights,
/// and the whole matrix if it has negative weights. Collective. Throws UserError if the store is damaged.
[[nodiscard]] OperatorFindings check_operator(runtime::Communicator const& comm, GraphStore const& store,
                                              OperatorUse const& use);

// Finds data from which a network learns little: labels of one class, empty parts of a split, features that are all equal.

/// One warning with counts for each finding, equal on all ranks. Reads labels and masks, and features up to the first difference.
/// Collective. Throws UserError if the store is damaged.
[[nodiscard]] std::vector<std::string> check_data(runtime::Communicator const& comm, GraphStore const& store);

} // namespace orthant::graph
