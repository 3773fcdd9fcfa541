#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What makes a training the one that it is: the data set, the seed, the model, the optimizer, the precision. A
// checkpoint records it, and a training that differs does not go on from there. Nothing here knows what the
// parts mean.

#include <filesystem>
#include <string>
#include <vector>

namespace orthant::models {

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

} // namespace orthant::models
