#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One checkpoint in one HDF5 file. Every array is the global one in its natural order, whatever the grid and
// the order of vertices of the training were, so that any other grid reads it.
//
//   /parameters/NAME, /optimizer/ARRAY/NAME, /best/NAME    training_state.hpp
//   /facts [bytes]       JSON (checkpoint_facts.hpp), with the checksums of these arrays
//   /facts_crc32 [1]     of that text
//   attributes of "/"    the architecture: a checkpoint is also a weights file (weights_file.hpp)

#include "models/training/checkpoint/checkpoint_facts.hpp"
#include "models/training/checkpoint/training_state.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace orthant::models {

/// A checkpoint that is being written. Its life, on all ranks:
///
///   CheckpointOutput output(comm, ..);     // makes the file, reserves its space
///   output.write();                        // any thread
///   output.agree();                        // when all have written
///   if (root) output.commit();             // any thread; else output.leave_to_root()
template<class T>
class CheckpointOutput {
 public:
  /// Copies the numbers of the state, lays the file out and reserves its space on the disk. `facts` has all but
  /// the tensors. `comm` are the ranks of the state's world, and must outlive this. Waits for all kernels.
  /// Collective. Throws UserError on all ranks if the file cannot be made or does not fit.
  CheckpointOutput(runtime::Communicator const& comm, std::filesystem::path const& path,
                   CheckpointFacts facts, TrainingState<T> const& state, Architecture const& architecture);

  /// Writes this rank's pieces, sums over them, and waits until they are on the disk. Any thread: it touches
  /// host memory through pointers only, and neither MPI nor HDF5. Throws UserError if the disk is full, or if a
  /// number is not finite.
  void write();
  /// Adds up the checksums, and ends the file's structure. Collective.
  void agree();
  /// Rank 0: the facts, the structure, the file's name. Any thread. Throws UserError.
  void commit();
  void leave_to_root() { file_.leave_to_root(); }

 private:
  void copy(TrainingState<T> const& state);

  runtime::Communicator const* comm_;
  pmm::ProcessGrid const* grid_;
  CheckpointFacts facts_;
  std::vector<Tensor<T>> tensors_;
  HostCopy<T> copies_;                           // of all tensors but the best epoch's
  std::shared_ptr<HostCopy<T> const> best_;      // null: none
  std::vector<std::uint64_t> sums_;              // of this rank's pieces
  std::vector<std::span<T const>> host_numbers_; // of each tensor
  runtime::Hdf5Output file_;
};

/// The facts of a checkpoint, which rank 0 reads. Collective over `comm`. Throws UserError if it is none, is
/// damaged, or is of a newer version.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(runtime::Communicator const& comm,
                                                    std::filesystem::path const& path);

/// Throws UserError, naming the array, unless the checkpoint has the arrays that this training needs, in their
/// shapes, and no other parameters.
template<class T>
void require_fitting_tensors(std::filesystem::path const& path, CheckpointFacts const& facts,
                             TrainingState<T> const& state);

/// The state := that of the checkpoint, which has these facts. Numbers of another precision are converted.
/// Collective over the grid's world. Throws UserError, and leaves the state as it was, if the file is damaged.
template<class T>
void load_checkpoint(std::filesystem::path const& path, CheckpointFacts const& facts,
                     TrainingState<T>& state);

extern template class CheckpointOutput<float>;
extern template class CheckpointOutput<double>;

} // namespace orthant::models
