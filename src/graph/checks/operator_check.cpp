// SPDX-License-Identifier: Apache-2.0
#include "graph/checks/operator_check.hpp"

#include "graph/store/distribution.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace orthant::graph {
namespace {

constexpr std::array both_normalizations{Normalization::symmetric, Normalization::row};
constexpr std::array both_precisions{Precision::fp32, Precision::fp64};
constexpr std::array both_neighborhoods{Neighborhood::whole, Neighborhood::within_batch};

/// Smallest normal number, and largest number.
struct Limits {
  double least;
  double most;
};

template<class T>
constexpr Limits limits_of_type{std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};

Limits limits_of(Precision precision) {
  return precision == Precision::fp32 ? limits_of_type<float> : limits_of_type<double>;
}

/// The largest absolute sum of n numbers with exact sum zero after each is rounded to a float. `size` is the sum of their absolute values.
double rounding_of(double size) {
  return size * std::numeric_limits<float>::epsilon();
}

enum class Sign : std::uint8_t { positive, any };

/// `size` is the sum of the absolute values of the weights.
bool is_fit(double degree, double size, Sign sign, Normalization normalization, Limits const& limits) {
  if (!(size <= limits.most)) return false;
  if (!((sign == Sign::any ? std::abs(degree) : degree) > rounding_of(size))) return false;
  auto const factor = 1 / (normalization == Normalization::row ? std::abs(degree) : std::sqrt(degree));
  return factor >= limits.least && factor <= limits.most;
}

std::string reason_of(UnfitVertices const& unfit, Limits const& limits) {
  auto const degree = fmt::format("{:g}", unfit.degree);
  if (unfit.size > limits.most) return fmt::format("{:g}, which overflows", unfit.size);
  if (unfit.degree == 0) return degree;
  if (std::abs(unfit.degree) <= rounding_of(unfit.size)) return degree + ", zero up to rounding";
  return unfit.degree < 0 ? degree : degree + ", whose inverse overflows or is subnormal";
}

std::string_view name_of(Precision precision) {
  return precision == Precision::fp32 ? "fp32" : "fp64";
}

} // namespace

void RowWeights::add(float weight) {
  auto const value = static_cast<double>(weight);
  sum += value;
  if (value < 0) negative -= value;
  if (value != 0) least = std::min(least, std::abs(value));
}

void OperatorCheck::add(std::int64_t id, RowWeights const& weights) {
  double const loop = self_loops_ == SelfLoops::added ? 1 : 0;
  largest_size_ = std::max(largest_size_, weights.sum + 2 * weights.negative);
  if (loop == 0 && !weights.has_entries) return; // isolated
  struct Degree {
    double value;
    double size;
  };
  Degree const whole{loop + weights.sum, loop + weights.sum + 2 * weights.negative};
  // Over all subsets of the neighbors, the smallest sum is that of all negative weights or, if there are none, a single weight.
  auto const is_mixed = weights.negative > 0 || loop > 0;
  Degree const within_batch{is_mixed ? loop - weights.negative : weights.least,
                            is_mixed ? loop + weights.negative : weights.least};
  for (auto const normalization : both_normalizations)
    for (auto const precision : both_precisions)
      for (auto const neighbors : both_neighborhoods) {
        auto const is_whole = neighbors == Neighborhood::whole;
        auto const& [degree, size] = is_whole ? whole : within_batch;
        if (!is_whole && std::isinf(degree)) continue; // all weights are zero
        auto const sign = is_whole && normalization == Normalization::row ? Sign::any : Sign::positive;
        if (is_fit(degree, size, sign, normalization, limits_of(precision))) continue;
        auto& unfit = unfit_[place_of(normalization, precision, neighbors)];
        if (unfit.count++ == 0 || id < unfit.first) unfit = {unfit.count, id, degree, size};
      }
}

void OperatorCheck::finish(runtime::Communicator const& comm) {
  largest_size_ = runtime::all_reduced(comm, largest_size_, runtime::Reduction::max);
  for (auto& unfit : unfit_) {
    constexpr auto none = std::numeric_limits<std::int64_t>::max();
    auto const total = runtime::all_reduced(comm, unfit.count);
    auto const first =
        runtime::all_reduced(comm, unfit.count > 0 ? unfit.first : none, runtime::Reduction::min);
    auto const is_mine = unfit.count > 0 && unfit.first == first;
    std::array numbers{is_mine ? unfit.degree : 0, is_mine ? unfit.size : 0};
    runtime::all_reduce(runtime::host, comm, std::span(numbers));
    unfit = {total, total > 0 ? first : -1, numbers[0], numbers[1]};
  }
}

std::string OperatorCheck::describe(Normalization normalization, Precision precision,
                                    std::int64_t num_vertices) const {
  auto const& found = unfit(normalization, precision);
  if (found.count == 0) return {};
  return fmt::format(
      "--normalize {} needs {} in {}, and those of {} of {} vertices are not, first vertex {} with {}",
      graph::name_of(normalization),
      normalization == Normalization::symmetric ? "degrees that are positive and finite"
                                                : "sums of rows that are finite and not zero",
      name_of(precision), found.count, num_vertices, found.first, reason_of(found, limits_of(precision)));
}

std::string OperatorCheck::what_fits(Normalization normalization, Precision precision,
                                     bool names_normalizations) const {
  std::vector<std::string> fits;
  if (names_normalizations) {
    for (auto const other : both_normalizations)
      if (unfit(other, precision).count == 0)
        fits.push_back(fmt::format("--normalize {}", graph::name_of(other)));
    fits.emplace_back("--normalize none");
  }
  if (precision == Precision::fp32 && unfit(normalization, Precision::fp64).count == 0)
    fits.emplace_back("double precision (--compute-dtype fp64)");
  fits.emplace_back("a store without weights (partition --weights ignore)");
  return fmt::format("alternatives: {}", fmt::join(fits, ", "));
}

namespace {

/// The weights of rows of A[p1, .] in one tile row: their sums, which the store has, and the other fields if needed.
std::vector<RowWeights> read_row_weights(GraphStore const& store, Range rows, TileGrid const& grid,
                                         bool reads_entries) {
  std::vector<RowWeights> all(static_cast<std::size_t>(rows.size()));
  if (reads_entries)
    for (std::int64_t j = 0; j < grid.columns.num_parts; ++j) {
      auto const block = store.read_block(Parity::even, rows, grid.columns.range(j), SelfLoops::dropped);
      for (std::size_t row = 0; row < all.size(); ++row)
        for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
          all[row].add(block.values[static_cast<std::size_t>(k)]);
    }
  auto const sums = store.read_weight_sums(Order::p1, rows);
  auto const degrees = store.read_degrees(Order::p1, rows);
  for (std::size_t row = 0; row < all.size(); ++row) {
    all[row].sum = sums[row];
    all[row].has_entries = degrees[row] > 0;
  }
  return all;
}

OperatorCheck check_weights(runtime::Communicator const& comm, GraphStore const& store,
                            OperatorUse const& use) {
  auto const& facts = store.facts();
  OperatorCheck check(facts.graph_operator().self_loops);
  // If no self loop is included, a sum over a subset of the neighbors may be as small as a single weight.
  auto const reads_entries = facts.num_negative_weights.value_or(1) > 0 ||
                             (use.neighbors == Neighborhood::within_batch && !facts.adds_self_loops());
  auto const grid = tile_grid_of_topology(facts.num_vertices, facts.num_entries);
  auto const tile_rows = tile_rows_of_rank(grid.rows.num_parts, comm.size(), comm.rank());
  runtime::together(comm, [&] {
    for (auto i = tile_rows.begin; i < tile_rows.end; ++i) {
      auto const rows = grid.rows.range(i);
      auto const ids = store.read_original_ids(Order::p1, rows);
      auto const weights = read_row_weights(store, rows, grid, reads_entries);
      for (std::size_t row = 0; row < ids.size(); ++row)
        check.add(ids[row], weights[row]);
    }
  });
  check.finish(comm);
  return check;
}

std::string refusal_of(OperatorCheck const& check, GraphStore const& store, OperatorUse const& use) {
  auto const& facts = store.facts();
  auto const normalization = facts.normalization;
  if (auto const wrong = check.describe(normalization, use.precision, facts.num_vertices); !wrong.empty())
    return fmt::format("{}: {}; {}", store.name(), wrong,
                       check.what_fits(normalization, use.precision, !use.is_of_model));
  if (use.neighbors == Neighborhood::whole) return {};
  auto const& unfit = check.unfit(normalization, use.precision, Neighborhood::within_batch);
  if (unfit.count == 0) return {};
  return fmt::format(
      "{}: --batch-edges renormalize sums weights over the neighbors in a batch, and may find a sum for {} "
      "of {} "
      "vertices that is not positive and finite in {}, first vertex {} with {}; give --batch-edges rescale",
      store.name(), unfit.count, facts.num_vertices, name_of(use.precision), unfit.first,
      reason_of(unfit, limits_of(use.precision)));
}

/// Warns about columns of a directed graph, because degrees are sums of rows.
std::string warning_of_columns(runtime::Communicator const& comm, GraphStore const& store) {
  auto const& facts = store.facts();
  auto const mine = runtime::balanced_range(facts.num_vertices, comm.size(), comm.rank());
  auto const degrees = runtime::together(comm, [&] { return store.read_degrees(Order::p1, mine); });
  auto const count = runtime::all_reduced(comm, static_cast<std::int64_t>(std::ranges::count(degrees, 0)));
  if (count == 0) return {};
  return fmt::format(
      "{} of the {} vertices of {} have no incoming edge, and so a degree of 0: --normalize sym leaves out "
      "their outgoing ones; --self-loops add keeps them",
      count, facts.num_vertices, store.name());
}

} // namespace

std::string describe_effect(StoreFacts const& facts, std::string const& name, double largest_size,
                            Precision precision) {
  auto const self_loops = facts.graph_operator().self_loops;
  auto const num_edges = facts.num_entries - facts.num_self_loops;
  auto const epsilon = precision == Precision::fp32 ? double{std::numeric_limits<float>::epsilon()}
                                                    : std::numeric_limits<double>::epsilon();
  auto const lost = self_loops == SelfLoops::added ? epsilon / 2 : 0; // rounding of a self loop of 1
  if (num_edges > 0 && !(facts.is_weighted && largest_size <= lost)) return {};
  auto text = fmt::format("the operator of {} is {}: ", name,
                          self_loops == SelfLoops::added                                  ? "the identity"
                          : self_loops == SelfLoops::as_given && facts.num_self_loops > 0 ? "diagonal"
                                                                                          : "zero");
  if (num_edges == 0)
    text += fmt::format("no edge is between two of its {} vertices", facts.num_vertices);
  else if (largest_size == 0)
    text += fmt::format("the weights of all {} entries between two of its {} vertices are 0", num_edges,
                        facts.num_vertices);
  else
    text += fmt::format(
        "the weights of all {} entries between two of its {} vertices, {:g} in a row at most, are lost in {} "
        "beside self loops of 1",
        num_edges, facts.num_vertices, largest_size, name_of(precision));
  return text + "; no vertex learns from another one";
}

OperatorFindings check_operator(runtime::Communicator const& comm, GraphStore const& store,
                                OperatorUse const& use) {
  auto const& facts = store.facts();
  OperatorFindings findings;
  double largest_size = 0;
  if (facts.is_weighted) {
    auto const check = check_weights(comm, store, use);
    largest_size = check.largest_size();
    findings.refusal = refusal_of(check, store, use);
  }
  findings.warning = describe_effect(facts, store.name(), largest_size, use.precision);
  auto const drops_columns =
      !facts.is_symmetric && facts.normalization == Normalization::symmetric && !facts.adds_self_loops();
  if (drops_columns && findings.warning.empty()) findings.warning = warning_of_columns(comm, store);
  return findings;
}

} // namespace orthant::graph
