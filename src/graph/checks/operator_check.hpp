#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Whether a graph can be normalized. The degree of a vertex is the sum of the weights of its row, and 1 more if self loops
// are added:
//
//   sym   D^-1/2 A* D^-1/2    every degree is positive
//   row   D^-1 A*             no degree is zero; negative ones are legitimate
//   none  A*                  any finite weights, which the store has
//
// In the precision of the products, the absolute values of a row have a finite sum, and the degree has a factor that is a
// normal number. A degree counts as zero if it is at most the rounding error of summing weights stored as floats:
// FLT_EPSILON times the sum of their absolute values. A vertex without edges and without a self loop is isolated: its row of A^ is zero, which is legitimate.
// Batches that renormalize their edges take the degrees over any of the neighbors, so that each such sum must be positive.

#include "graph/store/store_reader.hpp"
#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

/// What an operator is computed in.
enum class Precision : std::uint8_t { fp32, fp64 };

/// Which neighbors a degree is the sum of.
enum class Neighborhood : std::uint8_t { whole, within_batch };

/// The weights of a row of A, without those of self loops.
struct RowWeights {
  double sum = 0;
  double negative = 0;                                    // absolute sum of the negative ones
  double least = std::numeric_limits<double>::infinity(); // the least absolute value that is not zero
  bool has_entries = true;

  void add(float weight);
};

/// Vertices whose degrees cannot be used.
struct UnfitVertices {
  std::int64_t count = 0;
  std::int64_t first = -1; // the least original id
  double degree = 0;       // of the first
  double size = 0;         // of the first: the sum of its absolute weights
};

/// Counts the vertices whose degree cannot be inverted, for all normalizations at once.
class OperatorCheck {
 public:
  explicit OperatorCheck(SelfLoops self_loops) : self_loops_(self_loops) {}

  /// A vertex by its original id.
  void add(std::int64_t id, RowWeights const& weights);
  /// Sums over ranks, which have added disjoint vertices. Collective.
  void finish(runtime::Communicator const& comm);

  [[nodiscard]] UnfitVertices const& unfit(Normalization normalization, Precision precision,
                                           Neighborhood neighbors = Neighborhood::whole) const {
    return unfit_[place_of(normalization, precision, neighbors)];
  }
  /// The largest sum of absolute weights of a row, without self loops.
  [[nodiscard]] double largest_size() const { return largest_size_; }

  /// "--normalize sym needs .., and those of 2 of 8 vertices are not, first vertex 3 with -2"; empty if all degrees fit.
  [[nodiscard]] std::string describe(Normalization normalization, Precision precision,
                                     std::int64_t num_vertices) const;
  /// Which operators can be made of the graph, for messages. `names_normalizations`: those of other normalizations, too.
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
  std::array<UnfitVertices, num_conditions + 1> unfit_{}; // the last one: of no condition
  double largest_size_ = 0;
};

/// How the operator of a store is to be used.
struct OperatorUse {
  Precision precision = Precision::fp32;
  Neighborhood neighbors = Neighborhood::whole;
  bool is_of_model = false; // --normalize cannot be another one
};

/// A warning that the store's operator has no entry off its diagonal that counts; empty if it has. `largest_size`: as of
/// OperatorCheck, of a graph with weights.
[[nodiscard]] std::string describe_effect(StoreFacts const& facts, std::string const& name,
                                          double largest_size, Precision precision);

struct OperatorFindings {
  std::string refusal; // why there is no such operator; empty if there is
  std::string warning; // that it does nothing; empty if it does something
};

/// Checks the operator that the store has been given (GraphStore::set_operator), the same on all ranks. Reads degrees or
/// sums of weights, and the whole matrix if it has negative weights. Collective; throws as the store does.
[[nodiscard]] OperatorFindings check_operator(runtime::Communicator const& comm, GraphStore const& store,
                                              OperatorUse const& use);

} // namespace orthant::graph
