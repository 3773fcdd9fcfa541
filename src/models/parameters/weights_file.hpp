#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Weights of any model in an HDF5 file that PyTorch (h5py) can also read and write:
//
//   /parameters/NAME [rows x columns] or [length]     float32 or float64, per parameter
//   attributes of "/"                                 the architecture; optional in files from elsewhere
//
//   /parameters/STEM.lora_A [rows x k], STEM.lora_B [k x columns]
//                                                     factors of an adapter of STEM.weight (lm/adapters/adapters.hpp)
//   attributes lora_rank, lora_alpha                  the weight is STEM.weight + lora_alpha / lora_rank lora_A lora_B
//
// Each rank reads and writes only its piece. Weights with adapters are read as their sum.

#include "models/parameters/parameter.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::models {

/// Properties of a model besides the shapes of its parameters: {"norm", "rms"}, ..
using Architecture = std::vector<std::pair<std::string, std::string>>;

/// Writes the parameters and the architecture to a temporary file, which is renamed to `path` when it is complete and on disk.
/// Collective over the grid's world. If the file cannot be written, throws UserError on all ranks and leaves an older file unchanged.
template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, Architecture const& architecture);

/// Throws UserError, which names the property, if the file records a different architecture. Properties that the file does not record are
/// accepted. Collective over `comm`.
void require_architecture(runtime::Communicator const& comm, std::filesystem::path const& path,
                          Architecture const& architecture);

/// True if one of the shell patterns ("layer2.*", "*.bias") matches the parameter's name.
[[nodiscard]] bool matches_any(std::string const& parameter, std::span<std::string const> patterns);
/// Throws UserError, which names the option, if one of its patterns matches none of the names of a model's weights.
void require_matches(std::string_view option, std::span<std::string const> patterns,
                     std::vector<std::string> const& names);

/// Loads the parameters. Parameters that match a pattern of `skip` are not changed, and may be missing in the file. Collective over
/// the grid's world. Throws UserError, which names the parameter and both shapes, if a parameter is missing or has another shape,
/// or if a pattern matches no parameter.
template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, std::span<std::string const> skip = {});

/// Reads the numbers [begin, begin + counts) of a parameter, with its adapters added. Throws UserError if factors of an adapter do not fit
/// the weight.
template<class T>
void read_merged(runtime::Hdf5File const& file, std::string const& parameter,
                 runtime::Hdf5File::Extents const& begin, runtime::Hdf5File::Extents const& counts,
                 std::span<T> numbers);

/// Path of a parameter in a file: "/parameters/NAME".
[[nodiscard]] std::string array_of(std::string const& parameter);
/// Rows and columns of a weight, if the file has it. Throws UserError if it is not a matrix, or if it is empty.
[[nodiscard]] std::optional<runtime::Hdf5File::Extents> weight_extents(runtime::Hdf5File const& file,
                                                                       std::filesystem::path const& path,
                                                                       std::string const& parameter);

} // namespace orthant::models
