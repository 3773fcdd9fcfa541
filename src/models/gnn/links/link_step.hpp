#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What link prediction from a network's outputs H does on one rank, listed without arrays. Rows have one owner (schedule rows). With
// the blocks of A (pmm/aggregate/cells.hpp), whose ranks along b have parts of the columns of H each:
//
//   X_c := rows(H)      Y_a := columns(H)                  exchange over b, gather over a and over c       (pmm/edges/edge_block.hpp)
//   z_e := sum_b <X_i, Y_j>                                for the links e = (i, j) of the block
//   loss := sum_{a,c} of binary cross-entropy              dz_e
//   dH := rows^T(sum_e dz_e Y_j) + columns^T(sum_e dz_e X_i)
//
// So what is sent for rows does not grow with the links: as much as for two aggregations of H. For scores a rank sends 2 (G_b - 1) /
// G_b numbers per link of its block, and K times as many if a perceptron with a hidden layer of K scores them (link_decoder.hpp).

#include "graph/store/listed_block.hpp"
#include "graph/store/store_format.hpp"
#include "graph/store/store_reader.hpp"
#include "pmm/edges/edge_block.hpp"
#include "runtime/comm/collectives.hpp"
#include "sampling/key_table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace orthant::models {

// The links of a rank's block, on the host: pairs (row, column) of places in its lists of rows and columns (pmm/aggregate/cells.hpp).
// Every link has one block: that of its first end's row and its second end's column, and the ranks along b share it.

/// By row, as CSR without values.
struct LinkLists {
  std::vector<runtime::Offset> offsets{0};   // [rows + 1]
  std::vector<runtime::LocalColumn> columns; // [links]

  [[nodiscard]] std::int64_t size() const { return std::ssize(columns); }
};

/// The links among the entries of a block of A: of A[u,v] and A[v,u] the one that link_between() names, and no self loop.
[[nodiscard]] LinkLists training_links(graph::CsrBlock const& block, std::span<std::int64_t const> row_ids,
                                       std::span<std::int64_t const> column_ids);

/// Those of the store's links whose ends are in these lists. Reads all of them, some at a time. Not collective; throws as the store
/// does.
[[nodiscard]] LinkLists held_out_links(graph::GraphStore const& store, graph::Split part,
                                       graph::LinkKind kind, graph::Ranges const& rows,
                                       graph::Ranges const& columns);

/// Original ids of these positions of order p1, range after range. Not collective; throws as the store does.
[[nodiscard]] std::vector<std::int64_t> ids_of(graph::GraphStore const& store, graph::Ranges const& ranges);

// The negatives that an epoch trains on, drawn without a message. There is one for each of the E edges, and number k of them is
//
//   u := pi(k mod N)          pi: a keyed bijection of the N vertices, so first ends are spread evenly over all vertices
//   w := uniform over the others, keyed by k
//
// keyed by (seed, epoch), in original ids: so they depend neither on the grid nor on the order of the vertices. Row u of a block
// asks the inverse of pi which numbers are its own, and keeps those whose w is one of the block's columns. A pair that is an edge
// of A counts nothing: the block that would have it has that entry of A, too.

class NegativeLinks {
 public:
  /// For this block of A, of rows and columns with these original ids, in a graph of `num_vertices` and `num_edges`.
  NegativeLinks(graph::CsrBlock block, std::vector<std::int64_t> row_ids,
                std::span<std::int64_t const> column_ids, std::int64_t num_vertices, std::int64_t num_edges,
                std::uint64_t seed);

  /// This block's, valid until the next call. Cost: a hash for each of the rows' negatives, about E / (ranks along c). Not
  /// collective.
  [[nodiscard]] LinkLists const& draw(std::uint64_t epoch);

  /// How many of them a block has on average, and a number that hardly any block and epoch exceeds.
  [[nodiscard]] static std::int64_t mean_count(std::int64_t num_rows, std::int64_t num_columns,
                                               std::int64_t num_vertices, std::int64_t num_edges);
  [[nodiscard]] static std::int64_t capacity(std::int64_t mean_count);
  /// Bytes held beside the lists, for blocks of these sizes.
  [[nodiscard]] static std::int64_t num_bytes(std::int64_t num_rows, std::int64_t num_columns,
                                              std::int64_t num_entries, std::int64_t num_vertices);

 private:
  [[nodiscard]] bool is_edge(std::size_t row, std::int32_t column) const;

  graph::CsrBlock block_; // columns ascend within a row
  std::vector<std::int64_t> row_ids_;
  sampling::KeyTable columns_;
  std::uint64_t num_vertices_;
  std::uint64_t num_edges_;
  std::uint64_t seed_;
  LinkLists drawn_;
};

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
