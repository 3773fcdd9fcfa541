#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The operations of link prediction on one rank, from a network's outputs H. They are listed without allocating arrays. The schedule is
// `rows`, so each row has one owner; links belong to the blocks of A (pmm/aggregate/cells.hpp), and ranks along b divide the columns of H:
//
//   X_c := rows(H)      Y_a := columns(H)                  exchange over b, gather over a and over c       (pmm/edges/edge_block.hpp)
//   z_e := sum_b <X_i, Y_j>                                for the links e = (i, j) of the block
//   loss := sum_{a,c} of binary cross-entropy              dz_e
//   dH := rows^T(sum_e dz_e Y_j) + columns^T(sum_e dz_e X_i)
//
// The communication of rows does not grow with the number of links: it is that of two aggregations of H. For scores a rank
// sends 2 (G_b - 1) / G_b numbers per link of its block, or K times as many if a perceptron with a hidden layer of K numbers
// scores links (link_decoder.hpp).

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

// Links of a rank's block, on the host: pairs (row, column) of positions in its lists of rows and columns
// (pmm/aggregate/cells.hpp). Each link belongs to one block, given by the row of its first end and the column of its second end.
// Ranks along b share the block.

/// Links by row, as CSR without values.
struct LinkLists {
  std::vector<runtime::Offset> offsets{0};   // [rows + 1]
  std::vector<runtime::LocalColumn> columns; // [links]

  [[nodiscard]] std::int64_t size() const { return std::ssize(columns); }
};

/// Links among the entries of a block of A, without self loops. Only one of A[u,v] and A[v,u] counts, selected by link_between().
[[nodiscard]] LinkLists training_links(graph::CsrBlock const& block, std::span<std::int64_t const> row_ids,
                                       std::span<std::int64_t const> column_ids);

/// The store's links of this part and kind with both ends in these ranges. Reads the links of all ranges, in pieces. Not collective. Throws
/// UserError if the store cannot be read.
[[nodiscard]] LinkLists held_out_links(graph::GraphStore const& store, graph::Split part,
                                       graph::LinkKind kind, graph::Ranges const& rows,
                                       graph::Ranges const& columns);

/// Original ids of the vertices at these positions of order p1, one range after the other. Not collective. Throws UserError if the store
/// cannot be read.
[[nodiscard]] std::vector<std::int64_t> ids_of(graph::GraphStore const& store, graph::Ranges const& ranges);

// Negatives of an epoch, drawn without communication. There is one per edge. Negative k is the pair (u, w):
//
//   u := pi(k mod N)          pi: a keyed bijection of the N vertices, so first ends are spread evenly over all vertices
//   w := uniform over the others, keyed by k
//
// Both are keyed by (seed, epoch) and use original ids, so they do not depend on the grid or the order of the vertices. For each
// row u, a block computes by the inverse of pi which k belong to u, and keeps those whose w is one of its columns. A pair that is
// an edge of A does not count; the block of such a pair also has the entry of A, so no message is needed to detect it.

class NegativeLinks {
 public:
  /// Negatives for this block of A, whose rows and columns have these original ids, in a graph with `num_vertices` and `num_edges`.
  NegativeLinks(graph::CsrBlock block, std::vector<std::int64_t> row_ids,
                std::span<std::int64_t const> column_ids, std::int64_t num_vertices, std::int64_t num_edges,
                std::uint64_t seed);

  /// Negatives of this block, valid until the next call. Cost: one hash per negative of its rows, about E / (ranks
  /// along c). Not collective.
  [[nodiscard]] LinkLists const& draw(std::uint64_t epoch);

  /// Mean number of negatives of a block, and a capacity that is hardly ever exceeded.
  [[nodiscard]] static std::int64_t mean_count(std::int64_t num_rows, std::int64_t num_columns,
                                               std::int64_t num_vertices, std::int64_t num_edges);
  [[nodiscard]] static std::int64_t capacity(std::int64_t mean_count);
  /// Bytes of a NegativeLinks besides its lists, for blocks of these sizes.
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

/// Shape of a perceptron that scores links instead of dot products (link_decoder.hpp).
struct DecoderShape {
  std::int64_t hidden_width = 0;
  bool has_bias = true;
};

/// Layout of H, and the rows and columns of a rank's block.
struct LinkPlan {
  pmm::Roles roles;
  pmm::CellSizes cells;
  std::int64_t width = 0; // columns of H
  std::optional<DecoderShape> decoder{};

  [[nodiscard]] pmm::BlockRowsPlan of(pmm::BlockSide side) const {
    return {roles, cells, side, {width, 1}, width, 0};
  }
  [[nodiscard]] pmm::AxisSet block_axes() const { return {roles.a, roles.c}; }
};

/// Plan for outputs with this placement.
[[nodiscard]] LinkPlan make_link_plan(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                                      pmm::Roles const& roles, pmm::Placement const& outputs);

/// Order of the lists that evaluations use.
inline constexpr std::size_t num_held_out_lists = 4;
inline constexpr std::array<std::pair<graph::Split, graph::LinkKind>, num_held_out_lists> held_out_lists{
    {{graph::Split::valid, graph::LinkKind::positive},
     {graph::Split::valid, graph::LinkKind::negative},
     {graph::Split::test, graph::LinkKind::positive},
     {graph::Split::test, graph::LinkKind::negative}}};

/// Numbers of links in one block.
struct LinkCounts {
  std::int64_t positives = 0, negatives = 0; // per epoch
  std::array<std::int64_t, num_held_out_lists> held_out{};
  std::int64_t entries = 0; // entries of A in the block

  [[nodiscard]] std::int64_t num_held_out() const {
    return held_out[0] + held_out[1] + held_out[2] + held_out[3];
  }
};

/// Counts for a grid of this shape if links are spread evenly over blocks.
[[nodiscard]] LinkCounts mean_link_counts(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                                          LinkPlan const& plan);

/// List LinkLoss::loss_and_gradient(), and the moves of rows and the scores of LinkLoss::evaluate().
void plan_link_loss(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts);
void plan_link_scores(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts);
/// Lists the arrays of a LinkLoss, including arrays on the host.
void plan_link_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, LinkPlan const& plan,
                      LinkCounts const& counts);

// The operations of the perceptron that scores links, on one rank (equations: link_decoder.hpp). The links of a list are processed in
// pieces.

/// Number of links per piece, except the last one: as many as the block has rows and columns, so that a piece's arrays are not
/// larger than the rows of H; at most the number of edges, but at least 4,096.
[[nodiscard]] std::int64_t links_at_once(LinkPlan const& plan, std::int64_t num_positives);

/// Lists the scoring of `num_links` links in pieces; with their gradients if `differentiates`.
void plan_decoded_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives,
                        std::int64_t num_links, bool differentiates);
/// Lists the arrays of the decoder.
void plan_decoder_arrays(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives);

} // namespace orthant::models
