// SPDX-License-Identifier: Apache-2.0
#include "pmm/product/block_io.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

std::int64_t sum_of(std::vector<std::int64_t> const& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Whether the third axis has anything to say about this block.
bool has_company(GridShape const& shape, Placement const& placement, Block const& block) {
  return shape.size(placement.layout.third()) > 1 && block.size() > 0;
}

} // namespace

BlockRead::BlockRead(GridShape const& shape, Coordinates const& coordinates, Placement const& placement)
    : block(block_of(shape, coordinates, placement)),
      must_gather(placement.layout.storage != Storage::replicated && has_company(shape, placement, block)) {
  ORTHANT_REQUIRE(placement.layout.storage != Storage::partial,
                  "a sum is read before it is taken: ", placement.to_string());
  if (!must_gather) return;
  counts = piece_counts(shape, coordinates, placement);
  num_gathered = sum_of(counts);
}

BlockWrite::BlockWrite(GridShape const& shape, Coordinates const& coordinates, Placement const& placement,
                       std::int64_t wanted_chunks)
    : block(block_of(shape, coordinates, placement)),
      must_reduce(placement.layout.storage != Storage::partial && has_company(shape, placement, block)) {
  ORTHANT_REQUIRE(wanted_chunks >= 1, "a result in ", wanted_chunks, " chunks");
  if (!must_reduce) return;
  if (placement.layout.storage == Storage::replicated) {
    num_chunks = std::min(wanted_chunks, block.rows.size());
  } else {
    counts = piece_counts(shape, coordinates, placement);
    num_partial = sum_of(counts);
  }
}

void plan_read(StepPlan& step, Placement const& placement, Wire wire) {
  BlockRead const read(step.shape(), step.coordinates(), placement);
  if (read.must_gather)
    step.add_call(runtime::Operation::all_gather, placement.layout.third(),
                  step.wire_bytes(read.num_gathered, wire));
}

void plan_write(StepPlan& step, Placement const& placement, Wire wire, std::int64_t num_chunks) {
  BlockWrite const write(step.shape(), step.coordinates(), placement, num_chunks);
  auto const third = placement.layout.third();
  if (!write.must_reduce) return;
  if (placement.layout.storage == Storage::replicated)
    for (std::int64_t i = 0; i < write.num_chunks; ++i)
      step.add_call(runtime::Operation::all_reduce, third,
                    step.wire_bytes(write.chunk(i).size() * write.block.columns.size(), wire));
  else
    step.add_call(runtime::Operation::reduce_scatter, third, step.wire_bytes(write.num_partial, wire));
}

template<class T>
BlockReader<T>::BlockReader(ProcessGrid const& grid, Placement const& placement, Wire wire,
                            std::shared_ptr<Workspace<T>> workspace, Slot slot)
    : grid_(&grid),
      placement_(placement),
      read_(grid.shape(), grid.coordinates(), placement),
      wire_(wire),
      workspace_(std::move(workspace)),
      slot_(slot) {
  if (read_.must_gather) workspace_->reserve(slot_, read_.num_gathered);
}

template<class T>
void BlockReader<T>::start(DefaultExec const& exec, DistMatrix<T> const& matrix) {
  ORTHANT_REQUIRE(matrix.placement() == placement_, "the operand is ", matrix.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(!is_started_, "an operand is read twice at once");
  is_started_ = true;
  source_ = matrix.storage();
  if (read_.must_gather)
    request_ = runtime::start_all_gatherv(exec, comm(), source_, workspace_->lend(slot_, read_.num_gathered),
                                          read_.counts, wire_);
}

template<class T>
Matrix<T> BlockReader<T>::finish() {
  ORTHANT_REQUIRE(is_started_, "an operand is awaited that was not asked for");
  request_.wait();
  is_started_ = false;
  auto const source = std::exchange(source_, {});
  return as_matrix(read_.must_gather ? workspace_->lend(slot_, read_.num_gathered) : source,
                   read_.block.rows.size(), read_.block.columns.size());
}

template<class T>
BlockWriter<T>::BlockWriter(ProcessGrid const& grid, Placement const& placement, Wire wire,
                            std::int64_t num_chunks, std::shared_ptr<Workspace<T>> workspace, Slot slot)
    : grid_(&grid),
      placement_(placement),
      write_(grid.shape(), grid.coordinates(), placement, num_chunks),
      wire_(wire),
      workspace_(std::move(workspace)),
      slot_(slot) {
  if (write_.num_partial > 0) workspace_->reserve(slot_, write_.num_partial);
  if (write_.must_reduce) requests_.reserve(static_cast<std::size_t>(write_.num_chunks));
}

template<class T>
Matrix<T> BlockWriter<T>::partial(DefaultExec const& exec, DistMatrix<T> const& result) {
  ORTHANT_REQUIRE(result.placement() == placement_, "the result is ", result.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(requests_.empty(), "a result is written twice at once");
  if (!write_.must_reduce || placement_.layout.storage == Storage::replicated)
    return as_matrix(result.storage(), write_.block.rows.size(), write_.block.columns.size());
  auto const buffer = workspace_->lend(slot_, write_.num_partial);
  // The padding of flat shards stays zero.
  if (write_.num_partial > write_.block.size())
    Kokkos::deep_copy(exec,
                      Kokkos::subview(buffer, std::pair(static_cast<std::size_t>(write_.block.size()),
                                                        static_cast<std::size_t>(write_.num_partial))),
                      T{0});
  return as_matrix(buffer, write_.block.rows.size(), write_.block.columns.size());
}

template<class T>
void BlockWriter<T>::start(DefaultExec const& exec, DistMatrix<T> const& result, std::int64_t i) {
  if (!write_.must_reduce) return;
  if (placement_.layout.storage == Storage::replicated) {
    auto const rows = chunk(i);
    auto const num_columns = write_.block.columns.size();
    Vector<T> const part(result.storage().data() + rows.begin * num_columns,
                         static_cast<std::size_t>(rows.size() * num_columns));
    requests_.push_back(runtime::start_all_reduce(exec, comm(), part, runtime::Reduction::sum, wire_));
  } else {
    requests_.push_back(
        runtime::start_reduce_scatterv(exec, comm(), workspace_->lend(slot_, write_.num_partial),
                                       result.storage(), write_.counts, runtime::Reduction::sum, wire_));
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
  if (!write_.must_reduce) return;
  if (placement_.layout.storage == Storage::replicated)
    runtime::all_reduce(exec, comm(), result.storage(), runtime::Reduction::sum, wire_);
  else
    runtime::reduce_scatterv(exec, comm(), workspace_->lend(slot_, write_.num_partial), result.storage(),
                             write_.counts, runtime::Reduction::sum, wire_);
}

template class BlockReader<float>;
template class BlockReader<double>;
template class BlockWriter<float>;
template class BlockWriter<double>;

} // namespace orthant::pmm
