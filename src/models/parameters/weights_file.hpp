#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of any model in an HDF5 file that PyTorch (h5py) reads and writes too:
//
//   /parameters/NAME [rows x columns] or [length]     float32 or float64, per parameter
//   attributes of "/"                                 the architecture, which files from elsewhere may lack
//
// Every rank reads and writes just its piece.

#include "models/parameters/parameter.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

/// What a model is made of beside the shapes of its parameters: {"norm", "rms"}, ..
using Architecture = std::vector<std::pair<std::string, std::string>>;

/// Writes the parameters and the architecture to a file that gets its name when it is complete and on the
/// disk. Collective over the grid's world. Throws UserError on all ranks if it cannot be written; an older
/// file is then as it was.
template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, Architecture const& architecture);

/// Throws UserError, naming the part, if the file records another architecture; parts that it does not record
/// fit. Collective over `comm`.
void require_architecture(runtime::Communicator const& comm, std::filesystem::path const& path,
                          Architecture const& architecture);

/// True if a pattern of a shell ("layer2.*", "*.bias") matches the parameter's name.
[[nodiscard]] bool is_skipped(std::string const& parameter, std::span<std::string const> skip);

/// Parameters := those of the file, but for those that a pattern of `skip` matches: they stay as they are, and the
/// file may lack them. Collective over the grid's world. Throws UserError, naming the parameter and both shapes, if
/// one is missing or has another shape, or if a pattern matches none.
template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, std::span<std::string const> skip = {});

/// Where a file has a parameter: "/parameters/NAME".
[[nodiscard]] std::string array_of(std::string const& parameter);
/// Rows and columns of a weight, if the file has it. Throws UserError if it is no matrix, or an empty one.
[[nodiscard]] std::optional<runtime::Hdf5File::Extents> weight_extents(runtime::Hdf5File const& file,
                                                                       std::filesystem::path const& path,
                                                                       std::string const& parameter);

} // namespace orthant::models
