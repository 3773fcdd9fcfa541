// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_recorder.hpp"

#include <algorithm>
#include <cstring>
#include <hdf5.h>
#include <new>
#include <span>
#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h> // from HDF5 1.14 on drivers have a header of their own
#endif

namespace orthant::runtime::detail {
namespace {

/// An open file as HDF5 knows it: its own fields come first.
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

/// Driver's properties are a pointer to the recording, copied as bytes.
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
  try { // no exception may pass through C
    recording.writes.push_back({static_cast<std::int64_t>(address), std::vector(bytes.begin(), bytes.end())});
  } catch (std::bad_alloc const&) {
    // A failure would make HDF5 free the file half and crash when the program ends.
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
  driver.get_eof = end_of_allocation; // all that is allocated will be there
  driver.read = read_bytes;
  driver.write = write_bytes;
  H5FD_mem_t const free_lists[] = H5FD_FLMAP_DICHOTOMY; // of structure and of data, as in HDF5's own driver
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
