// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/checkpoint_file.hpp"

#include "graph/crc32.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

namespace orthant::models {
namespace {

using runtime::Hdf5File;
using runtime::Hdf5Type;

constexpr auto facts_array = "/facts";
constexpr auto crc_array = "/facts_crc32";

std::uint32_t crc32_of(std::string const& text) {
  return graph::crc32_of(std::as_bytes(std::span(text)));
}

/// Reads elements of type Stored at `offset` of an array of the file, converts them to T, and adds their checksum to `sum`.
template<class Stored, class T>
void read_box(runtime::ByteSource& bytes, runtime::Hdf5Array const& array, Hdf5File::Extents const& begin,
              Hdf5File::Extents const& counts, std::span<T> to, std::uint64_t& sum) {
  std::vector<Stored> numbers(to.size());
  auto const is_matrix = array.extents.size() == 2;
  auto const num_columns = counts.back();
  auto const stride = array.extents.back();
  auto const num_rows = is_matrix ? counts[0] : 1;
  auto const is_one_run = num_columns == stride || num_rows == 1;
  auto const num_runs = is_one_run ? 1 : num_rows;
  auto const run = static_cast<std::size_t>(is_one_run ? num_rows * num_columns : num_columns);
  for (std::int64_t row = 0; row < num_runs; ++row) {
    auto const first = (is_matrix ? (begin[0] + row) * stride : 0) + begin.back();
    auto const part = std::span(numbers).subspan(static_cast<std::size_t>(row) * run, run);
    bytes.read(array.offset_bytes + first * static_cast<std::int64_t>(sizeof(Stored)),
               std::as_writable_bytes(part));
  }
  sum += runtime::sum_of_box(array.extents, begin, counts, std::span<Stored const>(numbers));
  std::ranges::transform(numbers, to.begin(), [](Stored number) { return static_cast<T>(number); });
}

/// Reads this rank's piece of a tensor. Returns its checksum, or 0 if another rank's copy is counted.
template<class T>
std::uint64_t read_piece(pmm::ProcessGrid const& grid, runtime::ByteSource& bytes,
                         runtime::Hdf5Array const& array, Tensor<T> const& tensor, std::vector<T>& to) {
  std::uint64_t sum = 0;
  for_each_box(tensor.place, [&](auto const& begin, auto const& counts, std::int64_t offset) {
    auto const part = std::span(to).subspan(static_cast<std::size_t>(offset), num_elements(counts));
    if (array.type == Hdf5Type::float32)
      read_box<float>(bytes, array, begin, counts, part, sum);
    else
      read_box<double>(bytes, array, begin, counts, part, sum);
  });
  return counts_here(grid, tensor.place) ? sum : 0;
}

using TensorsByName = std::map<std::string_view, TensorFacts const*>;
TensorsByName by_name(CheckpointFacts const& facts) {
  TensorsByName map;
  for (auto const& tensor : facts.tensors)
    map[tensor.name] = &tensor;
  return map;
}

} // namespace

template<class T>
CheckpointOutput<T>::CheckpointOutput(runtime::Communicator const& comm, std::filesystem::path const& path,
                                      CheckpointFacts facts, TrainingState<T> const& state,
                                      Architecture const& architecture)
    : comm_(&comm),
      grid_(&state.grid()),
      facts_(std::move(facts)),
      tensors_(state.tensors(state.best() != nullptr)),
      best_(state.best()),
      sums_(tensors_.size(), 0),
      file_(comm, path, "checkpoint") {
  for (auto const& tensor : tensors_) {
    auto const extents = extents_of(tensor.place);
    file_.create_array(tensor.name, runtime::detail::hdf5_type_of<T>(), extents);
    facts_.tensors.push_back({tensor.name, extents});
  }
  file_.create_array(facts_array, Hdf5Type::uint8, {static_cast<std::int64_t>(facts_.to_json().size())});
  file_.create_array(crc_array, Hdf5Type::uint32, {1});
  for (auto const& [part, value] : architecture)
    file_.write_attribute("/", part, value);
  file_.reserve_space();
  copy(state);
}

template<class T>
void CheckpointOutput<T>::copy(TrainingState<T> const& state) {
  auto const num_best = best_ ? state.parameters().size() : 0;
  copies_.resize(tensors_.size() - num_best);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (i < copies_.size()) copy_to_host(tensors_[i], copies_[i]);
    tensors_[i].numbers = {};
    tensors_[i].packed = {}; // only the host copy is needed from here on
    tensors_[i].kept.reset();
    host_numbers_.push_back(i < copies_.size() ? copies_[i] : (*best_)[i - copies_.size()]);
  }
}

template<class T>
void CheckpointOutput<T>::write() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto const& tensor = tensors_[i];
    if (!counts_here(*grid_, tensor.place)) continue;
    auto const& extents = facts_.tensors[i].extents;
    for_each_box(tensor.place, [&](auto const& begin, auto const& counts, std::int64_t offset) {
      auto const part = host_numbers_[i].subspan(static_cast<std::size_t>(offset), num_elements(counts));
      if (!std::ranges::all_of(part, [](T number) { return std::isfinite(number); }))
        runtime::throw_user("no checkpoint is written: {} holds a number that is infinite or not a "
                            "number",
                            tensor.name);
      sums_[i] += runtime::sum_of_box(extents, begin, counts, part);
      file_.write(tensor.name, begin, counts, part);
    });
  }
  file_.sync();
}

template<class T>
void CheckpointOutput<T>::agree() {
  runtime::add_up(*comm_, sums_);
  for (std::size_t i = 0; i < sums_.size(); ++i)
    facts_.tensors[i].sum = sums_[i];
  runtime::together(*comm_, [&] { file_.close_structure(); });
}

template<class T>
void CheckpointOutput<T>::commit() {
  auto const text = facts_.to_json();
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(text.data());
  file_.write(facts_array, {0}, {static_cast<std::int64_t>(text.size())}, std::span(bytes, text.size()));
  std::array const crc{crc32_of(text)};
  file_.write(crc_array, {0}, {1}, std::span<std::uint32_t const>(crc));
  file_.commit();
}

CheckpointFacts read_checkpoint_facts(runtime::Communicator const& comm, std::filesystem::path const& path) {
  std::string text;
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const file = Hdf5File::open(path);
    if (!file.contains(facts_array) || !file.contains(crc_array))
      runtime::throw_user("'{}' is no checkpoint: it has no {}", path.string(), facts_array);
    auto const bytes = file.read_all<std::uint8_t>(facts_array);
    text.assign(bytes.begin(), bytes.end());
    if (file.read_all<std::uint32_t>(crc_array) != std::vector{crc32_of(text)})
      runtime::throw_user("'{}' is damaged: the checksum of {} is wrong", path.string(), facts_array);
  });
  runtime::broadcast_text(comm, text, 0);
  return runtime::together(comm, [&] { return CheckpointFacts::from_json(text, path); });
}

template<class T>
void require_fitting_tensors(std::filesystem::path const& path, CheckpointFacts const& facts,
                             TrainingState<T> const& state) {
  auto recorded = by_name(facts);
  for (auto const& tensor : state.tensors(facts.progress.best.epoch > 0)) {
    auto const wanted = extents_of(tensor.place);
    auto const found = recorded.find(tensor.name);
    if (found == recorded.end())
      runtime::throw_user(
          "'{}' is a checkpoint of another training: it has no {} (this one needs one of shape {})",
          path.string(), tensor.name, shape_text(wanted));
    if (found->second->extents != wanted)
      runtime::throw_user(
          "'{}' is a checkpoint of another training: its {} has shape {}, but this one needs {}",
          path.string(), tensor.name, shape_text(found->second->extents), shape_text(wanted));
    recorded.erase(found);
  }
  if (!recorded.empty())
    runtime::throw_user("'{}' is a checkpoint of another training: it has {}, and this one has none",
                        path.string(), recorded.begin()->first);
}

namespace {

/// Of a pruned weight those entries are kept that are not 0 in all of its arrays: a kept entry is not 0 when it is chosen, and later has
/// moments.
template<class T>
void restore_kept(ParameterUpdate<T>& update, std::int64_t num_steps, std::span<Tensor<T> const> tensors,
                  HostCopy<T> const& numbers) {
  auto const* const pruned = update.pruned();
  if (pruned == nullptr || !pruned->settings().is_pruned_after(num_steps)) return;
  std::map<std::string, std::vector<bool>> is_kept;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].place.is_prunable) continue;
    auto& entries = is_kept[tensors[i].place.name];
    entries.resize(numbers[i].size());
    for (std::size_t j = 0; j < entries.size(); ++j)
      if (numbers[i][j] != 0) entries[j] = true;
  }
  for (auto const& [name, entries] : is_kept)
    update.keep(name, entries);
}

} // namespace

template<class T>
void load_checkpoint(std::filesystem::path const& path, CheckpointFacts const& facts,
                     TrainingState<T>& state) {
  auto const& grid = state.grid();
  auto const tensors = state.tensors(facts.progress.best.epoch > 0);
  HostCopy<T> numbers(tensors.size());
  std::vector<std::uint64_t> sums(tensors.size());
  runtime::together(grid.world(), [&] {
    auto const file = Hdf5File::open(path);
    auto const bytes = runtime::open_file_bytes(path);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      auto const array = file.describe(tensors[i].name);
      auto const is_real = array.type == Hdf5Type::float32 || array.type == Hdf5Type::float64;
      if (!is_real || array.extents != extents_of(tensors[i].place))
        runtime::throw_user("'{}' is damaged: {} has another shape or type than it had", path.string(),
                            tensors[i].name);
      auto const& place = tensors[i].place;
      numbers[i].resize((place.boxes ? tensors[i].numbers : place.value()).extent(0)); // padding is zero
      sums[i] = read_piece(grid, *bytes, array, tensors[i], numbers[i]);
    }
  });
  runtime::add_up(grid.world(), sums);
  runtime::together(grid.world(), [&] {
    auto const recorded = by_name(facts);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (recorded.at(tensors[i].name)->sum != sums[i])
        runtime::throw_user("'{}' is damaged: the checksum of {} is wrong", path.string(), tensors[i].name);
  });

  auto const num_current = tensors.size() - (facts.progress.best.epoch > 0 ? state.parameters().size() : 0);
  restore_kept(state.update(), facts.num_steps, std::span(tensors).first(num_current), numbers);
  auto const current = state.tensors(false); // arrays of the kept entries
  for (std::size_t i = 0; i < num_current; ++i)
    copy_from_host(numbers[i], current[i]);
  numbers.erase(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(num_current));
  state.set_best(numbers.empty() ? nullptr : std::make_shared<HostCopy<T> const>(std::move(numbers)));
  state.update().set_num_steps(facts.num_steps);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class CheckpointOutput<T>;                                                                        \
  template void require_fitting_tensors(std::filesystem::path const&, CheckpointFacts const&,                \
                                        TrainingState<T> const&);                                            \
  template void load_checkpoint(std::filesystem::path const&, CheckpointFacts const&, TrainingState<T>&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
