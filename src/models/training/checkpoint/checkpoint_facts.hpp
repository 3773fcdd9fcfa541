#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint says beside its numbers: how far the training had come, which training it was, and what
// arrays there are with their checksums. One JSON text, guarded by a checksum of its own.

#include "models/training/training_run.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace orthant::models {

// What makes a training the one that it is: the data set, the seed, the model, the optimizer, the precision. A
// checkpoint records it, and a training that differs does not go on from there. Nothing here knows what the
// parts mean.

struct IdentityPart {
  std::string name;        // "--dropout"
  std::string value;       // "0.5"
  std::string group = {};  // the word that allows it to differ ("precision"); empty: nothing does
  bool is_default = false; // fits a checkpoint of an older version, which does not have the part
};
using Identity = std::vector<IdentityPart>;

/// The group of parts that matter only if both trainings have them.
inline constexpr auto if_both_have_it = "if both have it";

/// Throws UserError, which names all differences, unless every part is equal or of a group that may differ.
void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ);

inline constexpr std::int64_t checkpoint_version = 1;

/// An array of a checkpoint: "/parameters/layer0.weight", "/optimizer/exp_avg/layer0.weight", ..
struct TensorFacts {
  std::string name;
  runtime::Hdf5File::Extents extents;
  std::uint64_t sum = 0; // runtime/files/array_sum.hpp
};

struct CheckpointFacts {
  TrainProgress progress;
  std::int64_t num_steps = 0;          // of the optimizer
  std::optional<double> learning_rate; // of the last of them; older files lack it
  std::string training;                // a name that no other training has
  Identity identity;
  nlohmann::ordered_json configuration; // not read by the program
  std::vector<TensorFacts> tensors;

  /// The length does not depend on the checksums.
  [[nodiscard]] std::string to_json() const;
  /// Throws UserError, which names `path`, if the text is no such JSON or of a newer version.
  [[nodiscard]] static CheckpointFacts from_json(std::string const& text, std::filesystem::path const& path);
};

} // namespace orthant::models
