// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/links/link_loss.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "runtime/arrays/allocation.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace orthant::models {
namespace {

/// log(1 + exp(z)).
double softplus(double z) {
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

/// Numbers of all ranks, in ascending order. Collective over `comm`.
std::vector<double> gathered(runtime::Communicator const& comm, std::span<double const> mine) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(comm.size()));
  counts[static_cast<std::size_t>(comm.rank())] = std::ssize(mine);
  runtime::all_reduce(runtime::host, comm, std::span(counts));
  std::int64_t total = 0;
  for (auto const count : counts)
    total += count;
  std::vector<double> all(static_cast<std::size_t>(total));
  runtime::all_gatherv(runtime::host, comm, mine, std::span(all), std::span<std::int64_t const>(counts));
  std::ranges::sort(all);
  return all;
}

} // namespace

SplitScore score_links(runtime::Communicator const& comm, std::span<double const> positives,
                       std::span<double const> negatives) {
  std::array<double, 3> sums{static_cast<double>(positives.size() + negatives.size())};
  auto& [num_counted, num_correct, loss] = sums;
  for (auto const p : positives) {
    loss += softplus(-p);
    num_correct += p > 0 ? 1 : 0;
  }
  for (auto const q : negatives) {
    loss += softplus(q);
    num_correct += q > 0 ? 0 : 1;
  }
  runtime::all_reduce(runtime::host, comm, std::span(sums));
  SplitScore score;
  score.num_counted = static_cast<std::int64_t>(num_counted);
  score.num_correct = static_cast<std::int64_t>(num_correct);
  score.num_most_frequent = score.num_counted / 2;
  if (score.num_counted == 0) return score;
  score.loss = loss / num_counted;
  auto& ranking = score.ranking.emplace();
  if (!std::isfinite(score.loss)) return score; // NaN cannot be ordered

  auto const all = gathered(comm, negatives);
  auto const num_negatives = std::ssize(all);
  constexpr auto num_cuts = hits_at.size();
  std::array<double, 3 + num_cuts> found{static_cast<double>(positives.size())};
  for (auto const p : positives) {
    auto const [first, last] = std::ranges::equal_range(all, p);
    auto const num_below = first - all.begin(), num_above = all.end() - last, num_equal = last - first;
    found[1] += static_cast<double>(num_below) + 0.5 * static_cast<double>(num_equal);
    found[2] += 1 / (1 + static_cast<double>(num_above) + 0.5 * static_cast<double>(num_equal));
    for (std::size_t i = 0; i < num_cuts; ++i)
      if (num_negatives < hits_at[i] || p > all[static_cast<std::size_t>(num_negatives - hits_at[i])])
        found[3 + i] += 1;
  }
  runtime::all_reduce(runtime::host, comm, std::span(found));
  auto const num_positives = found[0];
  if (num_positives == 0) return score;
  if (num_negatives > 0) score.roc_auc = found[1] / (num_positives * static_cast<double>(num_negatives));
  ranking.mrr = found[2] / num_positives;
  for (std::size_t i = 0; i < num_cuts; ++i)
    ranking.hits[i] = found[3 + i] / num_positives;
  return score;
}

std::int64_t bytes_of_link_scores(graph::StoreFacts const& facts) {
  constexpr auto score_bytes = static_cast<std::int64_t>(sizeof(double));
  auto const most = std::max(facts.num_held_out[1], facts.num_held_out[2]);
  return 3 * most * score_bytes; // positives, negatives, and the gathered negatives
}

namespace {

using pmm::BlockSide;
using pmm::Update;
using runtime::DefaultExec;
using runtime::part_of;
using runtime::Vector;

void set(pmm::PairLists& lists, LinkLists const& links) {
  lists.set(links.offsets, links.columns);
}

} // namespace

template<class T>
LinkLoss<T>::LinkLoss(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::Roles const& roles,
                      pmm::Placement const& outputs, std::uint64_t seed)
    : grid_(grid),
      plan_(make_link_plan(grid.shape(), grid.coordinates(), roles, outputs)),
      workspace_(std::make_shared<pmm::Workspace<T>>()),
      rows_(grid, plan_.of(BlockSide::rows), workspace_),
      columns_(grid, plan_.of(BlockSide::columns), workspace_),
      scores_memory_("orthant::models::link_scores") {
  auto const& facts = store.facts();
  if (!facts.has_links())
    runtime::throw_user(
        "{} has no held-out edges to predict; partition it with --edge-split VALID,TEST, such as 0.05,0.1",
        store.name());
  auto block = read_owned_block(grid, store, roles).csr;
  auto const n = facts.num_vertices;
  auto const row_ranges = pmm::block_rows(grid.shape(), grid.coordinates(), roles, n);
  auto const column_ranges = pmm::block_columns(grid.shape(), grid.coordinates(), roles, n);
  auto const [num_rows, num_columns] = std::pair(plan_.cells.num_rows(), plan_.cells.num_columns());
  runtime::together(grid.group(), [&] {
    for (auto const& [part, kind] : held_out_lists) {
      auto const links = held_out_links(store, part, kind, row_ranges, column_ranges);
      set(held_out_.emplace_back(num_rows, num_columns, links.size()), links);
    }
  });
  auto ids = runtime::together(
      grid.group(), [&] { return std::pair(ids_of(store, row_ranges), ids_of(store, column_ranges)); });
  auto const links = training_links(block, ids.first, ids.second);
  auto const counts_once = grid.coordinate(roles.b) == 0;
  num_edges_ = runtime::all_reduced(grid.group(), counts_once ? links.size() : 0);
  if (num_edges_ == 0) runtime::throw_user("{} has no edge to train on", store.name());
  set(positives_.emplace(num_rows, num_columns, links.size()), links);
  num_entries_ = block.num_nonzeros();
  drawer_.emplace(std::move(block), std::move(ids.first), ids.second, n, num_edges_, seed);
  auto const capacity =
      NegativeLinks::capacity(NegativeLinks::mean_count(num_rows, num_columns, n, num_edges_));
  negatives_.emplace(num_rows, num_columns, capacity);

  auto const copied = [](pmm::BlockRowsSteps const& steps) {
    return steps.has_copy() ? steps.num_in_block() : std::int64_t{0};
  };
  auto const of_rows = copied(rows_.steps()), of_columns = copied(columns_.steps());
  x_memory_ = runtime::make_zeros<T>("orthant::models::link_rows", of_rows);
  y_memory_ = runtime::make_zeros<T>("orthant::models::link_columns", of_columns);
  gradient_memory_ = runtime::make_zeros<T>("orthant::models::link_gradient", std::max(of_rows, of_columns));
  second_gradient_ =
      runtime::make_zeros<T>("orthant::models::link_second_gradient", rows_.steps().num_own * plan_.width);
  scores_ = scores_memory_.reserve(std::max(positives_->size() + capacity, counts().num_held_out()));
}

template<class T>
void LinkLoss<T>::use_decoder(DecoderParameters<T> parameters) {
  plan_.decoder = DecoderShape{parameters.hidden_width(), parameters.has_bias()};
  decoder_.emplace(grid_, plan_, positives_->size(), std::move(parameters));
  if (columns_.steps().has_copy())
    column_gradient_memory_ =
        runtime::make_zeros<T>("orthant::models::link_column_gradient", columns_.steps().num_in_block());
}

template<class T>
LinkCounts LinkLoss<T>::counts() const {
  LinkCounts counts{positives_->size(), negatives_->size(), {}, num_entries_};
  for (std::size_t i = 0; i < held_out_.size(); ++i)
    counts.held_out[i] = held_out_[i].size();
  return counts;
}

template<class T>
void LinkLoss<T>::draw(std::uint64_t epoch) {
  set(*negatives_, drawer_->draw(epoch));
  scores_ = scores_memory_.reserve(positives_->size() + negatives_->size());
}

template<class T>
void LinkLoss<T>::bring(DefaultExec const& exec, pmm::DistMatrix<T> const& outputs) {
  x_ = rows_.bring(exec, outputs.storage(), x_memory_);
  y_ = columns_.bring(exec, outputs.storage(), y_memory_);
}

template<class T>
std::int64_t LinkLoss<T>::score(DefaultExec const& exec, pmm::EdgeBlock const& block,
                                std::int64_t begin) const {
  auto const scores = part_of(scores_, begin, block.num_edges());
  if (decoder_) {
    decoder_->score(exec, block, x_, y_, scores);
  } else {
    count_product(block.num_edges());
    edge_dots(exec, block, part(), x_, y_, scores);
  }
  return begin + block.num_edges();
}

template<class T>
void LinkLoss<T>::sum_scores(DefaultExec const& exec, std::int64_t count) const {
  if (count > 0 && !decoder_)
    runtime::all_reduce(exec, grid_.over(plan_.roles.b), part_of(scores_, 0, count));
}

template<class T>
void LinkLoss<T>::count_product(std::int64_t num_links) const {
  grid_.world().instruments().flops.sparse += 2 * num_links * part().columns();
}

template<class T>
void LinkLoss<T>::find_loss(DefaultExec const& exec, std::int64_t num_links, double scale,
                            double gradient_scale, Vector<double> const& loss) const {
  pmm::pair_loss_and_gradient(exec, grid_.passes(), part_of(scores_, 0, num_links), positives_->size(), scale,
                              gradient_scale, runtime::number_at(loss, 0));
  runtime::all_reduce(exec, grid_.over(plan_.block_axes()), loss);
}

template<class T>
void LinkLoss<T>::decode_loss_and_gradient(DefaultExec const& exec, Vector<T> const& dh, double scale,
                                           double gradient_scale, Vector<double> const& loss) const {
  auto const num_positive = positives_->size(), num_negative = negatives_->size();
  auto const dx = rows_.steps().has_copy() ? gradient_memory_ : dh;
  auto const dy = columns_.steps().has_copy() ? column_gradient_memory_ : second_gradient_;
  for (auto const& gradient : {dx, dy})
    Kokkos::deep_copy(exec, gradient, T{0});
  decoder_->clear_gradients(exec);
  auto const weight = scale * gradient_scale;
  decoder_->score_and_differentiate(exec, {positives_->block(), true, weight}, x_, y_,
                                    part_of(scores_, 0, num_positive), dx, dy);
  decoder_->score_and_differentiate(exec, {negatives_->block(), false, weight}, x_, y_,
                                    part_of(scores_, num_positive, num_negative), dx, dy);
  find_loss(exec, num_positive + num_negative, scale, gradient_scale, loss);
  rows_.bring_back(exec, dx, dh);
  columns_.bring_back(exec, dy, second_gradient_);
}

template<class T>
void LinkLoss<T>::loss_and_gradient(DefaultExec const& exec, pmm::DistMatrix<T> const& outputs,
                                    pmm::DistMatrix<T> const& gradient, std::int64_t num_counted,
                                    Vector<double> const& loss, double gradient_scale) {
  ORTHANT_REQUIRE(loss.extent(0) == 1 && (outputs.storage().extent(0) == 0 ||
                                          outputs.storage().data() != gradient.storage().data()),
                  "a loss of links gives one number, and a gradient beside the outputs");
  auto const scale = 1 / static_cast<double>(num_counted);
  auto const& dh = gradient.storage();
  auto const add_second = [&] {
    pmm::add_numbers(exec, grid_.passes(), second_gradient_,
                     part_of(dh, 0, rows_.steps().num_own * plan_.width));
  };
  bring(exec, outputs);
  if (decoder_) {
    decode_loss_and_gradient(exec, dh, scale, gradient_scale, loss);
    return add_second();
  }
  auto const& positives = positives_->block();
  auto const& negatives = negatives_->block();
  auto const num_positive = score(exec, positives, 0);
  auto const num_links = score(exec, negatives, num_positive);
  sum_scores(exec, num_links);
  find_loss(exec, num_links, scale, gradient_scale, loss);

  // dH := rows^T(dz Y) + columns^T(dz^T X)
  auto const width = part().columns();
  auto const dz = part_of(scores_, 0, num_positive);
  auto const dz_of_negatives = part_of(scores_, num_positive, negatives.num_edges());
  auto const dx = rows_.steps().has_copy() ? gradient_memory_ : dh;
  count_product(num_links);
  pair_sums(exec, positives, width, dz, y_, dx, Update::assign);
  pair_sums(exec, negatives, width, dz_of_negatives, y_, dx, Update::add);
  rows_.bring_back(exec, dx, dh);
  auto const dy = columns_.steps().has_copy() ? gradient_memory_ : second_gradient_;
  count_product(num_links);
  pair_sums_transposed(exec, positives, width, dz, x_, dy, Update::assign);
  pair_sums_transposed(exec, negatives, width, dz_of_negatives, x_, dy, Update::add);
  columns_.bring_back(exec, dy, second_gradient_);
  add_second();
}

template<class T>
Scores LinkLoss<T>::evaluate(DefaultExec const& exec, pmm::DistMatrix<T> const& outputs) {
  scores_ = scores_memory_.reserve(counts().num_held_out());
  bring(exec, outputs);
  std::array<std::int64_t, num_held_out_lists + 1> begins{};
  for (std::size_t i = 0; i < held_out_.size(); ++i)
    begins[i + 1] = score(exec, held_out_[i].block(), begins[i]);
  sum_scores(exec, begins.back());
  runtime::compat::fence(exec, "orthant::models::LinkLoss/scores are read");
  auto const on_host =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), part_of(scores_, 0, begins.back()));
  auto const contributes = grid_.coordinate(plan_.roles.b) == 0; // ranks along b have the same links
  auto const numbers = [&](std::size_t list) {
    std::vector<double> of_list;
    for (auto e = begins[list]; contributes && e < begins[list + 1]; ++e)
      of_list.push_back(static_cast<double>(on_host(static_cast<std::size_t>(e))));
    return of_list;
  };
  Scores scores;
  for (std::size_t list = 0; list < held_out_.size(); list += 2)
    scores[static_cast<std::size_t>(held_out_lists[list].first)] =
        score_links(grid_.group(), numbers(list), numbers(list + 1));
  return scores;
}

template<class T>
double LinkLoss<T>::scale_to_one(std::int64_t num_counted) const {
  return static_cast<double>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(num_counted, 1))));
}

template class LinkLoss<float>;
template class LinkLoss<double>;

} // namespace orthant::models
