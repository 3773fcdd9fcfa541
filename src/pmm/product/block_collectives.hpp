#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Options of a product, and the collectives that read its operands (BlockReader) and write its result (BlockWriter).
// The rule (docs/design.md 2.1): each operand and the result communicate only along their own third axis.
//
//   reading   replicated: nothing        sharded: all_gather
//   writing   replicated: all_reduce     sharded: reduce_scatter     partial: nothing, the caller sums
//
// A third axis of one rank moves nothing and needs no buffer. If the product adds to its result (Update::add), or if
// the result has 16 bits, the sums over the third axis are formed in the workspace first:
//
//   S := sum_t partial_t                    in fp32 or fp64
//   C := round(S)   or   round(C + S)       on each rank, for the elements that it stores

#include "pmm/cost/step_plan.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "pmm/product/workspace.hpp"
#include "runtime/numbers/formats.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace orthant::pmm {

/// Whether a product overwrites its result or adds to it.
///
///   assign   C := A B
///   add      C := C + A B
///
/// The partial products of the ranks along C's third axis are summed first. Then each rank adds the sum to the
/// elements that it stores, so the old result is added once, and is not rounded by 16-bit messages. If nothing is summed over ranks, the
/// local product adds to C directly (beta = 1).
enum class Update : std::uint8_t { assign, add };

struct ProductOptions {
  Wire operand_wire = Wire::native;
  Wire result_wire = Wire::native;
  std::int64_t num_chunks = 1; // row chunks of a replicated result, each reduced while the next is computed
  Update update = Update::assign;
  /// Number formats in memory. Wire::native is the scalar type of training. 16-bit operands need fp32 training; they
  /// are sent without conversion, so operand_wire must be native. A 16-bit result needs operands in the same format.
  /// It is rounded once, after the sum over ranks in fp32.
  Wire operand_format = Wire::native;
  Wire result_format = Wire::native;
};

/// Throws Error if the formats do not fit one another. `scalar_bytes` is the size of the scalar type of training.
void require_formats(ProductOptions const& options, std::int64_t scalar_bytes);

/// Plan of how a rank reads an operand: in place, or gathered from the pieces along the third axis.
struct BlockRead {
  BlockRead(GridShape const& shape, Coordinates const& coordinates, Placement const& placement);

  Block block;
  bool must_gather = false;
  std::vector<std::int64_t> counts; // [ranks of the third axis] elements per piece, if must_gather
  std::int64_t num_gathered = 0;    // the sum of `counts`
};

/// Plan of how a rank writes a result: partial blocks are summed over the third axis, in chunks of whole rows if
/// the result is replicated.
struct BlockWrite {
  BlockWrite(GridShape const& shape, Coordinates const& coordinates, Placement const& placement,
             ProductOptions const& options);

  [[nodiscard]] Range chunk(std::int64_t i) const {
    return runtime::balanced_range(block.rows.size(), num_chunks, i);
  }

  Block block;
  bool must_reduce = false;
  bool sums_lie_apart = false; // sums are computed in the workspace, not in the result's memory
  std::int64_t num_chunks = 1;
  std::vector<std::int64_t> counts; // [ranks of the third axis] elements per rank of a reduce_scatter
  std::int64_t num_partial = 0; // length of the padded partial block's buffer; 0 if the result is the buffer
  std::int64_t num_sums = 0;    // length of the buffer for sums of a reduce_scatter; 0 if not needed
};

/// Add the collectives of reading one operand, and of writing one result, to `step`.
void plan_read(StepPlan& step, Placement const& placement, ProductOptions const& options);
void plan_write(StepPlan& step, Placement const& placement, ProductOptions const& options);

/// Gathers the whole block of an operand on this rank. 16-bit operands are sent as they are; `wire` does not apply.
template<class T>
class BlockReader {
 public:
  BlockReader(ProcessGrid const& grid, Placement const& placement, Wire wire,
              std::shared_ptr<Workspace<runtime::SumOf<T>>> workspace, Slot slot);

  /// Starts the gather if one is needed. `matrix` must not change until finish(). Collective over the third axis.
  void start(DefaultExec const& exec, DistMatrix<T> const& matrix);
  [[nodiscard]] bool is_started() const { return is_started_; }
  /// Waits for the gather and returns the block, [rows x columns]. The block is valid until the workspace's slot is used again.
  [[nodiscard]] Matrix<T> finish();

 private:
  [[nodiscard]] runtime::Communicator const& comm() const { return grid_->over(placement_.layout.third()); }

  ProcessGrid const* grid_;
  Placement placement_;
  BlockRead read_;
  std::vector<std::int64_t> message_counts_; // [ranks of the third axis] elements; bytes if T has 16 bits
  Wire wire_;
  std::shared_ptr<Workspace<runtime::SumOf<T>>> workspace_;
  Slot slot_;
  bool is_started_ = false;
  Vector<T> source_; // storage of the operand between start() and finish()
  runtime::Request request_;
};

/// Sums the partial blocks of a result over its third axis, and stores this rank's piece.
template<class T>
class BlockWriter {
 public:
  using Sum = runtime::SumOf<T>;

  /// A replicated result is reduced in `options.num_chunks` (at least 1) pieces of whole rows, so that the product of
  /// one piece overlaps with the reduction of another.
  BlockWriter(ProcessGrid const& grid, Placement const& placement, ProductOptions const& options,
              std::shared_ptr<Workspace<Sum>> workspace);

  /// Calls work(matrix) with the matrix [rows x columns of the block] that the local product must write: a Matrix<T>
  /// if that is the result's own memory, or a Matrix<Sum> in the workspace. `work` must compute
  ///   matrix := beta() matrix + product
  template<class Work>
  void with_partial(DefaultExec const& exec, DistMatrix<T> const& result, Work const& work) {
    if (is_in_place())
      work(in_place(result));
    else
      work(partial(exec, result));
  }
  /// 1 if the local product must add to the result's memory, else 0.
  [[nodiscard]] Sum beta() const { return update_ == Update::add && !write_.must_reduce ? 1 : 0; }
  [[nodiscard]] std::int64_t num_chunks() const { return write_.num_chunks; }
  /// Rows of chunk i, counted from the first row of the block.
  [[nodiscard]] Range chunk(std::int64_t i) const { return write_.chunk(i); }
  /// Starts the reduction of chunk i, whose partial rows must have been written. `result` must stay valid and unused
  /// until finish(). Collective over the third axis; call for the chunks in order.
  void start(DefaultExec const& exec, DistMatrix<T> const& result, std::int64_t i);
  void finish();
  /// Reduces a result of one chunk and completes it. MPI's blocking reductions are faster than its nonblocking
  /// ones, and need no second buffer of the size of the message. Collective over the third axis.
  void reduce(DefaultExec const& exec, DistMatrix<T> const& result);

  /// True if a reduction can overlap with other work.
  [[nodiscard]] bool can_hide() const { return can_hide_messages(comm()); }

 private:
  /// A result whose sums are still being reduced; finish() writes them to it.
  struct Unwritten {
    DefaultExec exec;
    DistMatrix<T> result;
  };

  [[nodiscard]] runtime::Communicator const& comm() const { return grid_->over(placement_.layout.third()); }
  [[nodiscard]] bool is_in_place() const { return write_.num_partial == 0; }
  void require_free(DistMatrix<T> const& result) const;
  [[nodiscard]] Matrix<T> in_place(DistMatrix<T> const& result) const;
  [[nodiscard]] Matrix<Sum> partial(DefaultExec const& exec, DistMatrix<T> const& result) const;
  /// The buffer for this rank's sums over the third axis.
  [[nodiscard]] Vector<Sum> sums(DistMatrix<T> const& result) const;
  void write_sums(DefaultExec const& exec, DistMatrix<T> const& result) const;

  ProcessGrid const* grid_;
  Placement placement_;
  BlockWrite write_;
  Wire wire_;
  Update update_;
  std::shared_ptr<Workspace<Sum>> workspace_;
  std::vector<runtime::Request> requests_;
  std::optional<Unwritten> unwritten_;
};

extern template class BlockReader<float>;
extern template class BlockReader<double>;
extern template class BlockReader<runtime::Bf16Number>;
extern template class BlockReader<runtime::Fp16Number>;
extern template class BlockWriter<float>;
extern template class BlockWriter<double>;
extern template class BlockWriter<runtime::Bf16Number>;
extern template class BlockWriter<runtime::Fp16Number>;

} // namespace orthant::pmm
