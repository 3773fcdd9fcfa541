#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// One HDF5 file of named, contiguous arrays and attributes, private to one process: opened for reading, or created in memory. Ranks that
// write a file together use Hdf5Output. No call communicates but add_up().
//
// Every HDF5 call is checked, and the error contains HDF5's own reason. Throws UserError if a file cannot be opened, is not HDF5 or is
// damaged, and Error if something cannot be written.

#include "runtime/comm/communicator.hpp"
#include "runtime/unique_handle.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace orthant::runtime {

/// Element types of arrays. The type in the file and the type in memory may differ: HDF5 converts if both are integers or both are real
/// numbers.
enum class Hdf5Type : std::uint8_t { int8, uint8, uint16, int32, uint32, int64, float32, float64 };

namespace detail {
struct Hdf5Recording;

struct CloseHdf5 {
  void operator()(std::int64_t id) const noexcept;
};
using Hdf5Handle = UniqueHandle<std::int64_t, std::int64_t{-1}, CloseHdf5>;

template<class T>
constexpr Hdf5Type hdf5_type_of() {
  if constexpr (std::is_same_v<T, float>)
    return Hdf5Type::float32;
  else if constexpr (std::is_same_v<T, double>)
    return Hdf5Type::float64;
  else if constexpr (std::is_signed_v<T> && sizeof(T) == 8)
    return Hdf5Type::int64;
  else if constexpr (std::is_signed_v<T> && sizeof(T) == 4)
    return Hdf5Type::int32;
  else if constexpr (sizeof(T) == 4)
    return Hdf5Type::uint32;
  else if constexpr (sizeof(T) == 2)
    return Hdf5Type::uint16;
  else if constexpr (std::is_signed_v<T>)
    return Hdf5Type::int8;
  else {
    static_assert(sizeof(T) == 1, "no such element type in files");
    return Hdf5Type::uint8;
  }
}
} // namespace detail

[[nodiscard]] std::size_t size_of(Hdf5Type type);

struct Hdf5Array;

class Hdf5File {
 public:
  using Extents = std::vector<std::int64_t>;

  Hdf5File() = default;
  /// Creates the structure of a new file, which goes to `recording` and not to a disk. Data must not be written to it.
  [[nodiscard]] static Hdf5File lay_out(std::string name, detail::Hdf5Recording& recording);
  /// Opens a file that this process reads alone. Any number of ranks may open the same file.
  [[nodiscard]] static Hdf5File open(std::filesystem::path const& path);
  /// Creates a file in this process's memory, which is freed when the file is closed.
  [[nodiscard]] static Hdf5File create_in_memory(std::string name);

  [[nodiscard]] bool is_open() const { return file_.owns(); }
  [[nodiscard]] std::string const& name() const { return name_; }
  /// File offset of the end of the last array created here, written or not.
  [[nodiscard]] std::int64_t end_of_arrays() const { return end_of_arrays_; }
  /// Writes out and closes. Throws Error if that fails, which a destructor cannot do.
  void close();

  /// True if an array or group named `name` ("/a/b") exists.
  [[nodiscard]] bool contains(std::string const& name) const;
  /// Names of all arrays, sorted.
  [[nodiscard]] std::vector<std::string> array_names() const;
  /// Creates an array and the groups above it. Its place in the file is fixed at once; its data are not written.
  void create_array(std::string const& name, Hdf5Type type, Extents const& extents);
  [[nodiscard]] Extents extents(std::string const& name) const;
  [[nodiscard]] Hdf5Type type(std::string const& name) const;
  /// File offset of the array's bytes; 0 if the array is empty.
  [[nodiscard]] std::int64_t offset_bytes(std::string const& name) const;
  /// Type, extents and place of an array, so that its bytes can be read without HDF5. Throws UserError if it is not contiguous or has a
  /// type other than Hdf5Type.
  [[nodiscard]] Hdf5Array describe(std::string const& name) const;
  /// The bytes of a file created in memory.
  [[nodiscard]] std::vector<std::byte> image() const;

  /// Writes the box of `counts` elements from `begin`, row-major in `data`. In one dimension: {begin}, {count}.
  template<class T>
  void write(std::string const& name, Extents const& begin, Extents const& counts, std::span<T const> data) {
    write_box(name, begin, counts, detail::hdf5_type_of<T>(), data.data(), data.size());
  }
  template<class T>
  void read(std::string const& name, Extents const& begin, Extents const& counts, std::span<T> data) const {
    read_box(name, begin, counts, detail::hdf5_type_of<T>(), data.data(), data.size());
  }
  /// Reads a whole array of any number of dimensions, row-major.
  template<class T>
  [[nodiscard]] std::vector<T> read_all(std::string const& name) const {
    auto const whole = extents(name);
    std::int64_t size = 1;
    for (auto const extent : whole)
      size *= extent;
    std::vector<T> data(static_cast<std::size_t>(size));
    read(name, Extents(whole.size(), 0), whole, std::span<T>(data));
    return data;
  }

  /// Attributes of the group or array `owner` ("/" is the file). Writing replaces an existing value.
  void write_attribute(std::string const& owner, std::string const& name, std::int64_t value);
  void write_attribute(std::string const& owner, std::string const& name, double value);
  void write_attribute(std::string const& owner, std::string const& name, std::string const& value);
  [[nodiscard]] bool contains_attribute(std::string const& owner, std::string const& name) const;
  [[nodiscard]] std::int64_t read_integer(std::string const& owner, std::string const& name) const;
  [[nodiscard]] std::string read_text(std::string const& owner, std::string const& name) const;

  /// Bytes of arrays (as stored in the file) that read() has read on this rank.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  Hdf5File(detail::Hdf5Handle file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}
  void write_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                 void const* data, std::size_t num_elements);
  void read_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                void* data, std::size_t num_elements) const;

  detail::Hdf5Handle file_;
  std::string name_;
  std::int64_t end_of_arrays_ = 0;
  mutable std::int64_t bytes_read_ = 0;
};

/// Type, extents and place of an array in a file.
struct Hdf5Array {
  std::string name;
  Hdf5Type type = Hdf5Type::int8;
  Hdf5File::Extents extents;
  std::int64_t offset_bytes = 0;
};

// Checksum of an array that many ranks hold in pieces of any shape. With b_i the bits of element i, counted row by row over the whole
// array, and m a bijection that mixes 64 bits:
//
//   sum := sum_i m(b_i + c (i + 1))      modulo 2^64
//
// Each rank sums over its own elements in any order, and the sums of the ranks add up to the checksum of the array. A change of a single
// element always changes the checksum.

/// m: the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31);
}

/// Checksum over a box of an array of these extents, of one or two dimensions. `numbers` are the box's elements, row by row.
template<class T>
[[nodiscard]] std::uint64_t sum_of_box(Hdf5File::Extents const& extents, Hdf5File::Extents const& begin,
                                       Hdf5File::Extents const& counts, std::span<T const> numbers) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, std::uint64_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                            std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15ULL; // 2^64 / the golden ratio
  auto const is_matrix = extents.size() == 2;
  auto const num_rows = is_matrix ? counts[0] : 1;
  auto const num_columns = counts.back();
  std::uint64_t sum = 0;
  std::size_t next = 0;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    auto const first = (is_matrix ? (begin[0] + row) * extents[1] : 0) + begin.back();
    for (std::int64_t i = 0; i < num_columns; ++i)
      sum += mixed(std::bit_cast<Bits>(numbers[next++]) + odd * static_cast<std::uint64_t>(first + i + 1));
  }
  return sum;
}

/// sums := their elementwise sums over the ranks, modulo 2^64. Collective.
void add_up(Communicator const& comm, std::vector<std::uint64_t>& sums);

} // namespace orthant::runtime
