#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint in one HDF5 file. Every array is stored globally in natural order, independent of the training's grid and order of
// vertices, so any other grid can read it.
//
//   /parameters/NAME, /optimizer/ARRAY/NAME, /best/NAME    training_state.hpp
//   /facts [bytes]       JSON (checkpoint_facts.hpp), with the checksums of these arrays
//   /facts_crc32 [1]     checksum of this text
//   attributes of "/"    the architecture: a checkpoint is also a weights file (weights_file.hpp)

#include "models/training/checkpoint/checkpoint_facts.hpp"
#include "models/training/checkpoint/training_state.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <filesystem>
#include <memory>
#include <vector>

namespace orthant::models {

/// A checkpoint that is being written. Calls on all ranks:
///
///   CheckpointOutput output(comm, ..);     // creates the file, reserves its space
///   output.write();                        // any thread
///   output.agree();                        // after all ranks have written
///   if (root) output.commit();             // any thread; else output.leave_to_root()
template<class T>
class CheckpointOutput {
 public:
  /// Copies the state, lays out the file and reserves its space on disk. `facts` must be complete except for the tensors. `comm`
  /// must have the ranks of the state's world, and must outlive this object. Fences all kernels. Collective over `comm`. Throws
  /// UserError on all ranks if the file cannot be created or does not fit.
  CheckpointOutput(runtime::Communicator const& comm, std::filesystem::path const& path,
                   CheckpointFacts facts, TrainingState<T> const& state, Architecture const& architecture);

  /// Writes this rank's pieces, sums them for the checksums, and waits until they are on disk. May run on any thread: it accesses host
  /// memory through pointers only, and calls neither MPI nor HDF5. Throws UserError if the disk is full or a number is not finite.
  void write();
  /// Sums the checksums over the ranks, and completes the file's structure. Collective over `comm`.
  void agree();
  /// On rank 0 only: writes facts and structure, and renames the file. May run on any thread. Throws UserError if this fails.
  void commit();
  void leave_to_root() { file_.leave_to_root(); }

 private:
  void copy(TrainingState<T> const& state);

  runtime::Communicator const* comm_;
  pmm::ProcessGrid const* grid_;
  CheckpointFacts facts_;
  std::vector<Tensor<T>> tensors_;
  HostCopy<T> copies_;                           // of all tensors except those of the best epoch
  std::shared_ptr<HostCopy<T> const> best_;      // null if there is no best epoch
  std::vector<std::uint64_t> sums_;              // checksums of this rank's pieces
  std::vector<std::span<T const>> host_numbers_; // numbers of each tensor
  runtime::Hdf5Output file_;
};

/// Metadata of a checkpoint, read by rank 0. Collective over `comm`. Throws UserError if the file is not a checkpoint, is
/// damaged, or has a newer version.
[[nodiscard]] CheckpointFacts read_checkpoint_facts(runtime::Communicator const& comm,
                                                    std::filesystem::path const& path);

/// The checkpoint must have the arrays that this training needs, with their shapes, and no other parameters; otherwise throws
/// UserError, which names the array.
template<class T>
void require_fitting_tensors(std::filesystem::path const& path, CheckpointFacts const& facts,
                             TrainingState<T> const& state);

/// Loads the state from the checkpoint with these facts. Numbers of another precision are converted. Collective over the grid's
/// world. If the file is damaged, throws UserError and does not change the state.
template<class T>
void load_checkpoint(std::filesystem::path const& path, CheckpointFacts const& facts,
                     TrainingState<T>& state);

extern template class CheckpointOutput<float>;
extern template class CheckpointOutput<double>;

} // namespace orthant::models
