// SPDX-License-Identifier: Apache-2.0
#include "fuzz/hdf5_arrays.hpp"

#include <algorithm>
#include <cstring>

namespace orthant::fuzz {
namespace {

std::size_t num_elements(runtime::Hdf5File::Extents const& extents) {
  std::size_t count = 1;
  for (auto const extent : extents)
    count *= static_cast<std::size_t>(extent);
  return count;
}

void apply_edits(Hdf5Arrays& arrays, std::span<std::uint8_t const> edits) {
  constexpr std::size_t edit_bytes = 11;
  for (; edits.size() >= edit_bytes; edits = edits.subspan(edit_bytes)) {
    auto& array = std::next(arrays.begin(), edits[0] % static_cast<std::ptrdiff_t>(arrays.size()))->second;
    std::uint8_t const how = edits[1];
    std::uint8_t const element = edits[2];
    std::int64_t value = 0;
    std::memcpy(&value, edits.data() + 3, sizeof value);
    if (how % 2 != 0) {
      array.extents.back() = (value & 0x3ff);
      if (how % 8 == 7) array.extents.assign(1, value & 0x3ff); // one dimension less
      resize(array);
    } else if (!array.bytes.empty()) {
      auto const size = size_of(array.type);
      auto const place = element % (array.bytes.size() / size) * size;
      std::memcpy(array.bytes.data() + place, &value, size);
    }
  }
}

} // namespace

Hdf5Arrays read_arrays(runtime::Hdf5File const& file) {
  Hdf5Arrays arrays;
  for (auto const& name : file.array_names()) {
    Hdf5Content array{file.type(name), file.extents(name), {}};
    with_type(array.type, [&]<class T>(T) {
      auto const values = file.read_all<T>(name);
      auto const bytes = std::as_bytes(std::span(values));
      array.bytes.assign(bytes.begin(), bytes.end());
    });
    arrays.emplace(name, std::move(array));
  }
  return arrays;
}

void write_arrays(runtime::Hdf5File& file, Hdf5Arrays const& arrays) {
  for (auto const& [name, array] : arrays) {
    file.create_array(name, array.type, array.extents);
    with_type(array.type, [&]<class T>(T) {
      std::vector<T> values(array.bytes.size() / sizeof(T));
      if (values.empty()) return;
      std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
      file.write(name, runtime::Hdf5File::Extents(array.extents.size(), 0), array.extents,
                 std::span<T const>(values));
    });
  }
}

void resize(Hdf5Content& array) {
  array.bytes.resize(num_elements(array.extents) * size_of(array.type));
}

EditedArrays edited(EditedArrays const& small, std::span<std::uint8_t const> input) {
  auto const facts_end = static_cast<std::size_t>(std::ranges::find(input, 0) - input.begin());
  auto result = small;
  if (facts_end > 0) result.facts.assign(reinterpret_cast<char const*>(input.data()), facts_end);
  apply_edits(result.arrays, input.subspan(std::min(input.size(), facts_end + 1)));
  return result;
}

} // namespace orthant::fuzz
