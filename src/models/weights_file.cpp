// SPDX-License-Identifier: Apache-2.0
#include "models/weights_file.hpp"

#include "runtime/hdf5_file.hpp"
#include "runtime/output_file.hpp"
#include "runtime/together.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::Hdf5File;

std::string array_of(std::string const& parameter) {
  return "/parameters/" + parameter;
}

template<class T>
Hdf5File::Extents extents_of(Parameter<T> const& parameter) {
  if (parameter.is_bias) return {parameter.bias.length()};
  return {parameter.matrix.extents().rows, parameter.matrix.extents().columns};
}

std::string shape_text(Hdf5File::Extents const& extents) {
  return extents.size() == 1   ? fmt::format("{}", extents[0])
         : extents.size() == 2 ? fmt::format("{} x {}", extents[0], extents[1])
                               : fmt::format("of {} dimensions", extents.size());
}

/// work(begin, counts, offset): this rank's piece as boxes of the global array; `offset` is the box's place
/// in the piece. A piece of a matrix is a run of its block's row-major elements: a part of a row, whole rows,
/// a part of a row.
template<class T, class Work>
void for_each_box(Parameter<T> const& parameter, Work&& work) {
  if (parameter.is_bias) {
    auto const range = parameter.bias.range();
    if (range.size() > 0)
      work(Hdf5File::Extents{range.begin}, Hdf5File::Extents{range.size()}, std::int64_t{0});
    return;
  }
  auto const& block = parameter.matrix.block();
  auto const width = block.columns.size();
  for (auto done = std::int64_t{0}; done < block.num_stored;) {
    auto const place = block.first + done;
    auto const row = place / width;
    auto const column = place % width;
    auto const left = block.num_stored - done;
    auto const is_whole_rows = column == 0 && left >= width;
    auto const num_rows = is_whole_rows ? left / width : 1;
    auto const num_columns = is_whole_rows ? width : std::min(width - column, left);
    work(Hdf5File::Extents{block.rows.begin + row, block.columns.begin + column},
         Hdf5File::Extents{num_rows, num_columns}, done);
    done += num_rows * num_columns;
  }
}

template<class T>
bool counts_here(pmm::ProcessGrid const& grid, Parameter<T> const& parameter) {
  if (grid.coordinate(pmm::Axis::data) != 0) return false;
  return parameter.is_bias ? parameter.bias.is_first_replica() : parameter.matrix.is_first_replica();
}

} // namespace

template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, FeatureNorm feature_norm) {
  auto temporary = path;
  temporary += ".part";
  runtime::require_writable(grid.world(), temporary.string(), "weights");
  auto file = Hdf5File::create(grid.world(), temporary);
  for (auto const& parameter : parameters)
    file.create_array(array_of(parameter.name), runtime::detail::hdf5_type_of<T>(), extents_of(parameter));
  file.write_attribute("/", "model", std::string("gcn"));
  file.write_attribute("/", "feature_norm", std::string(feature_norm == FeatureNorm::row ? "row" : "none"));
  runtime::together(grid.world(), [&] {
    for (auto const& parameter : parameters) {
      if (!counts_here(grid, parameter)) continue;
      auto const values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
      for_each_box(parameter, [&](auto const& begin, auto const& counts, std::int64_t offset) {
        auto size = std::size_t{1};
        for (auto const count : counts)
          size *= static_cast<std::size_t>(count);
        file.write(array_of(parameter.name), begin, counts, std::span<T const>(values.data() + offset, size));
      });
    }
  });
  file.close();
  runtime::together(grid.world(), [&] {
    if (!grid.world().is_root()) return;
    std::error_code error;
    std::filesystem::rename(temporary, path, error);
    if (error) runtime::throw_user("cannot write the weights to {}: {}", path.string(), error.message());
  });
}

template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters) {
  runtime::together(grid.world(), [&] {
    auto const file = Hdf5File::open(path);
    for (auto const& parameter : parameters) {
      auto const name = array_of(parameter.name);
      auto const wanted = extents_of(parameter);
      if (!file.contains(name))
        runtime::throw_user("{} has no {} (the model needs one of shape {}){}", path.string(), name,
                            shape_text(wanted), parameter.is_bias ? "; without biases, give --no-bias" : "");
      if (auto const found = file.extents(name); found != wanted)
        runtime::throw_user("{}: {} has shape {}, but the model needs {}", path.string(), name,
                            shape_text(found), shape_text(wanted));
      auto const values = Kokkos::create_mirror_view(parameter.value());
      Kokkos::deep_copy(values, parameter.value()); // the padding of a shard stays as it is
      for_each_box(parameter, [&](auto const& begin, auto const& counts, std::int64_t offset) {
        auto size = std::size_t{1};
        for (auto const count : counts)
          size *= static_cast<std::size_t>(count);
        file.read(name, begin, counts, std::span<T>(values.data() + offset, size));
      });
      Kokkos::deep_copy(parameter.value(), values);
    }
  });
}

WeightsFacts read_weights_facts(runtime::Communicator const& comm, std::filesystem::path const& path) {
  return runtime::together(comm, [&] {
    auto const file = Hdf5File::open(path);
    WeightsFacts facts;
    for (auto layer = 0;; ++layer) {
      auto const weight = array_of("layer" + std::to_string(layer) + ".weight");
      if (!file.contains(weight)) break;
      auto const extents = file.extents(weight);
      if (extents.size() != 2)
        runtime::throw_user("{}: {} is {}, not a matrix", path.string(), weight, shape_text(extents));
      if (layer > 0 && facts.widths.back() != extents[0])
        runtime::throw_user("{}: {} has {} rows, but the layer before it gives {} columns", path.string(),
                            weight, extents[0], facts.widths.back());
      if (layer == 0) facts.widths.push_back(extents[0]);
      facts.widths.push_back(extents[1]);
    }
    if (facts.widths.empty())
      runtime::throw_user("{} holds no weights: there is no /parameters/layer0.weight in it", path.string());
    facts.has_bias = file.contains(array_of("layer0.bias"));
    if (file.contains_attribute("/", "feature_norm"))
      facts.feature_norm = parse_feature_norm(file.read_text("/", "feature_norm"));
    return facts;
  });
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void save_weights(pmm::ProcessGrid const&, std::filesystem::path const&,                          \
                             std::vector<Parameter<T>> const&, FeatureNorm);                                 \
  template void load_weights(pmm::ProcessGrid const&, std::filesystem::path const&,                          \
                             std::vector<Parameter<T>> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
