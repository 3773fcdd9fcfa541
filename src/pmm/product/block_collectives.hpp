#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a product is besides its form and its placements: what happens to the old result, what its numbers are
// held in, and how they travel.
//
// The rule that moves data (docs/design.md 2.1): an operand and a result communicate along their own third
// axis only.
//
//   reading   replicated: nothing        sharded: all_gather
//   writing   replicated: all_reduce     sharded: reduce_scatter     partial: nothing, the caller sums
//
// A third axis of one rank moves nothing and needs no buffer. If the result keeps its old numbers (Update::add) or
// has 16 bits, the sums over the third axis are formed in the workspace first:
//
//   S := sum_t partial_t                    in fp32 or fp64
//   C := round(S)   or   round(C + S)       on each rank, for the numbers that it stores

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

/// What becomes of the result's old numbers.
///
///   assign   C := A B
///   add      C := C + A B
///
/// The partial products of the ranks along C's third axis are summed first. Then each rank adds the sum to the
/// numbers that it stores, so the old result is added once, and a 16-bit wire does not round it. If nothing is
/// summed over ranks, the local product adds to C as it runs.
enum class Update : std::uint8_t { assign, add };

struct ProductOptions {
  Wire operand_wire = Wire::native;
  Wire result_wire = Wire::native;
  std::int64_t num_chunks = 1; // row chunks of a replicated result, each reduced while the next is computed
  Update update = Update::assign;
  /// What the numbers are held in. Native is the scalar of training. A 16-bit format needs fp32 training, and
  /// operands in it travel as they are (operand_wire is native). A 16-bit result needs operands in the same
  /// format, and is rounded once, after the sum over ranks, which is in fp32.
  Wire operand_format = Wire::native;
  Wire result_format = Wire::native;
};

/// Throws Error if the formats do not fit one another. `scalar_bytes`: of the scalar of training.
void require_formats(ProductOptions const& options, std::int64_t scalar_bytes);

/// How a rank reads an operand: in place, or gathered from the pieces along the third axis.
struct BlockRead {
  BlockRead(GridShape const& shape, Coordinates const& coordinates, Placement const& placement);

  Block block;
  bool must_gather = false;
  std::vector<std::int64_t> counts; // [ranks of the third axis] elements of each piece, if it gathers
  std::int64_t num_gathered = 0;    // their sum
};

/// How a rank writes a result: partial blocks are summed over the third axis, in chunks of whole rows if the
/// result is replicated.
struct BlockWrite {
  BlockWrite(GridShape const& shape, Coordinates const& coordinates, Placement const& placement,
             ProductOptions const& options);

  [[nodiscard]] Range chunk(std::int64_t i) const {
    return runtime::balanced_range(block.rows.size(), num_chunks, i);
  }

  Block block;
  bool must_reduce = false;
  bool sums_lie_apart = false; // from the result's own memory
  std::int64_t num_chunks = 1;
  std::vector<std::int64_t> counts; // [ranks of the third axis] of the reduce_scatter, if there is one
  std::int64_t num_partial = 0; // length of the partial block's buffer, padding included; 0: it is the result
  std::int64_t num_sums = 0;    // length of the buffer for the sums of a reduce_scatter, if they lie apart
};

/// Lists the collectives of one read, and of one write.
void plan_read(StepPlan& step, Placement const& placement, ProductOptions const& options);
void plan_write(StepPlan& step, Placement const& placement, ProductOptions const& options);

/// Brings the whole block of an operand to this rank. Numbers of 16 bits travel as they are, without a wire.
template<class T>
class BlockReader {
 public:
  BlockReader(ProcessGrid const& grid, Placement const& placement, Wire wire,
              std::shared_ptr<Workspace<runtime::SumOf<T>>> workspace, Slot slot);

  /// Starts the gather, if there is one; `matrix` is lent until finish(). Collective over the third axis.
  void start(DefaultExec const& exec, DistMatrix<T> const& matrix);
  [[nodiscard]] bool is_started() const { return is_started_; }
  /// The block, [rows x columns]: valid until the workspace's slot is used again.
  [[nodiscard]] Matrix<T> finish();

 private:
  [[nodiscard]] runtime::Communicator const& comm() const { return grid_->over(placement_.layout.third()); }

  ProcessGrid const* grid_;
  Placement placement_;
  BlockRead read_;
  std::vector<std::int64_t> message_counts_; // [ranks of the third axis] numbers, or bytes of 16-bit numbers
  Wire wire_;
  std::shared_ptr<Workspace<runtime::SumOf<T>>> workspace_;
  Slot slot_;
  bool is_started_ = false;
  Vector<T> source_; // of an operand that is read in place
  runtime::Request request_;
};

/// Sums the partial blocks of a result over its third axis, and leaves this rank's piece.
template<class T>
class BlockWriter {
 public:
  using Sum = runtime::SumOf<T>;

  /// `options.num_chunks`: a replicated result is reduced in that many pieces of whole rows, so that the product
  /// of one hides the reduction of another. At least 1.
  BlockWriter(ProcessGrid const& grid, Placement const& placement, ProductOptions const& options,
              std::shared_ptr<Workspace<Sum>> workspace);

  /// Calls work(matrix) with the matrix [rows x columns of the block] that the local product goes to: a Matrix<T>
  /// if that is the result, or a Matrix<Sum> in the workspace. The local product is beta() times the matrix, plus
  /// the product.
  template<class Work>
  void with_partial(DefaultExec const& exec, DistMatrix<T> const& result, Work const& work) {
    if (is_in_place())
      work(in_place(result));
    else
      work(partial(exec, result));
  }
  /// 1 if the local product adds to the result as it runs, else 0.
  [[nodiscard]] Sum beta() const { return update_ == Update::add && !write_.must_reduce ? 1 : 0; }
  /// Rows of chunk i, from the block's first.
  [[nodiscard]] std::int64_t num_chunks() const { return write_.num_chunks; }
  [[nodiscard]] Range chunk(std::int64_t i) const { return write_.chunk(i); }
  /// Starts the reduction of chunk i, whose partial rows are written. `result` is lent until finish().
  /// Collective over the third axis; chunks in order.
  void start(DefaultExec const& exec, DistMatrix<T> const& result, std::int64_t i);
  void finish();
  /// Reduces a result of one chunk, to its end. MPI's blocking reductions are faster than its asynchronous
  /// ones, and need no second buffer of the message's size.
  void reduce(DefaultExec const& exec, DistMatrix<T> const& result);

  /// Whether other work could go on during a reduction.
  [[nodiscard]] bool can_hide() const { return can_hide_messages(comm()); }

 private:
  /// Sums that are still to be written to the result once they are complete.
  struct Unwritten {
    DefaultExec exec;
    DistMatrix<T> result;
  };

  [[nodiscard]] runtime::Communicator const& comm() const { return grid_->over(placement_.layout.third()); }
  [[nodiscard]] bool is_in_place() const { return write_.num_partial == 0; }
  void require_free(DistMatrix<T> const& result) const;
  [[nodiscard]] Matrix<T> in_place(DistMatrix<T> const& result) const;
  [[nodiscard]] Matrix<Sum> partial(DefaultExec const& exec, DistMatrix<T> const& result) const;
  /// Where this rank's sums over the third axis go.
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
