// SPDX-License-Identifier: Apache-2.0
#include "pmm/product/block_collectives.hpp"

#include "pmm/kernels/rounding.hpp"
#include "pmm/matrix/relayout.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>

namespace orthant::pmm {
namespace {

using runtime::sum_of;

/// True if the ranks of the third axis communicate: there are several of them, and the block has elements.
bool has_company(GridShape const& shape, Placement const& placement, Block const& block) {
  return shape.size(placement.layout.third()) > 1 && block.size() > 0;
}

bool is_replicated(Placement const& placement) {
  return placement.layout.storage == Storage::replicated;
}

/// C := round(S), or C := round(C + S) if `adds`.
template<class T>
struct WriteSums {
  runtime::SumOf<T> const* sums;
  T* result;
  bool adds;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    result[i] = T(adds ? result[i] + sums[i] : sums[i]);
  }
};

} // namespace

BlockRead::BlockRead(GridShape const& shape, Coordinates const& coordinates, Placement const& placement)
    : block(block_of(shape, coordinates, placement)),
      must_gather(!is_replicated(placement) && has_company(shape, placement, block)) {
  ORTHANT_REQUIRE(placement.layout.storage != Storage::partial,
                  "a sum is read before it is taken: ", placement.to_string());
  if (!must_gather) return;
  counts = piece_counts(shape, coordinates, placement);
  num_gathered = sum_of(counts);
}

BlockWrite::BlockWrite(GridShape const& shape, Coordinates const& coordinates, Placement const& placement,
                       ProductOptions const& options)
    : block(block_of(shape, coordinates, placement)),
      must_reduce(placement.layout.storage != Storage::partial && has_company(shape, placement, block)),
      sums_lie_apart(must_reduce &&
                     (options.update == Update::add || options.result_format != Wire::native)) {
  ORTHANT_REQUIRE(options.num_chunks >= 1, "a result in ", options.num_chunks, " chunks");
  if (!must_reduce) return;
  if (is_replicated(placement)) {
    num_chunks = std::min(options.num_chunks, block.rows.size());
    if (sums_lie_apart) num_partial = block.num_padded;
  } else {
    counts = piece_counts(shape, coordinates, placement);
    num_partial = sum_of(counts);
    if (sums_lie_apart) num_sums = block.num_padded;
  }
}

void plan_read(StepPlan& step, Placement const& placement, ProductOptions const& options) {
  BlockRead const read(step.shape(), step.coordinates(), placement);
  auto const has_16_bits = options.operand_format != Wire::native;
  if (read.must_gather)
    step.add_call(runtime::Operation::all_gather, placement.layout.third(),
                  step.wire_bytes(read.counts, has_16_bits ? options.operand_format : options.operand_wire),
                  step.wire_bytes(read.counts, options.operand_format));
}

void plan_write(StepPlan& step, Placement const& placement, ProductOptions const& options) {
  BlockWrite const write(step.shape(), step.coordinates(), placement, options);
  auto const third = placement.layout.third();
  auto const wire = options.result_wire;
  if (!write.must_reduce) return;
  if (is_replicated(placement))
    for (std::int64_t i = 0; i < write.num_chunks; ++i) {
      auto const count = write.chunk(i).size() * write.block.columns.size();
      step.add_call(runtime::Operation::all_reduce, third, step.wire_bytes(count, wire),
                    step.scalar_bytes(count));
    }
  else
    step.add_call(runtime::Operation::reduce_scatter, third, step.wire_bytes(write.counts, wire),
                  step.wire_bytes(write.counts, Wire::native) / step.shape().size(third));
}

template<class T>
BlockReader<T>::BlockReader(ProcessGrid const& grid, Placement const& placement, Wire wire,
                            std::shared_ptr<Workspace<runtime::SumOf<T>>> workspace, Slot slot)
    : grid_(&grid),
      placement_(placement),
      read_(grid.shape(), grid.coordinates(), placement),
      message_counts_(message_counts<T>(read_.counts)),
      wire_(wire),
      workspace_(std::move(workspace)),
      slot_(slot) {
  if (read_.must_gather) workspace_->template reserve_as<T>(slot_, read_.num_gathered);
}

template<class T>
void BlockReader<T>::start(DefaultExec const& exec, DistMatrix<T> const& matrix) {
  ORTHANT_REQUIRE(matrix.placement() == placement_, "the operand is ", matrix.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(!is_started_, "an operand is read twice at once");
  is_started_ = true;
  source_ = matrix.storage();
  if (!read_.must_gather) return;
  auto const gathered = workspace_->template lend_as<T>(slot_, read_.num_gathered);
  auto const wire = runtime::is_16_bit<T> ? Wire::native : wire_;
  request_ = runtime::start_all_gatherv(exec, comm(), as_message(source_), as_message(gathered),
                                        message_counts_, wire);
}

template<class T>
Matrix<T> BlockReader<T>::finish() {
  ORTHANT_REQUIRE(is_started_, "an operand is awaited that was not asked for");
  request_.wait();
  is_started_ = false;
  auto const source = std::exchange(source_, {});
  return as_matrix(read_.must_gather ? workspace_->template lend_as<T>(slot_, read_.num_gathered) : source,
                   read_.block.rows.size(), read_.block.columns.size());
}

template<class T>
BlockWriter<T>::BlockWriter(ProcessGrid const& grid, Placement const& placement,
                            ProductOptions const& options, std::shared_ptr<Workspace<Sum>> workspace)
    : grid_(&grid),
      placement_(placement),
      write_(grid.shape(), grid.coordinates(), placement, options),
      wire_(options.result_wire),
      update_(options.update),
      workspace_(std::move(workspace)) {
  if (write_.num_partial > 0) workspace_->reserve(Slot::result, write_.num_partial);
  if (write_.num_sums > 0) workspace_->reserve(Slot::sums, write_.num_sums);
  if (write_.must_reduce) requests_.reserve(static_cast<std::size_t>(write_.num_chunks));
}

template<class T>
void BlockWriter<T>::require_free(DistMatrix<T> const& result) const {
  ORTHANT_REQUIRE(result.placement() == placement_, "the result is ", result.placement().to_string(),
                  "; planned was ", placement_.to_string());
  ORTHANT_REQUIRE(requests_.empty(), "a result is written twice at once");
}

template<class T>
Matrix<T> BlockWriter<T>::in_place(DistMatrix<T> const& result) const {
  require_free(result);
  return as_matrix(result.storage(), write_.block.rows.size(), write_.block.columns.size());
}

template<class T>
auto BlockWriter<T>::partial(DefaultExec const& exec, DistMatrix<T> const& result) const -> Matrix<Sum> {
  require_free(result);
  auto const buffer = workspace_->lend(Slot::result, write_.num_partial);
  // The padding of flat shards stays zero.
  if (write_.num_partial > write_.block.size())
    Kokkos::deep_copy(exec,
                      Kokkos::subview(buffer, std::pair(static_cast<std::size_t>(write_.block.size()),
                                                        static_cast<std::size_t>(write_.num_partial))),
                      Sum{0});
  return as_matrix(buffer, write_.block.rows.size(), write_.block.columns.size());
}

template<class T>
auto BlockWriter<T>::sums(DistMatrix<T> const& result) const -> Vector<Sum> {
  if constexpr (!runtime::is_16_bit<T>)
    if (!write_.sums_lie_apart) return result.storage();
  if (is_replicated(placement_)) return workspace_->lend(Slot::result, write_.num_partial);
  return workspace_->lend(Slot::sums, write_.num_sums);
}

template<class T>
void BlockWriter<T>::write_sums(DefaultExec const& exec, DistMatrix<T> const& result) const {
  constexpr auto label = "orthant::pmm::BlockWriter/write_sums";
  if constexpr (runtime::is_16_bit<T>)
    if (update_ == Update::assign) return round_or_overflow(exec, label, sums(result), result.storage());
  Kokkos::parallel_for(label,
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, write_.block.num_padded),
                       WriteSums<T>{sums(result).data(), result.storage().data(), update_ == Update::add});
}

template<class T>
void BlockWriter<T>::start(DefaultExec const& exec, DistMatrix<T> const& result, std::int64_t i) {
  if (!write_.must_reduce) return;
  if (write_.sums_lie_apart) unwritten_ = Unwritten{exec, result};
  auto const into = sums(result);
  if (is_replicated(placement_)) {
    auto const rows = chunk(i);
    auto const num_columns = write_.block.columns.size();
    Vector<Sum> const part(into.data() + rows.begin * num_columns,
                           static_cast<std::size_t>(rows.size() * num_columns));
    requests_.push_back(runtime::start_all_reduce(exec, comm(), part, runtime::Reduction::sum, wire_));
  } else {
    requests_.push_back(runtime::start_reduce_scatterv(exec, comm(),
                                                       workspace_->lend(Slot::result, write_.num_partial),
                                                       into, write_.counts, runtime::Reduction::sum, wire_));
  }
}

template<class T>
void BlockWriter<T>::finish() {
  for (auto& request : requests_)
    request.wait();
  requests_.clear();
  if (unwritten_) write_sums(unwritten_->exec, unwritten_->result);
  unwritten_.reset();
}

template<class T>
void BlockWriter<T>::reduce(DefaultExec const& exec, DistMatrix<T> const& result) {
  if (!write_.must_reduce) return;
  auto const into = sums(result);
  if (is_replicated(placement_))
    runtime::all_reduce(exec, comm(), into, runtime::Reduction::sum, wire_);
  else
    runtime::reduce_scatterv(exec, comm(), workspace_->lend(Slot::result, write_.num_partial), into,
                             write_.counts, runtime::Reduction::sum, wire_);
  if (write_.sums_lie_apart) write_sums(exec, result);
}

template class BlockReader<float>;
template class BlockReader<double>;
template class BlockReader<runtime::Bf16Number>;
template class BlockReader<runtime::Fp16Number>;
template class BlockWriter<float>;
template class BlockWriter<double>;
template class BlockWriter<runtime::Bf16Number>;
template class BlockWriter<runtime::Fp16Number>;

} // namespace orthant::pmm
