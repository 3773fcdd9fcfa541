// SPDX-License-Identifier: Apache-2.0
#include "models/parameters/weights_file.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <fnmatch.h>

namespace orthant::models {

std::string shape_text(runtime::Hdf5File::Extents const& extents) {
  return extents.size() == 1   ? fmt::format("{}", extents[0])
         : extents.size() == 2 ? fmt::format("{} x {}", extents[0], extents[1])
                               : fmt::format("of {} dimensions", extents.size());
}

using runtime::Hdf5File;

std::string array_of(std::string const& parameter) {
  return "/parameters/" + parameter;
}

std::optional<Hdf5File::Extents> weight_extents(Hdf5File const& file, std::filesystem::path const& path,
                                                std::string const& parameter) {
  auto const name = array_of(parameter);
  if (!file.contains(name)) return std::nullopt;
  auto extents = file.extents(name);
  if (extents.size() != 2)
    runtime::throw_user("{}: {} is {}, not a matrix", path.string(), name, shape_text(extents));
  if (extents[0] < 1 || extents[1] < 1)
    runtime::throw_user("{}: {} is {}; it must have rows and columns", path.string(), name,
                        shape_text(extents));
  return extents;
}

template<class T>
void save_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, Architecture const& architecture) {
  runtime::Hdf5Output file(grid.world(), path, "weights");
  for (auto const& parameter : parameters)
    file.create_array(array_of(parameter.name), runtime::detail::hdf5_type_of<T>(), extents_of(parameter));
  for (auto const& [part, value] : architecture)
    file.write_attribute("/", part, value);
  file.reserve_space();
  runtime::together(grid.world(), [&] {
    for (auto const& parameter : parameters) {
      if (!counts_here(grid, parameter)) continue;
      auto const values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.value());
      for_each_box(parameter, [&](auto const& begin, auto const& counts, std::int64_t offset) {
        file.write(array_of(parameter.name), begin, counts,
                   std::span<T const>(values.data() + offset, num_elements(counts)));
      });
    }
  });
  file.publish();
}

void require_architecture(runtime::Communicator const& comm, std::filesystem::path const& path,
                          Architecture const& architecture) {
  runtime::together(comm, [&] {
    auto const file = Hdf5File::open(path);
    for (auto const& [part, wanted] : architecture) {
      if (!file.contains_attribute("/", part)) continue;
      if (auto const found = file.read_text("/", part); found != wanted)
        runtime::throw_user("{} holds weights of another architecture: its {} is {}, that of the model {}",
                            path.string(), part, found, wanted);
    }
  });
}

bool matches_any(std::string const& parameter, std::span<std::string const> patterns) {
  return std::ranges::any_of(
      patterns, [&](auto const& pattern) { return fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0; });
}

void require_matches(std::string_view option, std::span<std::string const> patterns,
                     std::vector<std::string> const& names) {
  for (auto const& pattern : patterns)
    if (std::ranges::none_of(names, [&](auto const& name) { return matches_any(name, {&pattern, 1}); }))
      runtime::throw_user("{} {} matches none of the model's weights: {}", option, pattern,
                          fmt::join(names, ", "));
}

namespace {

template<class T>
bool is_in(Hdf5File const& file, Parameter<T> const& parameter) {
  auto const name = array_of(parameter.name);
  return file.contains(name) && file.extents(name) == extents_of(parameter);
}

/// Advice at the end of a message about weights that do not fit, if at least one matrix fits.
template<class T>
std::string advice_to_skip(Hdf5File const& file, std::filesystem::path const& path,
                           std::vector<Parameter<T>> const& parameters, std::span<std::string const> skip) {
  std::vector<std::string> names(skip.begin(), skip.end());
  auto has_fitting = false;
  for (auto const& parameter : parameters)
    if (is_in(file, parameter))
      has_fitting = has_fitting || !parameter.is_vector();
    else if (!matches_any(parameter.name, skip))
      names.push_back(parameter.name);
  if (!has_fitting) return {};
  return fmt::format("; --init-from {} --init-skip {} trains from the other weights", path.string(),
                     fmt::join(names, ","));
}

} // namespace

namespace {

/// The factor lora_alpha / lora_rank of the adapters in a file.
double scale_of_adapters(Hdf5File const& file, std::string const& array) {
  double rank = 0, alpha = 0;
  try {
    rank = std::stod(file.read_text("/", "lora_rank"));
    alpha = std::stod(file.read_text("/", "lora_alpha"));
  } catch (std::exception const&) {
    rank = 0;
  }
  if (!(rank > 0 && std::isfinite(alpha / rank)))
    runtime::throw_user("{} is an adapter, and the file has no numbers lora_rank and lora_alpha", array);
  return alpha / rank;
}

} // namespace

template<class T>
void read_merged(Hdf5File const& file, std::string const& parameter, Hdf5File::Extents const& begin,
                 Hdf5File::Extents const& counts, std::span<T> numbers) {
  auto const weight = array_of(parameter);
  file.read(weight, begin, counts, numbers);
  auto const stem = weight.substr(0, weight.rfind('.'));
  auto const left = stem + ".lora_A", right = stem + ".lora_B";
  if (begin.size() != 2 || !file.contains(left)) return;
  auto const extents = file.extents(weight);
  auto const of_left = file.extents(left);
  if (of_left.size() != 2 || of_left[0] != extents[0] || !file.contains(right) ||
      file.extents(right) != Hdf5File::Extents{of_left[1], extents[1]})
    runtime::throw_user("{} and lora_B do not fit the weight of shape {}", left, shape_text(extents));
  auto const num_factors = static_cast<std::size_t>(of_left[1]);
  auto const num_rows = static_cast<std::size_t>(counts[0]), width = static_cast<std::size_t>(counts[1]);
  std::vector<T> a(num_rows * num_factors), b(num_factors * width);
  file.read(left, {begin[0], 0}, {counts[0], of_left[1]}, std::span<T>(a));
  file.read(right, {0, begin[1]}, {of_left[1], counts[1]}, std::span<T>(b));
  auto const scale = static_cast<T>(scale_of_adapters(file, left));
  for (std::size_t i = 0; i < num_rows; ++i)
    for (std::size_t j = 0; j < width; ++j) {
      T sum = 0;
      for (std::size_t k = 0; k < num_factors; ++k)
        sum += a[i * num_factors + k] * b[k * width + j];
      numbers[i * width + j] += scale * sum;
    }
}

template<class T>
void load_weights(pmm::ProcessGrid const& grid, std::filesystem::path const& path,
                  std::vector<Parameter<T>> const& parameters, std::span<std::string const> skip) {
  std::vector<std::string> names;
  for (auto const& parameter : parameters)
    names.push_back(parameter.name);
  require_matches("--init-skip", skip, names);
  runtime::together(grid.world(), [&] {
    auto const file = Hdf5File::open(path);
    for (auto const& parameter : parameters) {
      if (matches_any(parameter.name, skip)) continue;
      auto const name = array_of(parameter.name);
      auto const wanted = extents_of(parameter);
      if (!file.contains(name))
        runtime::throw_user("{} has no {} (the model needs one of shape {}){}", path.string(), name,
                            shape_text(wanted),
                            parameter.name.ends_with(".bias") ? "; without biases, give --no-bias" : "");
      if (auto const found = file.extents(name); found != wanted)
        runtime::throw_user("{}: {} has shape {}, but the model needs {}{}", path.string(), name,
                            shape_text(found), shape_text(wanted),
                            advice_to_skip(file, path, parameters, skip));
      // Releases before 0.9 wrote these rows in an order of the store, not by original id.
      if (parameter.row_numbers && file.contains_attribute("/", "order_of_features"))
        runtime::throw_user("{}: {} are in another order than that of the original ids; leave them out with "
                            "--init-skip {}, or train them anew",
                            path.string(), name, parameter.name);
      auto const values = Kokkos::create_mirror_view(parameter.value());
      Kokkos::deep_copy(values, parameter.value()); // keeps the padding of a shard
      for_each_box(parameter, [&](auto const& begin, auto const& counts, std::int64_t offset) {
        std::span<T> const read(values.data() + offset, num_elements(counts));
        if (parameter.row_numbers)
          file.read(name, begin, counts, read);
        else
          read_merged(file, parameter.name, begin, counts, read);
        if (!std::ranges::all_of(read, [](T value) { return std::isfinite(value); }))
          runtime::throw_user("{}: {} holds a weight that is infinite or not a number", path.string(), name);
      });
      Kokkos::deep_copy(parameter.value(), values);
    }
  });
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void save_weights(pmm::ProcessGrid const&, std::filesystem::path const&,                          \
                             std::vector<Parameter<T>> const&, Architecture const&);                         \
  template void read_merged(Hdf5File const&, std::string const&, Hdf5File::Extents const&,                   \
                            Hdf5File::Extents const&, std::span<T>);                                         \
  template void load_weights(pmm::ProcessGrid const&, std::filesystem::path const&,                          \
                             std::vector<Parameter<T>> const&, std::span<std::string const>);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
