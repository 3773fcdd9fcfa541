// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint whose facts and arrays lie, with the checksum of its facts right: that of a training of one matrix and one
// vector with edits from the input (hdf5_arrays.hpp), read as a training reads it that goes on.

#include "fuzz/fuzz_target.hpp"
#include "fuzz/hdf5_arrays.hpp"
#include "graph/crc32.hpp"
#include "models/training/checkpoint/checkpoint_file.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cstdlib>

namespace {

using namespace orthant;
using runtime::Hdf5File;

std::vector<models::Parameter<float>> parameters_of(pmm::ProcessGrid const& grid) {
  pmm::Placement const placement{{}, {4, 3}};
  models::Parameter<float> matrix;
  matrix.name = "weight";
  matrix.matrix = {grid, placement, "weight"};
  matrix.matrix_gradient = {grid, placement, "gradient"};
  models::Parameter<float> vector;
  vector.name = "bias";
  vector.role = models::ParameterRole::bias;
  vector.vector = {grid, {}, 3, "bias"};
  vector.vector_gradient = {grid, {}, 3, "gradient"};
  return {matrix, vector};
}

/// Of one matrix and one vector, and the folder of its checkpoints.
struct Training {
  fuzz::ScratchFolder folder{};
  pmm::ProcessGrid grid{fuzz::single_rank(), {1, 1, 1, 1}};
  std::vector<models::Parameter<float>> parameters = parameters_of(grid);
  models::ParameterUpdate<float> update{grid, parameters, {}};
  models::TrainingState<float> state{grid, parameters, update};
};

Training& training() {
  static bool const has_kokkos = [] {
    static_cast<void>(fuzz::single_rank());
    runtime::compat::initialize({}, -1);
    return std::atexit(Kokkos::finalize) == 0;
  }();
  if (!has_kokkos) std::abort();
  static Training only;
  return only;
}

fuzz::EditedArrays make_small_checkpoint() {
  auto& state = training().state;
  state.keep_best();
  models::CheckpointFacts facts;
  facts.progress.epoch = 3;
  facts.progress.step = 2;
  facts.progress.best.epoch = 1;
  facts.training = "0123456789abcdef";
  facts.identity = {{"--seed", "7"}};
  auto const path = training().folder.path() / "small.h5";
  models::CheckpointOutput<float> output(fuzz::single_rank(), path, facts, state, {{"layers", "1"}});
  output.write();
  output.agree();
  output.commit();
  auto const file = Hdf5File::open(path);
  auto arrays = fuzz::read_arrays(file);
  auto const text = arrays.extract("/facts").mapped().bytes;
  arrays.erase("/facts_crc32");
  return {{reinterpret_cast<char const*>(text.data()), text.size()}, std::move(arrays)};
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static auto const small = make_small_checkpoint();
  auto [facts_text, arrays] = fuzz::edited(small, std::span(data, size));
  auto const bytes = std::as_bytes(std::span(facts_text));
  arrays["/facts"] = {runtime::Hdf5Type::uint8, {std::ssize(facts_text)}, {bytes.begin(), bytes.end()}};
  auto const crc = graph::crc32_of(bytes);
  auto const crc_bytes = std::as_bytes(std::span(&crc, 1));
  arrays["/facts_crc32"] = {runtime::Hdf5Type::uint32, {1}, {crc_bytes.begin(), crc_bytes.end()}};

  auto edited = Hdf5File::create_in_memory("edited");
  fuzz::write_arrays(edited, arrays);
  auto const image = edited.image();
  auto& state = training().state;
  auto const path =
      training().folder.write("edited.h5", {reinterpret_cast<char const*>(image.data()), image.size()});
  return fuzz::accept_or_refuse([&] {
    auto const facts = models::read_checkpoint_facts(fuzz::single_rank(), path);
    if (facts.progress.epoch < 1 || facts.num_steps < 0) __builtin_trap();
    static_cast<void>(facts.to_json());
    models::require_fitting_tensors(path, facts, state);
    models::load_checkpoint(path, facts, state);
    if (state.update().num_steps() != facts.num_steps) __builtin_trap();
  });
}
