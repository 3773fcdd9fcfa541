#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What link prediction from a network's outputs H does on one rank, listed without arrays. Rows have one owner (schedule rows). With
// the blocks of A (pmm/aggregate/cells.hpp), whose ranks along b have parts of the columns of H each:
//
//   X_c := rows(H)      Y_a := columns(H)                  exchange over b, gather over a and over c       (pmm/edges/block_rows.hpp)
//   z_e := sum_b <X_i, Y_j>                                for the links e = (i, j) of the block
//   loss := sum_{a,c} of binary cross-entropy              dz_e
//   dH := rows^T(sum_e dz_e Y_j) + columns^T(sum_e dz_e X_i)
//
// So what is sent for rows does not grow with the links: as much as for two aggregations of H. For scores a rank sends 2 (G_b - 1) /
// G_b numbers per link of its block, and K times as many if a perceptron with a hidden layer of K scores them (link_decoder.hpp).

#include "graph/store/store_format.hpp"
#include "pmm/edges/block_rows.hpp"

#include <array>
#include <optional>
#include <utility>

namespace orthant::models {

/// A perceptron that scores links in place of dot products (link_decoder.hpp).
struct DecoderShape {
  std::int64_t hidden_width = 0;
  bool has_bias = true;
};

/// Where H lies, and the rows and columns of a rank's block.
struct LinkPlan {
  pmm::Roles roles;
  pmm::CellSizes cells;
  std::int64_t width = 0; // of H
  std::optional<DecoderShape> decoder{};

  [[nodiscard]] pmm::BlockRowsPlan of(pmm::BlockSide side) const {
    return {roles, cells, side, {width, 1}, width, 0};
  }
  [[nodiscard]] pmm::AxisSet block_axes() const { return {roles.a, roles.c}; }
};

/// For outputs of that placement.
[[nodiscard]] LinkPlan make_link_plan(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                      pmm::Roles const& roles, pmm::Placement const& outputs);

/// The order of the lists that evaluations judge.
inline constexpr std::size_t num_held_out_lists = 4;
inline constexpr std::array<std::pair<graph::Split, graph::LinkKind>, num_held_out_lists> held_out_lists{
    {{graph::Split::valid, graph::LinkKind::positive},
     {graph::Split::valid, graph::LinkKind::negative},
     {graph::Split::test, graph::LinkKind::positive},
     {graph::Split::test, graph::LinkKind::negative}}};

/// Links of one block.
struct LinkCounts {
  std::int64_t positives = 0, negatives = 0; // of an epoch
  std::array<std::int64_t, num_held_out_lists> held_out{};
  std::int64_t entries = 0; // of A

  [[nodiscard]] std::int64_t num_held_out() const {
    return held_out[0] + held_out[1] + held_out[2] + held_out[3];
  }
};

/// Those of a grid of that shape if links fall evenly on blocks.
[[nodiscard]] LinkCounts mean_link_counts(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                          LinkPlan const& plan);

/// Lists LinkLoss::loss_and_gradient(), and what LinkLoss::evaluate() does with rows and scores.
void plan_link_loss(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts);
void plan_link_scores(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts);
/// Lists the arrays of a LinkLoss, those of the host included.
void plan_link_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, LinkPlan const& plan,
                      LinkCounts const& counts);

// What a perceptron that scores links does on one rank, listed without arrays; link_decoder.hpp has the equations. Links of a list
// are taken a piece at a time.

/// Links of a piece, but for the last one: as many as the block has rows and columns, so that a piece's arrays are not larger than
/// the rows that links are made of, and not more than there are edges; but at least 4,096, even if there are fewer edges.
[[nodiscard]] std::int64_t links_at_once(LinkPlan const& plan, std::int64_t num_positives);

/// Lists the scores of a list of that many links, in pieces; with the gradients, if `differentiates`.
void plan_decoded_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives,
                        std::int64_t num_links, bool differentiates);
/// Lists its arrays.
void plan_decoder_arrays(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives);

} // namespace orthant::models
