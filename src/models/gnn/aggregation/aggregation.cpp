// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/aggregation.hpp"

#include "models/gnn/aggregation/own_aggregation.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

namespace orthant::models {
namespace {

using runtime::Bf16Number;
using runtime::DefaultExec;
using runtime::Fp16Number;

/// Aggregation in the schedule `pmm3d`: products on three axes (pmm/product/product.hpp).
template<class T>
class ProductAggregation final : public Aggregation<T> {
 public:
  using Sum = runtime::SumOf<T>;

  ProductAggregation(pmm::ProcessGrid const& grid, NetworkLayerProducts const& products,
                     pmm::DistSparse<Sum> adjacency, std::shared_ptr<pmm::Workspace<Sum>> const& workspace)
      : adjacency_(std::move(adjacency)),
        backward_(grid, products.aggregate_back, workspace) {
    if (products.aggregate.options.result_format == runtime::format_of<T>)
      forward_.emplace(grid, products.aggregate, workspace);
    else
      to_logits_.emplace(grid, products.aggregate, workspace);
  }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.value().run(exec, adjacency_, from, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, adjacency_, from, to);
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<Sum> const& to) override {
    if constexpr (std::is_same_v<T, Sum>)
      forward(exec, from, to);
    else
      to_logits_.value().run(exec, adjacency_, from, to);
  }

 private:
  pmm::DistSparse<Sum> adjacency_;
  std::optional<pmm::Product<T>> forward_;        // nullopt if the layer makes 16-bit logits
  std::optional<pmm::Product<T, Sum>> to_logits_; // only for 16-bit operands
  pmm::Product<T> backward_;
};

/// Aggregation in the schedule `rows`, between the owners of whole rows (pmm/aggregate/aggregate.hpp).
template<class T>
class OwnedAggregation final : public Aggregation<T> {
 public:
  using Sum = runtime::SumOf<T>;

  OwnedAggregation(pmm::ProcessGrid const& grid, NetworkLayerAggregates const& plans,
                   OwnedAdjacency<Sum> const& adjacency,
                   std::shared_ptr<pmm::Workspace<Sum>> const& workspace)
      : forward_(grid, plans.forward, adjacency.forward, workspace, adjacency.needed),
        backward_(grid, plans.backward, adjacency.backward, workspace, adjacency.needed) {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    forward_.run(exec, from, to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    backward_.run(exec, from, to);
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<Sum> const& to) override {
    forward_.run(exec, from, to);
  }
  void prefetch_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from) override {
    backward_.prefetch(exec, from);
  }

 private:
  pmm::Aggregate<T> forward_, backward_;
};

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>>
make_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan, NumberFormats const& formats,
                 Adjacency<runtime::SumOf<T>> adjacency,
                 std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>> workspace) {
  using Sum = runtime::SumOf<T>;
  if (auto* const owned = std::get_if<OwnedAdjacency<Sum>>(&adjacency)) {
    ORTHANT_REQUIRE(plan.owners, "layer ", plan.index, " has no owners of vertices");
    auto const needed = owned->needed ? owned->needed->counts() : pmm::NeededCountsOfAxes{};
    return std::make_unique<OwnedAggregation<T>>(grid, aggregates_of(plan, owned->sizes, formats, needed),
                                                 *owned, workspace);
  }
  ORTHANT_REQUIRE(!plan.owners, "layer ", plan.index, " is one of owners of vertices");
  return std::make_unique<ProductAggregation<T>>(
      grid, products_of(plan, formats), std::get<pmm::DistSparse<Sum>>(std::move(adjacency)), workspace);
}

template<class T>
void keep_weights(Adjacency<T> const& adjacency) {
  DefaultExec const exec;
  if (auto const* const owned = std::get_if<OwnedAdjacency<T>>(&adjacency)) {
    owned->forward.keep_weights(exec);
    owned->backward.keep_weights(exec);
  } else {
    auto const& blocks = std::get<pmm::DistSparse<T>>(adjacency);
    blocks.forward().keep_weights(exec);
    blocks.adjoint().keep_weights(exec);
  }
}

void plan_aggregation_buffers(pmm::WorkspacePlan& work, pmm::StepPlan const& step,
                              NetworkLayerPlan const& plan, NumberFormats const& formats) {
  if (plan.owners) {
    auto const& kept = plan.owners->kept;
    auto const plans =
        aggregates_of(plan, cells_of(step, plan), formats, kept ? kept->needed : pmm::NeededCountsOfAxes{});
    plan_buffers(work, step, plans.forward);
    plan_buffers(work, step, plans.backward);
    return;
  }
  auto const products = products_of(plan, formats);
  plan_buffers(work, step, products.aggregate);
  plan_buffers(work, step, products.aggregate_back);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<Aggregation<T>> make_aggregation(                                                 \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, NumberFormats const&, Adjacency<runtime::SumOf<T>>,  \
      std::shared_ptr<pmm::Workspace<runtime::SumOf<T>>>);
template void keep_weights(Adjacency<float> const&);
template void keep_weights(Adjacency<double> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(Bf16Number)
ORTHANT_INSTANTIATE(Fp16Number)
#undef ORTHANT_INSTANTIATE

namespace {

template<class T>
struct ProductOfPair {
  runtime::Vector<T> x, y;
  KOKKOS_FUNCTION void operator()(std::int64_t i, double& sum) const {
    auto const place = static_cast<std::size_t>(i);
    sum += static_cast<double>(x(place)) * static_cast<double>(y(place));
  }
};

/// Computes the part of the dot product for one block of element pairs. Several partial sums per host thread let the compiler use vector
/// instructions.
template<class T>
struct ProductOfBlock {
  static constexpr std::int64_t num_pairs = 4096;
  static constexpr std::int64_t num_sums = 8;
  std::int64_t count; // of elements in all blocks
  T const* x;
  T const* y;

  void operator()(std::int64_t block, double& sum) const {
    auto const end = std::min(count, (block + 1) * num_pairs);
    double sums[num_sums] = {};
    auto i = block * num_pairs;
    for (; i + num_sums <= end; i += num_sums)
      for (std::int64_t k = 0; k < num_sums; ++k)
        sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(y[i + k]);
    for (std::int64_t k = 0; i < end; ++i, ++k)
      sums[k] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    for (auto const one : sums)
      sum += one;
  }
};

/// dot := sum_ij x_ij y_ij over this rank's elements.
template<class T>
void dot_numbers(DefaultExec const& exec, pmm::DistMatrix<T> const& x, pmm::DistMatrix<T> const& y,
                 runtime::Vector<double> const& sum, runtime::Vector<T> const& dot) {
  auto const count = x.block().num_stored;
  x.grid().passes().add({"dot_numbers", 2 * count * static_cast<std::int64_t>(sizeof(T)), sizeof(T)});
  constexpr auto label = "orthant::models::dot_numbers";
  using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;
  using Block = ProductOfBlock<T>;
  if constexpr (pmm::runs_on_host)
    Kokkos::parallel_reduce(label, Policy(exec, 0, (count + Block::num_pairs - 1) / Block::num_pairs),
                            Block{count, x.storage().data(), y.storage().data()}, runtime::number_at(sum, 0));
  else
    Kokkos::parallel_reduce(label, Policy(exec, 0, count), ProductOfPair<T>{x.storage(), y.storage()},
                            runtime::number_at(sum, 0));
  Kokkos::parallel_for(
      "orthant::models::dot_numbers/store", Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, 1),
      KOKKOS_LAMBDA(std::int64_t) { dot(0) = static_cast<T>(sum(0)); });
}

/// sum := sum + (1 + epsilon) x.
template<class T>
void add_scaled(DefaultExec const& exec, pmm::DistMatrix<T> const& x, runtime::Vector<T> const& epsilon,
                pmm::DistMatrix<T> const& sum) {
  ORTHANT_REQUIRE(x.placement() == sum.placement(), x.placement().to_string(), " added to ",
                  sum.placement().to_string());
  constexpr auto label = "orthant::models::add_scaled";
  auto const count = sum.block().num_stored;
  auto const bytes = count * static_cast<std::int64_t>(sizeof(T));
  sum.grid().passes().add({"add_scaled", 2 * bytes, bytes});
  T const* const from = x.storage().data();
  T* const to = sum.storage().data();
  T const* const factor = epsilon.data();
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
      auto const scale = 1 + *factor;
#pragma GCC ivdep
      for (auto i = begin; i < end; ++i)
        to[i] += scale * from[i];
    });
  else
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count),
        KOKKOS_LAMBDA(std::int64_t i) { to[i] += (1 + *factor) * from[i]; });
}

template<class T>
class SelfAggregation final : public Aggregation<T> {
 public:
  SelfAggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                  std::unique_ptr<Aggregation<T>> of_neighbours, SelfAggregationParts<T> parts)
      : grid_(grid),
        plan_(plan),
        of_neighbours_(std::move(of_neighbours)),
        parts_(std::move(parts)) {
    if (keeps_brought(plan)) brought_ = pmm::DistMatrix<T>(grid, plan.aggregate(), parts_.brought);
    if (!keeps_rows(plan)) moved_ = pmm::DistMatrix<T>(grid, plan.aggregated(), parts_.moved);
  }

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    // H[c,b] := sum_a A^[c,a] F[a,b] + (1 + epsilon) R F[a,b]
    if (!keeps_rows(plan_))
      parts_.path.bring(exec, from, brought_);
    else if (keeps_brought(plan_))
      copy_numbers(exec, from, brought_);
    else
      brought_ = from;
    of_neighbours_->forward(exec, from, to);
    add_scaled(exec, brought_, parts_.epsilon.local(), to);
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    if (!std::exchange(has_gradient_, false)) find_gradient(exec, from);
    // dF[a,b] := sum_c A^[c,a]^T dH[c,b] + (1 + epsilon) R^T dH[c,b]
    of_neighbours_->backward(exec, from, to);
    add_scaled(exec, keeps_rows(plan_) ? from : moved_, parts_.epsilon.local(), to);
  }
  void forward_to_logits(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                         pmm::DistMatrix<T> const& to) override {
    forward(exec, from, to);
  }
  void prefetch_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from) override {
    find_gradient(exec, from);
    has_gradient_ = true;
    of_neighbours_->prefetch_backward(exec, from);
  }

 private:
  /// Gradient of epsilon, and R^T dH.
  void find_gradient(DefaultExec const& exec, pmm::DistMatrix<T> const& from) {
    // depsilon := sum_ij dH_ij (R F)_ij, summed over the ranks with other rows or columns
    auto const& gradient = parts_.epsilon_gradient.local();
    dot_numbers(exec, from, brought_, parts_.sum, gradient);
    if (!plan_.owners) {
      runtime::all_reduce(exec, grid_.over(from.layout().rows), gradient);
      runtime::all_reduce(exec, grid_.over(from.layout().columns), gradient);
    }
    if (!keeps_rows(plan_)) parts_.path.bring_back(exec, from, moved_);
  }

  pmm::ProcessGrid const& grid_;
  NetworkLayerPlan plan_;
  std::unique_ptr<Aggregation<T>> of_neighbours_;
  SelfAggregationParts<T> parts_;
  pmm::DistMatrix<T> brought_, moved_;
  bool has_gradient_ = false; // find_gradient() has already run for the next backward()
};

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>>
make_self_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                      std::unique_ptr<Aggregation<T>> of_neighbours, SelfAggregationParts<T> parts) {
  return std::make_unique<SelfAggregation<T>>(grid, plan, std::move(of_neighbours), std::move(parts));
}

template std::unique_ptr<Aggregation<float>> make_self_aggregation(pmm::ProcessGrid const&,
                                                                   NetworkLayerPlan const&,
                                                                   std::unique_ptr<Aggregation<float>>,
                                                                   SelfAggregationParts<float>);
template std::unique_ptr<Aggregation<double>> make_self_aggregation(pmm::ProcessGrid const&,
                                                                    NetworkLayerPlan const&,
                                                                    std::unique_ptr<Aggregation<double>>,
                                                                    SelfAggregationParts<double>);

namespace {

constexpr auto kept_label = "orthant::models::own_convolution";

/// Placements of the kept matrices, those of inputs first.
std::vector<pmm::Placement> kept_placements(NetworkLayerPlan const& layer) {
  std::vector<pmm::Placement> all(static_cast<std::size_t>(layer.own->num_kept_inputs), layer.aggregated());
  all.insert(all.end(), static_cast<std::size_t>(layer.own->num_kept_results), layer.aggregate());
  return all;
}

} // namespace

void plan_own_arrays(pmm::StepPlan& step, NetworkLayerPlan const& layer) {
  if (!layer.own) return;
  for (auto const& placement : kept_placements(layer))
    plan_matrix(step, placement, kept_label);
}

template<class T>
std::unique_ptr<Aggregation<T>>
make_own_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                     std::unique_ptr<Aggregation<T>> of_neighbors, OwnMemory<T>& memory) {
  OwnAggregationParts<T> parts{grid, plan, std::move(of_neighbors), {}, {}};
  auto const placements = kept_placements(plan);
  while (memory.size() < placements.size())
    memory.emplace_back(kept_label);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    auto const length = pmm::block_of(grid, placements[i]).num_padded;
    auto& kept =
        static_cast<std::int64_t>(i) < plan.own->num_kept_inputs ? parts.kept_inputs : parts.kept_results;
    kept.emplace_back(grid, placements[i], memory[i].reserve(length));
  }
  if constexpr (std::is_same_v<T, float>)
    return plan.own->make_float(std::move(parts));
  else
    return plan.own->make_double(std::move(parts));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<Aggregation<T>> make_own_aggregation(                                             \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, std::unique_ptr<Aggregation<T>>, OwnMemory<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
