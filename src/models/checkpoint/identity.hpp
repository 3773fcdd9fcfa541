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
  std::string name;  // "--dropout"
  std::string value; // "0.5"
  std::string group; // the word that allows it to differ ("precision"); empty: nothing does
  friend bool operator==(IdentityPart const&, IdentityPart const&) = default;
};
using Identity = std::vector<IdentityPart>;

/// Throws UserError, which names all differences, unless every part that both have is equal or of a group that
/// may differ. A part that only one of them has fits: it is of another version, or of no concern to the other.
void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ);

} // namespace orthant::models
