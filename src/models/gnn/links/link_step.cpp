// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/links/link_step.hpp"

#include "graph/partition/link_sets.hpp"
#include "pmm/edges/edge_products.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace orthant::models {

LinkLists training_links(graph::CsrBlock const& block, std::span<std::int64_t const> row_ids,
                         std::span<std::int64_t const> column_ids) {
  LinkLists links;
  for (std::size_t row = 0; row < row_ids.size(); ++row) {
    for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k) {
      auto const column = block.columns[static_cast<std::size_t>(k)];
      auto const [u, v] = std::pair(row_ids[row], column_ids[static_cast<std::size_t>(column)]);
      if (u != v && graph::link_between(u, v).source == u) links.columns.push_back(column);
    }
    links.offsets.push_back(links.size());
  }
  return links;
}

LinkLists held_out_links(graph::GraphStore const& store, graph::Split part, graph::LinkKind kind,
                         graph::Ranges const& rows, graph::Ranges const& columns) {
  constexpr std::int64_t at_once = std::int64_t{1} << 18;
  graph::ListPlaces const row_of(rows), column_of(columns);
  auto const count = store.facts().num_held_out[static_cast<std::size_t>(part)];
  std::vector<std::pair<std::int64_t, std::int64_t>> mine;
  for (std::int64_t begin = 0; begin < count; begin += at_once)
    for (auto const& link : store.read_links(part, kind, {begin, std::min(count, begin + at_once)}))
      if (auto const row = row_of(link.source); row >= 0)
        if (auto const column = column_of(link.target); column >= 0) mine.emplace_back(row, column);
  std::ranges::sort(mine);
  LinkLists links;
  auto next = mine.begin();
  for (std::int64_t row = 0; row < graph::total_size(rows); ++row) {
    for (; next != mine.end() && next->first == row; ++next)
      links.columns.push_back(static_cast<runtime::LocalColumn>(next->second));
    links.offsets.push_back(links.size());
  }
  return links;
}

std::vector<std::int64_t> ids_of(graph::GraphStore const& store, graph::Ranges const& ranges) {
  std::vector<std::int64_t> all;
  for (auto const& range : ranges) {
    auto const ids = store.read_original_ids(graph::Order::p1, range);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

namespace {

// Random streams of Purpose::negative_links. Number 0, with step 0, is used for the negatives of a store.
constexpr std::uint32_t first_ends = 1, second_ends = 2;

sampling::PackedIds packed(std::span<std::int64_t const> ids, std::int64_t limit) {
  sampling::PackedIds result(limit, std::ssize(ids));
  for (std::size_t i = 0; i < ids.size(); ++i)
    result.set(i, ids[i]);
  return result;
}

void sort_rows(graph::CsrBlock& block) {
  for (std::size_t row = 0; row + 1 < block.row_offsets.size(); ++row)
    std::sort(block.columns.begin() + block.row_offsets[row],
              block.columns.begin() + block.row_offsets[row + 1]);
}

} // namespace

NegativeLinks::NegativeLinks(graph::CsrBlock block, std::vector<std::int64_t> row_ids,
                             std::span<std::int64_t const> column_ids, std::int64_t num_vertices,
                             std::int64_t num_edges, std::uint64_t seed)
    : block_(std::move(block)),
      row_ids_(std::move(row_ids)),
      columns_(packed(column_ids, num_vertices)),
      num_vertices_(static_cast<std::uint64_t>(num_vertices)),
      num_edges_(static_cast<std::uint64_t>(num_edges)),
      seed_(seed) {
  block_.values = {};
  sort_rows(block_);
}

LinkLists const& NegativeLinks::draw(std::uint64_t epoch) {
  using runtime::Purpose;
  using runtime::RandomStream;
  runtime::KeyedBijection const order(num_vertices_,
                                      RandomStream(seed_, Purpose::negative_links, epoch, first_ends).key());
  RandomStream const stream(seed_, Purpose::negative_links, epoch, second_ends);
  drawn_.offsets.assign(1, 0);
  drawn_.columns.clear();
  for (std::size_t row = 0; row < row_ids_.size(); ++row) {
    auto const u = static_cast<std::uint64_t>(row_ids_[row]);
    for (auto k = order.inverse(u); k < num_edges_; k += num_vertices_) {
      auto w = stream.integer(num_vertices_ - 1, k);
      if (w >= u) ++w; // skips u
      auto const column = columns_.find(static_cast<std::int64_t>(w));
      if (column >= 0 && !is_edge(row, column)) drawn_.columns.push_back(column);
    }
    drawn_.offsets.push_back(drawn_.size());
  }
  return drawn_;
}

bool NegativeLinks::is_edge(std::size_t row, std::int32_t column) const {
  return std::binary_search(block_.columns.begin() + block_.row_offsets[row],
                            block_.columns.begin() + block_.row_offsets[row + 1], column);
}

std::int64_t NegativeLinks::mean_count(std::int64_t num_rows, std::int64_t num_columns,
                                       std::int64_t num_vertices, std::int64_t num_edges) {
  auto const share_of = [&](std::int64_t part) {
    return static_cast<double>(part) / static_cast<double>(num_vertices);
  };
  return static_cast<std::int64_t>(static_cast<double>(num_edges) * share_of(num_rows) *
                                   share_of(num_columns));
}

std::int64_t NegativeLinks::capacity(std::int64_t mean_count) {
  constexpr double deviations = 6;
  return mean_count + static_cast<std::int64_t>(deviations * std::sqrt(static_cast<double>(mean_count))) + 16;
}

std::int64_t NegativeLinks::num_bytes(std::int64_t num_rows, std::int64_t num_columns,
                                      std::int64_t num_entries, std::int64_t num_vertices) {
  constexpr auto id_bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
  auto const of_block =
      (num_rows + 1) * id_bytes + num_entries * static_cast<std::int64_t>(sizeof(std::int32_t));
  return of_block + num_rows * id_bytes + sampling::KeyTable::bytes(num_vertices, num_columns);
}

namespace {

/// Lists a dense product whose operand is [m x k], or [k x m] for a right_grad.
void plan_dense_product(pmm::StepPlan& step, std::string formula, pmm::Form form, std::int64_t m,
                        std::int64_t n, std::int64_t k) {
  pmm::LocalProduct product;
  product.formula = std::move(formula);
  product.form = form;
  product.m = m;
  product.n = n;
  product.k = k;
  step.add_product(std::move(product));
}

std::int64_t width_of_part(pmm::StepPlan const& step, LinkPlan const& plan) {
  return pmm::BlockRowsSteps(step.shape(), step.coordinates(), plan.of(pmm::BlockSide::rows)).part.columns();
}

} // namespace

std::int64_t links_at_once(LinkPlan const& plan, std::int64_t num_positives) {
  constexpr std::int64_t fewest = 4096; // fewer links do not use products and messages efficiently
  return std::max(fewest, std::min(plan.cells.num_rows() + plan.cells.num_columns(), num_positives));
}

void plan_decoded_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives,
                        std::int64_t num_links, bool differentiates) {
  auto const [hidden, has_bias] = plan.decoder.value();
  auto const width = width_of_part(step, plan);
  auto const at_once = links_at_once(plan, num_positives);
  auto const is_first = step.coordinates().along(plan.roles.b) == 0;
  for (std::int64_t begin = 0; begin < num_links; begin += at_once) {
    auto const n = std::min(at_once, num_links - begin);
    pmm::plan_multiply_pairs(step, n, width);
    plan_dense_product(step, "Z = G W1", pmm::Form::product, n, hidden, width);
    step.add_call(runtime::Operation::all_reduce, plan.roles.b, step.scalar_bytes(n * hidden));
    pmm::plan_score_hidden(step, n, hidden);
    if (!differentiates) continue;
    pmm::plan_differentiate_hidden(step, n, hidden);
    if (is_first) {
      plan_dense_product(step, "dw2 = R^T s", pmm::Form::right_grad, 1, hidden, n);
      if (has_bias) plan_dense_product(step, "db1 = dZ^T 1", pmm::Form::right_grad, 1, hidden, n);
      if (has_bias) plan_dense_product(step, "db2 = s^T 1", pmm::Form::right_grad, 1, 1, n);
    }
    plan_dense_product(step, "dW1 = G^T dZ", pmm::Form::right_grad, width, hidden, n);
    plan_dense_product(step, "dG = dZ W1^T", pmm::Form::left_grad, n, width, hidden);
    pmm::plan_add_pair_gradients(step, n, plan.cells.num_rows(), width, false);
    pmm::plan_add_pair_gradients(step, n, plan.cells.num_columns(), width, true);
  }
}

void plan_decoder_arrays(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_positives) {
  auto const n = links_at_once(plan, num_positives);
  auto const hidden = plan.decoder.value().hidden_width;
  for (auto const& [label, count] :
       {std::pair("orthant::models::link_products", n * width_of_part(step, plan)),
        {"orthant::models::link_hidden", n * hidden},
        {"orthant::models::link_hidden_gradient", n * hidden},
        {"orthant::models::link_slopes", n},
        {"orthant::models::link_ones", n}})
    step.add_array(label, step.scalar_bytes(count));
}

namespace {

using pmm::BlockSide;

pmm::BlockRowsSteps steps_of(pmm::StepPlan const& step, LinkPlan const& plan, BlockSide side) {
  return {step.shape(), step.coordinates(), plan.of(side)};
}

void plan_product_of_links(pmm::StepPlan& step, LinkPlan const& plan, char const* formula, pmm::Form form,
                           std::int64_t num_links) {
  plan_edge_product(step, formula, form, {plan.cells.num_rows(), plan.cells.num_columns(), num_links},
                    steps_of(step, plan, BlockSide::rows).part.columns());
}

void plan_bring_ends(pmm::StepPlan& step, LinkPlan const& plan) {
  plan_bring(step, plan.of(BlockSide::rows));
  plan_bring(step, plan.of(BlockSide::columns));
}

/// Lists the moves of rows to the block, and the scores of `num_links` links by dot products.
void plan_scoring(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_links) {
  plan_bring_ends(step, plan);
  plan_product_of_links(step, plan, "z = X Y^T", pmm::Form::product, num_links);
  if (num_links > 0)
    step.add_call(runtime::Operation::all_reduce, plan.roles.b, step.scalar_bytes(num_links));
}

void plan_loss_of_links(pmm::StepPlan& step, LinkPlan const& plan, std::int64_t num_links) {
  pmm::plan_pair_loss(step, num_links);
  step.add_call(runtime::Operation::all_reduce, plan.block_axes(), static_cast<std::int64_t>(sizeof(double)));
}

} // namespace

LinkPlan make_link_plan(pmm::GridShape const& shape, pmm::Coordinates const& coordinates,
                        pmm::Roles const& roles, pmm::Placement const& outputs) {
  return {roles, pmm::contiguous_cells(shape, coordinates, roles, outputs.extents.rows),
          outputs.extents.columns};
}

LinkCounts mean_link_counts(pmm::GridShape const& shape, graph::StoreFacts const& facts,
                            LinkPlan const& plan) {
  auto const num_blocks = shape.size(plan.block_axes());
  auto const even = [&](std::int64_t count) { return (count + num_blocks - 1) / num_blocks; };
  auto const num_edges = (facts.num_entries - facts.num_self_loops) / 2;
  LinkCounts counts;
  counts.positives = even(num_edges);
  counts.negatives = NegativeLinks::mean_count(plan.cells.num_rows(), plan.cells.num_columns(),
                                               facts.num_vertices, num_edges);
  for (std::size_t i = 0; i < held_out_lists.size(); ++i)
    counts.held_out[i] = even(facts.num_held_out[static_cast<std::size_t>(held_out_lists[i].first)]);
  counts.entries = even(facts.num_entries);
  return counts;
}

void plan_link_loss(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts) {
  auto const num_links = counts.positives + counts.negatives;
  if (plan.decoder) {
    plan_bring_ends(step, plan);
    for (auto const count : {counts.positives, counts.negatives})
      plan_decoded_links(step, plan, counts.positives, count, true);
    plan_loss_of_links(step, plan, num_links);
    for (auto const side : {BlockSide::rows, BlockSide::columns})
      plan_bring_back(step, plan.of(side));
    pmm::plan_add_numbers(step, steps_of(step, plan, BlockSide::rows).num_own * plan.width);
    return;
  }
  plan_scoring(step, plan, num_links);
  plan_loss_of_links(step, plan, num_links);
  plan_product_of_links(step, plan, "dX = dz Y", pmm::Form::product, num_links);
  plan_bring_back(step, plan.of(BlockSide::rows));
  plan_product_of_links(step, plan, "dY = dz^T X", pmm::Form::right_grad, num_links);
  plan_bring_back(step, plan.of(BlockSide::columns));
  pmm::plan_add_numbers(step, steps_of(step, plan, BlockSide::rows).num_own * plan.width);
}

void plan_link_scores(pmm::StepPlan& step, LinkPlan const& plan, LinkCounts const& counts) {
  if (!plan.decoder) return plan_scoring(step, plan, counts.num_held_out());
  plan_bring_ends(step, plan);
  for (auto const count : counts.held_out)
    plan_decoded_links(step, plan, counts.positives, count, false);
}

void plan_link_arrays(pmm::StepPlan& step, graph::StoreFacts const& facts, LinkPlan const& plan,
                      LinkCounts const& counts) {
  auto const num_rows = plan.cells.num_rows(), num_columns = plan.cells.num_columns();
  auto const capacity = NegativeLinks::capacity(counts.negatives);
  for (auto const count : counts.held_out)
    pmm::plan_pair_lists(step, {num_rows, num_columns, count});
  pmm::plan_pair_lists(step, {num_rows, num_columns, counts.positives});
  step.add_array("drawing of links",
                 NegativeLinks::num_bytes(num_rows, num_columns, counts.entries, facts.num_vertices));
  pmm::plan_pair_lists(step, {num_rows, num_columns, capacity});
  auto const rows = steps_of(step, plan, BlockSide::rows), columns = steps_of(step, plan, BlockSide::columns);
  pmm::WorkspacePlan work;
  reserve_block_rows(work, rows);
  reserve_block_rows(work, columns);
  work.list(step);
  auto const copied = [](pmm::BlockRowsSteps const& steps) {
    return steps.has_copy() ? steps.num_in_block() : std::int64_t{0};
  };
  for (auto const& [label, count] :
       {std::pair("orthant::models::link_rows", copied(rows)),
        {"orthant::models::link_columns", copied(columns)},
        {"orthant::models::link_gradient", std::max(copied(rows), copied(columns))},
        {"orthant::models::link_second_gradient", rows.num_own * plan.width},
        {"orthant::models::link_scores", std::max(counts.positives + capacity, counts.num_held_out())}})
    step.add_array(label, step.scalar_bytes(count));
  if (!plan.decoder) return;
  step.add_array("orthant::models::link_column_gradient", step.scalar_bytes(copied(columns)));
  plan_decoder_arrays(step, plan, counts.positives);
}

} // namespace orthant::models
