// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/aggregation.hpp"

#include "models/layers/block_loops.hpp"

#include <utility>

namespace orthant::models {
namespace {

using runtime::DefaultExec;

/// Block k of U: `width` adjacent columns of a matrix with `stride` columns.
template<class T>
struct ColumnBlock {
  T* first;
  std::int64_t stride, width;
};

/// Calls visit(place, place_in_block) for each element of a matrix with the rows of the block and its width.
template<class T, class Visit>
void for_each_in_block(DefaultExec const& exec, char const* label, std::int64_t num_rows,
                       ColumnBlock<T> const& block, Visit const& visit) {
  auto const stride = block.stride;
  auto const width = block.width;
  for_each_element(
      exec, label, num_rows, width,
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { visit(i * width + j, i * stride + j); });
}

template<class T>
void count_pass(pmm::DistMatrix<T> const& matrix, char const* name, std::int64_t num_read) {
  auto const bytes = matrix.block().num_stored * static_cast<std::int64_t>(sizeof(T));
  matrix.grid().passes().add({name, num_read * bytes, bytes});
}

/// result := block
template<class T>
void pick_block(DefaultExec const& exec, ColumnBlock<T> const& block, pmm::DistMatrix<T> const& result) {
  count_pass(result, "pick_block", 1);
  T const* const from = block.first;
  T* const to = result.storage().data();
  for_each_in_block(
      exec, "orthant::models::pick_block", result.block().rows.size(), block,
      KOKKOS_LAMBDA(std::int64_t place, std::int64_t in_block) { to[place] = from[in_block]; });
}

/// sum := x + block
template<class T>
void add_block(DefaultExec const& exec, ColumnBlock<T> const& block, pmm::DistMatrix<T> const& x,
               pmm::DistMatrix<T> const& sum) {
  count_pass(sum, "add_block", 2);
  T const* const from = block.first;
  T const* const addend = x.storage().data();
  T* const to = sum.storage().data();
  for_each_in_block(
      exec, "orthant::models::add_block", sum.block().rows.size(), block,
      KOKKOS_LAMBDA(std::int64_t place, std::int64_t in_block) {
        to[place] = addend[place] + from[in_block];
      });
}

/// block := x
template<class T>
void put_block(DefaultExec const& exec, pmm::DistMatrix<T> const& x, ColumnBlock<T> const& block) {
  count_pass(x, "put_block", 1);
  T const* const from = x.storage().data();
  T* const to = block.first;
  for_each_in_block(
      exec, "orthant::models::put_block", x.block().rows.size(), block,
      KOKKOS_LAMBDA(std::int64_t place, std::int64_t in_block) { to[in_block] = from[place]; });
}

template<class T>
class PowerAggregation final : public Aggregation<T> {
 public:
  PowerAggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                   std::unique_ptr<Aggregation<T>> of_neighbours, runtime::Vector<T> operand)
      : num_powers_(plan.num_powers),
        of_neighbours_(std::move(of_neighbours)),
        operand_(grid, plan.output, std::move(operand)) {}

  void forward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
               pmm::DistMatrix<T> const& to) override {
    pick_block(exec, block_of(from, num_powers_), operand_);
    for (auto k = num_powers_; k-- > 0;) {
      of_neighbours_->forward(exec, operand_, to);
      add_block(exec, block_of(from, k), to, k > 0 ? operand_ : to);
    }
  }
  void backward(DefaultExec const& exec, pmm::DistMatrix<T> const& from,
                pmm::DistMatrix<T> const& to) override {
    put_block(exec, from, block_of(to, 0));
    auto const* last = &from;
    auto const* next = &operand_;
    for (std::int64_t k = 1; k <= num_powers_; ++k) {
      of_neighbours_->backward(exec, *last, *next);
      put_block(exec, *next, block_of(to, k));
      std::swap(last, next);
    }
  }

 private:
  [[nodiscard]] ColumnBlock<T> block_of(pmm::DistMatrix<T> const& all, std::int64_t k) const {
    auto const width = operand_.extents().columns;
    return {all.storage().data() + k * width, all.extents().columns, width};
  }

  std::int64_t num_powers_;
  std::unique_ptr<Aggregation<T>> of_neighbours_;
  pmm::DistMatrix<T> operand_;
};

} // namespace

template<class T>
std::unique_ptr<Aggregation<T>>
make_power_aggregation(pmm::ProcessGrid const& grid, NetworkLayerPlan const& plan,
                       std::unique_ptr<Aggregation<T>> of_neighbours, runtime::Vector<T> operand) {
  return std::make_unique<PowerAggregation<T>>(grid, plan, std::move(of_neighbours), std::move(operand));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::unique_ptr<Aggregation<T>> make_power_aggregation(                                           \
      pmm::ProcessGrid const&, NetworkLayerPlan const&, std::unique_ptr<Aggregation<T>>,                     \
      runtime::Vector<T>);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
