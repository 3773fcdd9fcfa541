// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_output.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <hdf5.h>
#include <new>
#include <numeric>
#include <utility>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h> // since HDF5 1.14, drivers have a separate header
#endif

namespace orthant::runtime::detail {
namespace {

/// An open file in the form that HDF5 requires: HDF5's own fields come first.
struct RecordedFile {
  H5FD_t library;
  Hdf5Recording* recording;
  haddr_t end_of_allocation;
};

RecordedFile& of(H5FD_t* file) {
  return *reinterpret_cast<RecordedFile*>(file);
}
RecordedFile const& of(H5FD_t const* file) {
  return *reinterpret_cast<RecordedFile const*>(file);
}

/// Our driver's properties are a pointer to the recording, which HDF5 copies as bytes.
H5FD_t* open_file(char const*, unsigned, hid_t access, haddr_t) {
  void const* const properties = H5Pget_driver_info(access);
  if (properties == nullptr) return nullptr;
  auto* const file = new (std::nothrow) RecordedFile{};
  if (file == nullptr) return nullptr;
  std::memcpy(&file->recording, properties, sizeof file->recording);
  return &file->library;
}

herr_t close_file(H5FD_t* file) {
  delete &of(file);
  return 0;
}

herr_t query_features(H5FD_t const*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA;
  return 0;
}

haddr_t end_of_allocation(H5FD_t const* file, H5FD_mem_t) {
  return of(file).end_of_allocation;
}

herr_t set_end_of_allocation(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  of(file).end_of_allocation = address;
  of(file).recording->size = static_cast<std::int64_t>(address);
  return 0;
}

herr_t read_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  auto* const out = static_cast<std::byte*>(buffer);
  std::memset(out, 0, size);
  auto const begin = static_cast<std::int64_t>(address);
  auto const end = begin + static_cast<std::int64_t>(size);
  for (auto const& write : of(file).recording->writes) {
    auto const first = std::max(begin, write.offset);
    auto const last = std::min(end, write.offset + static_cast<std::int64_t>(write.bytes.size()));
    if (first < last)
      std::memcpy(out + (first - begin), write.bytes.data() + (first - write.offset),
                  static_cast<std::size_t>(last - first));
  }
  return 0;
}

herr_t write_bytes(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t size, void const* buffer) {
  std::span const bytes(static_cast<std::byte const*>(buffer), size);
  auto& recording = *of(file).recording;
  try { // no exception may pass through C code
    recording.writes.push_back({static_cast<std::int64_t>(address), std::vector(bytes.begin(), bytes.end())});
  } catch (std::bad_alloc const&) {
    // If this call failed, HDF5 would free the file only partly and crash when the program ends.
    recording.is_out_of_memory = true;
  }
  return 0;
}

H5FD_class_t make_driver() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(500); // 256 to 511 are for unregistered drivers
#endif
  driver.name = "orthant_recorder";
  driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(Hdf5Recording*);
  driver.open = open_file;
  driver.close = close_file;
  driver.query = query_features;
  driver.get_eoa = end_of_allocation;
  driver.set_eoa = set_end_of_allocation;
  driver.get_eof = end_of_allocation; // all allocated bytes will exist
  driver.read = read_bytes;
  driver.write = write_bytes;
  H5FD_mem_t const free_lists[] = H5FD_FLMAP_DICHOTOMY; // for structure and for data, as in HDF5's own driver
  std::ranges::copy(free_lists, driver.fl_map);
  return driver;
}

} // namespace

int record_writes(std::int64_t access, Hdf5Recording& recording) {
  static H5FD_class_t const driver = make_driver();
  static hid_t const id = H5FDregister(&driver);
  auto* const pointer = &recording;
  return H5Pset_driver(access, id, &pointer);
}

} // namespace orthant::runtime::detail

namespace orthant::runtime {

static_assert(std::endian::native == std::endian::little, "files are little-endian and written as memory is");

namespace {

std::int64_t product_from(Hdf5Output::Extents const& extents, std::size_t first) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(first), extents.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// Calls visit(offset, length), both in elements, for each contiguous run of a box in a row-major array, in the order of the box's
/// elements. The box must not be empty.
template<class Visit>
void for_each_run(Hdf5Output::Extents const& extents, Hdf5Output::Extents const& begin,
                  Hdf5Output::Extents const& counts, Visit&& visit) {
  // The dimensions after `last` are whole, so that a run covers them and a range of `last`.
  auto last = extents.size() - 1;
  while (last > 0 && counts[last] == extents[last])
    --last;
  auto const stride = product_from(extents, last + 1);
  auto const num_runs = product_from(counts, 0) / product_from(counts, last);
  for (std::int64_t run = 0; run < num_runs; ++run) {
    std::int64_t offset = begin[last] * stride;
    auto scale = stride * extents[last];
    for (auto dim = last, index = static_cast<std::size_t>(run); dim-- > 0;) {
      auto const count = static_cast<std::size_t>(counts[dim]);
      offset += (begin[dim] + static_cast<std::int64_t>(index % count)) * scale;
      index /= count;
      scale *= extents[dim];
    }
    visit(offset, counts[last] * stride);
  }
}

} // namespace

Hdf5Output::Hdf5Output(Communicator const& comm, std::filesystem::path const& path, std::string purpose)
    : comm_(&comm),
      staged_(StagedFile::create(comm, path, std::move(purpose))),
      structure_(Hdf5File::lay_out(path.string(), recording_)) {}

Hdf5Output::Hdf5Output(std::string name) : structure_(Hdf5File::create_in_memory(std::move(name))) {}

Hdf5Output::Place const& Hdf5Output::place_of(std::string const& name) const {
  auto const found = places_.find(name);
  ORTHANT_REQUIRE(found != places_.end(), "no array ", name);
  return found->second;
}

void Hdf5Output::create_array(std::string const& name, Hdf5Type type, Extents const& extents) {
  structure_.create_array(name, type, extents);
  places_[name] = {type, extents, structure_.offset_bytes(name)};
}

void Hdf5Output::reserve_space() {
  if (!staged_.is_open()) return;
  auto const end = structure_.end_of_arrays();
  ORTHANT_REQUIRE(all_reduced(*comm_, end, Reduction::max) == end, "ranks lay the file out differently");
  constexpr std::int64_t for_structure = 1 << 16;
  together(*comm_, [&] {
    if (!comm_->is_root()) return;
    staged_.file().reserve(end + for_structure);
    // The client of a network file system may believe that the file ends earlier, and fill the gap with zeros, which overwrites the data of
    // other ranks.
    staged_.file().set_size(end);
  });
}

void Hdf5Output::write_box(std::string const& name, Extents const& begin, Extents const& counts,
                           Hdf5Type type, std::span<std::byte const> data) {
  auto const& place = place_of(name);
  auto const element_bytes = static_cast<std::int64_t>(size_of(type));
  ORTHANT_REQUIRE(type == place.type && counts.size() == place.extents.size(), "array ", name,
                  " has another type or shape");
  for (std::size_t dim = 0; dim < counts.size(); ++dim)
    ORTHANT_REQUIRE(begin[dim] >= 0 && begin[dim] + counts[dim] <= place.extents[dim], name, ": box of ",
                    counts[dim], " elements from ", begin[dim], " of ", place.extents[dim]);
  ORTHANT_REQUIRE(product_from(counts, 0) * element_bytes == static_cast<std::int64_t>(data.size()), name,
                  ": data of ", data.size(), " bytes");
  if (data.empty()) return;
  for_each_run(place.extents, begin, counts, [&](std::int64_t offset, std::int64_t length) {
    auto const num_bytes = static_cast<std::size_t>(length * element_bytes);
    staged_.file().write_at(place.offset_bytes + offset * element_bytes, data.first(num_bytes));
    data = data.subspan(num_bytes);
  });
}

void Hdf5Output::close_structure() {
  structure_.close(); // all writes of HDF5 have been recorded now
  if (recording_.is_out_of_memory) throw std::bad_alloc();
}

void Hdf5Output::write_structure() {
  for (auto const& [offset, bytes] : recording_.writes)
    staged_.file().write_at(offset, bytes);
  staged_.file().set_size(recording_.size);
}

std::int64_t Hdf5Output::publish() {
  together(*comm_, [&] {
    close_structure();
    if (comm_->is_root()) write_structure();
  });
  staged_.publish(*comm_);
  return recording_.size;
}

std::int64_t Hdf5Output::commit() {
  write_structure();
  staged_.publish();
  return recording_.size;
}

} // namespace orthant::runtime
