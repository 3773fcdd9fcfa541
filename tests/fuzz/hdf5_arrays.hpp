#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a small HDF5 file, with edits from a fuzzer's input. HDF5's own bytes are not touched: its parser is not
// ours.
//
// Input: the facts as JSON up to a byte 0 (nothing: those of the small file), then edits of 11 bytes each:
// array, how, element, value. `how` even: the element becomes the value; odd: the array's last extent does.

#include "runtime/files/hdf5_file.hpp"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace orthant::fuzz {

struct Hdf5Content {
  runtime::Hdf5Type type{};
  runtime::Hdf5File::Extents extents;
  std::vector<std::byte> bytes;
};
using Hdf5Arrays = std::map<std::string, Hdf5Content>; // by name

/// f(T{}) for the element type T.
template<class F>
auto with_type(runtime::Hdf5Type type, F&& f) {
  using runtime::Hdf5Type;
  switch (type) {
  case Hdf5Type::int8:
    return f(std::int8_t{});
  case Hdf5Type::uint8:
    return f(std::uint8_t{});
  case Hdf5Type::uint16:
    return f(std::uint16_t{});
  case Hdf5Type::int32:
    return f(std::int32_t{});
  case Hdf5Type::uint32:
    return f(std::uint32_t{});
  case Hdf5Type::int64:
    return f(std::int64_t{});
  case Hdf5Type::float32:
    return f(float{});
  case Hdf5Type::float64:
    return f(double{});
  }
  std::abort();
}

[[nodiscard]] Hdf5Arrays read_arrays(runtime::Hdf5File const& file);
void write_arrays(runtime::Hdf5File& file, Hdf5Arrays const& arrays);

/// The array's bytes := as many as its extents need; new ones are 0.
void resize(Hdf5Content& array);

struct EditedArrays {
  std::string facts;
  Hdf5Arrays arrays;
};
/// Those of a small file, as the input wants them.
[[nodiscard]] EditedArrays edited(EditedArrays const& small, std::span<std::uint8_t const> input);

} // namespace orthant::fuzz
