#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Metadata of a checkpoint: progress, the identity of the training, and the names and checksums of its arrays. Stored as JSON text
// with a checksum of its own.

#include "models/training/training_run.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

// Identity of a training: data set, seed, model, optimizer, precision. A checkpoint records it, and a training with another identity must
// not resume from this checkpoint. This code only compares the parts, and does not interpret them.

struct IdentityPart {
  std::string name;        // "--dropout"
  std::string value;       // "0.5"
  std::string group = {};  // word that permits a difference ("precision"); empty: never permitted
  bool is_default = false; // if a checkpoint lacks the part, it fits; older versions did not record it
};
using Identity = std::vector<IdentityPart>;

/// Group of parts that are compared only if both trainings have them.
inline constexpr auto if_both_have_it = "if both have it";

/// Throws UserError, which names all differences, unless each part is equal or belongs to a group in `may_differ`.
void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ);

inline constexpr std::int64_t checkpoint_version = 1;

/// An array of a checkpoint: "/parameters/layer0.weight", "/optimizer/exp_avg/layer0.weight", ..
struct TensorFacts {
  std::string name;
  runtime::Hdf5File::Extents extents;
  std::uint64_t sum = 0; // runtime/files/hdf5_file.hpp
};

struct CheckpointFacts {
  TrainProgress progress;
  std::int64_t num_steps = 0;          // of the optimizer
  std::optional<double> learning_rate; // of the last step; absent in older files
  std::string training;                // unique name of the training
  Identity identity;
  nlohmann::ordered_json configuration; // not read by the program
  std::vector<TensorFacts> tensors;

  /// The length of the text does not depend on the checksums.
  [[nodiscard]] std::string to_json() const;
  /// Throws UserError, which names `path`, if the text is not such JSON or has a newer version.
  [[nodiscard]] static CheckpointFacts from_json(std::string const& text, std::filesystem::path const& path);
};

} // namespace orthant::models
