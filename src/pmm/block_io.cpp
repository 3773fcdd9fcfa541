// SPDX-License-Identifier: Apache-2.0
#include "pmm/block_io.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

std::int64_t sum_of(std::vector<std::int64_t> const& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Whether the third axis has anything to say about this block.
bool has_company(ProcessGrid const& grid, Placement const& placement, Block const& block) {
  return grid.size(placement.layout.third()) > 1 && block.size() > 0;
}

} // namespace

template<class T>
BlockReader<T>::BlockReader(ProcessGrid const& grid, Placement const& placement, Wire wire,
                            std::shared_ptr<Workspace<T>> workspace, Slot slot)
    : grid_(&grid),
      placement_(placement),
      block_(block_of(grid, placement)),
      wire_(wire),
      workspace_(std::move(workspace)),
      slot_(slot),
      must_gather_(placement.layout.storage != Storage::replicated && has_company(grid, placement, block_)) {
  if (!must_gather_) return;
  counts_ = piece_counts(grid, placement);
  num_gathered_ = sum_of(counts_);
  workspace_->reserve(slot_, num_gathered_);
}

template<class T>
void BlockReader<T>::start(DefaultExec const& exec, DistMatrix<T> const& matrix) {
  ORTHANT_REQUIRE(matrix.placement() == placement_, "the operand is ", matrix.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(!is_started_, "an operand is read twice at once");
  is_started_ = true;
  source_ = matrix.storage();
  if (must_gather_)
    request_ = runtime::start_all_gatherv(exec, comm(), source_, workspace_->lend(slot_, num_gathered_),
                                          counts_, wire_);
}

template<class T>
Matrix<T> BlockReader<T>::finish() {
  ORTHANT_REQUIRE(is_started_, "an operand is awaited that was not asked for");
  request_.wait();
  is_started_ = false;
  auto const source = std::exchange(source_, {});
  return as_matrix(must_gather_ ? workspace_->lend(slot_, num_gathered_) : source, block_.rows.size(),
                   block_.columns.size());
}

template<class T>
void BlockReader<T>::append_calls(std::vector<PlannedCall>& calls) const {
  if (must_gather_) plan_call<T>(calls, comm(), runtime::Operation::all_gather, num_gathered_, wire_);
}

template<class T>
BlockWriter<T>::BlockWriter(ProcessGrid const& grid, Placement const& placement, Wire wire,
                            std::int64_t num_chunks, std::shared_ptr<Workspace<T>> workspace, Slot slot)
    : grid_(&grid),
      placement_(placement),
      block_(block_of(grid, placement)),
      wire_(wire),
      workspace_(std::move(workspace)),
      slot_(slot),
      must_reduce_(has_company(grid, placement, block_)) {
  ORTHANT_REQUIRE(num_chunks >= 1, "a result in ", num_chunks, " chunks");
  if (!must_reduce_) return;
  if (placement.layout.storage == Storage::replicated) {
    num_chunks_ = std::min(num_chunks, block_.rows.size());
  } else {
    counts_ = piece_counts(grid, placement);
    num_partial_ = sum_of(counts_);
    workspace_->reserve(slot_, num_partial_);
  }
  requests_.reserve(static_cast<std::size_t>(num_chunks_));
}

template<class T>
Matrix<T> BlockWriter<T>::partial(DefaultExec const& exec, DistMatrix<T> const& result) {
  ORTHANT_REQUIRE(result.placement() == placement_, "the result is ", result.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(requests_.empty(), "a result is written twice at once");
  if (!must_reduce_ || placement_.layout.storage == Storage::replicated)
    return as_matrix(result.storage(), block_.rows.size(), block_.columns.size());
  auto const buffer = workspace_->lend(slot_, num_partial_);
  // The padding of flat shards stays zero.
  if (num_partial_ > block_.size())
    Kokkos::deep_copy(exec,
                      Kokkos::subview(buffer, std::pair(static_cast<std::size_t>(block_.size()),
                                                        static_cast<std::size_t>(num_partial_))),
                      T{0});
  return as_matrix(buffer, block_.rows.size(), block_.columns.size());
}

template<class T>
void BlockWriter<T>::start(DefaultExec const& exec, DistMatrix<T> const& result, std::int64_t i) {
  if (!must_reduce_) return;
  if (placement_.layout.storage == Storage::replicated) {
    auto const rows = chunk(i);
    auto const num_columns = block_.columns.size();
    Vector<T> const part(result.storage().data() + rows.begin * num_columns,
                         static_cast<std::size_t>(rows.size() * num_columns));
    requests_.push_back(runtime::start_all_reduce(exec, comm(), part, runtime::Reduction::sum, wire_));
  } else {
    requests_.push_back(runtime::start_reduce_scatterv(exec, comm(), workspace_->lend(slot_, num_partial_),
                                                       result.storage(), counts_, runtime::Reduction::sum,
                                                       wire_));
  }
}

template<class T>
void BlockWriter<T>::finish() {
  for (auto& request : requests_)
    request.wait();
  requests_.clear();
}

template<class T>
void BlockWriter<T>::reduce(DefaultExec const& exec, DistMatrix<T> const& result) {
  if (!must_reduce_) return;
  if (placement_.layout.storage == Storage::replicated)
    runtime::all_reduce(exec, comm(), result.storage(), runtime::Reduction::sum, wire_);
  else
    runtime::reduce_scatterv(exec, comm(), workspace_->lend(slot_, num_partial_), result.storage(), counts_,
                             runtime::Reduction::sum, wire_);
}

template<class T>
void BlockWriter<T>::append_calls(std::vector<PlannedCall>& calls) const {
  if (!must_reduce_) return;
  if (placement_.layout.storage == Storage::replicated)
    for (std::int64_t i = 0; i < num_chunks_; ++i)
      plan_call<T>(calls, comm(), runtime::Operation::all_reduce, chunk(i).size() * block_.columns.size(),
                   wire_);
  else
    plan_call<T>(calls, comm(), runtime::Operation::reduce_scatter, num_partial_, wire_);
}

template class BlockReader<float>;
template class BlockReader<double>;
template class BlockWriter<float>;
template class BlockWriter<double>;

} // namespace orthant::pmm
