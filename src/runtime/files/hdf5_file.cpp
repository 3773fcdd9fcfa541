// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_file.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_call.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

namespace detail {

void CloseHdf5::operator()(std::int64_t id) const noexcept {
  // Hdf5File::close() reports errors of a file's last flush.
  H5Idec_ref(id);
}

std::int64_t in_memory_type(Hdf5Type type) {
  switch (type) {
  case Hdf5Type::int8:
    return H5T_NATIVE_INT8;
  case Hdf5Type::uint8:
    return H5T_NATIVE_UINT8;
  case Hdf5Type::uint16:
    return H5T_NATIVE_UINT16;
  case Hdf5Type::int32:
    return H5T_NATIVE_INT32;
  case Hdf5Type::uint32:
    return H5T_NATIVE_UINT32;
  case Hdf5Type::int64:
    return H5T_NATIVE_INT64;
  case Hdf5Type::float32:
    return H5T_NATIVE_FLOAT;
  case Hdf5Type::float64:
    return H5T_NATIVE_DOUBLE;
  }
  return H5I_INVALID_HID;
}

std::int64_t in_file_type(Hdf5Type type) {
  switch (type) {
  case Hdf5Type::int8:
    return H5T_STD_I8LE;
  case Hdf5Type::uint8:
    return H5T_STD_U8LE;
  case Hdf5Type::uint16:
    return H5T_STD_U16LE;
  case Hdf5Type::int32:
    return H5T_STD_I32LE;
  case Hdf5Type::uint32:
    return H5T_STD_U32LE;
  case Hdf5Type::int64:
    return H5T_STD_I64LE;
  case Hdf5Type::float32:
    return H5T_IEEE_F32LE;
  case Hdf5Type::float64:
    return H5T_IEEE_F64LE;
  }
  return H5I_INVALID_HID;
}

} // namespace detail

namespace {

using detail::check_read;
using detail::Hdf5Handle;
using detail::take_reason;

#define ORTHANT_HDF5(call) detail::check_made((call), name_, #call)

/// Turns off HDF5's own printing, once per process; errors are thrown.
void silence_hdf5() {
  static bool const is_silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(is_silent);
}

/// Properties of new objects without times of day: equal input gives an equal file.
Hdf5Handle without_times(hid_t kind, std::string const& name_) {
  Hdf5Handle properties(ORTHANT_HDF5(H5Pcreate(kind)));
  ORTHANT_HDF5(H5Pset_obj_track_times(properties.get(), false));
  return properties;
}

std::vector<hsize_t> sizes_of(Hdf5File::Extents const& extents) {
  return {extents.begin(), extents.end()};
}

} // namespace

std::size_t size_of(Hdf5Type type) {
  switch (type) {
  case Hdf5Type::int8:
  case Hdf5Type::uint8:
    return 1;
  case Hdf5Type::uint16:
    return 2;
  case Hdf5Type::int32:
  case Hdf5Type::uint32:
  case Hdf5Type::float32:
    return 4;
  case Hdf5Type::int64:
  case Hdf5Type::float64:
    return 8;
  }
  return 0;
}

Hdf5File Hdf5File::lay_out(std::string name, detail::Hdf5Recording& recording) {
  silence_hdf5();
  auto const& name_ = name;
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  ORTHANT_HDF5(detail::record_writes(access.get(), recording));
  ORTHANT_HDF5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST));
  auto const creation = without_times(H5P_FILE_CREATE, name_);
  Hdf5Handle file(ORTHANT_HDF5(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get())));
  return {std::move(file), std::move(name)};
}

Hdf5File Hdf5File::open(std::filesystem::path const& path) {
  silence_hdf5();
  auto const name_ = path.string();
  // Opening a pipe would wait for its other end.
  struct stat status {};
  if (::stat(name_.c_str(), &status) != 0) throw_user("cannot open {}: {}", name_, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw_user("{} is a directory; an HDF5 file was expected", name_);
  if (!S_ISREG(status.st_mode)) throw_user("{} is no regular file; an HDF5 file was expected", name_);
  if (::access(name_.c_str(), R_OK) != 0) throw_user("cannot open {}: {}", name_, std::strerror(errno));
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
#if H5_VERSION_GE(1, 10, 7)
  // Shared file systems without locks are common, and no file is written while it is read: writers rename complete files.
  ORTHANT_HDF5(H5Pset_file_locking(access.get(), false, true));
#endif
  auto const is_hdf5 = H5Fis_hdf5(name_.c_str());
  if (is_hdf5 == 0)
    throw_user("{} is not an HDF5 file{}", name_,
               name_.ends_with(".safetensors") ? "; `orthant import-weights` makes weights of it" : "");
  Hdf5Handle file(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file.owns()) {
    auto const reason = take_reason();
    if (reason.find("unable to lock file") != std::string::npos)
      throw_user("cannot lock {}: another program holds it, or its file system has no locks; set "
                 "HDF5_USE_FILE_LOCKING=FALSE ({})",
                 name_, reason);
    throw_user("{} is truncated or damaged: {}", name_, reason);
  }
  return {std::move(file), name_};
}

Hdf5File Hdf5File::create_in_memory(std::string name) {
  silence_hdf5();
  auto const& name_ = name;
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  // Such files are small inputs of tests, to which fresh pages would cost most.
  constexpr std::size_t growth_bytes = std::size_t{1} << 14;
  ORTHANT_HDF5(H5Pset_fapl_core(access.get(), growth_bytes, false));
  Hdf5Handle file(ORTHANT_HDF5(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
  return {std::move(file), std::move(name)};
}

void Hdf5File::close() {
  if (!file_.owns()) return;
  auto const id = file_.release();
  ORTHANT_HDF5(H5Fclose(id));
}

bool Hdf5File::contains(std::string const& name) const {
  // Every group of the path must exist, otherwise H5Lexists fails.
  for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    auto const group = name.substr(0, slash);
    if (check_read(H5Lexists(file_.get(), group.c_str(), H5P_DEFAULT), name_, group) == 0) return false;
  }
  return name == "/" || check_read(H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT), name_, name) > 0;
}

void Hdf5File::create_array(std::string const& name, Hdf5Type type, Extents const& extents) {
  auto const sizes = sizes_of(extents);
  Hdf5Handle const space(
      ORTHANT_HDF5(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr)));
  auto const group_creation = without_times(H5P_GROUP_CREATE, name_);
  for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1))
    if (auto const group = name.substr(0, slash); !contains(group))
      Hdf5Handle(ORTHANT_HDF5(
          H5Gcreate2(file_.get(), group.c_str(), H5P_DEFAULT, group_creation.get(), H5P_DEFAULT)));
  auto const creation = without_times(H5P_DATASET_CREATE, name_);
  ORTHANT_HDF5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
  ORTHANT_HDF5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  Hdf5Handle const array(ORTHANT_HDF5(H5Dcreate2(file_.get(), name.c_str(), detail::in_file_type(type),
                                                 space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT)));
  auto const offset = H5Dget_offset(array.get());
  if (offset == HADDR_UNDEF) return; // empty
  auto const end = offset + H5Dget_storage_size(array.get());
  end_of_arrays_ = std::max(end_of_arrays_, static_cast<std::int64_t>(end));
}

void Hdf5File::write_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                         void const* data, std::size_t num_elements) {
  std::int64_t expected = 1;
  for (auto const count : counts)
    expected *= count;
  ORTHANT_REQUIRE(expected == static_cast<std::int64_t>(num_elements), name, ": box of ", expected,
                  " elements, data of ", num_elements);
  Hdf5Handle const array(ORTHANT_HDF5(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT)));
  Hdf5Handle const space(ORTHANT_HDF5(H5Dget_space(array.get())));
  auto const element_bytes = size_of(type);
  detail::for_each_piece(
      counts, element_bytes, [&](std::int64_t row, std::int64_t num_rows, std::int64_t offset) {
        auto start = sizes_of(begin);
        auto count = sizes_of(counts);
        start[0] += static_cast<hsize_t>(row);
        count[0] = static_cast<hsize_t>(num_rows);
        ORTHANT_HDF5(
            H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
        Hdf5Handle const memory(
            ORTHANT_HDF5(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr)));
        auto const* const from =
            static_cast<std::byte const*>(data) + static_cast<std::size_t>(offset) * element_bytes;
        ORTHANT_HDF5(H5Dwrite(array.get(), detail::in_memory_type(type), memory.get(), space.get(),
                              H5P_DEFAULT, from));
      });
}

namespace {

/// Opens the object that carries the attribute.
Hdf5Handle open_owner(Hdf5Handle const& file, std::string const& owner, std::string const& name_) {
  return Hdf5Handle(ORTHANT_HDF5(H5Oopen(file.get(), owner.c_str(), H5P_DEFAULT)));
}

void write_attribute_of(Hdf5Handle const& file, std::string const& name_, std::string const& owner,
                        std::string const& attribute, hid_t type, void const* value) {
  auto const object = open_owner(file, owner, name_);
  if (ORTHANT_HDF5(H5Aexists(object.get(), attribute.c_str())) > 0)
    ORTHANT_HDF5(H5Adelete(object.get(), attribute.c_str()));
  Hdf5Handle const space(ORTHANT_HDF5(H5Screate(H5S_SCALAR)));
  Hdf5Handle const id(
      ORTHANT_HDF5(H5Acreate2(object.get(), attribute.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  ORTHANT_HDF5(H5Awrite(id.get(), type, value));
}

/// Opens an attribute of one element. Otherwise HDF5 would write past the end of the variable into which it is read.
Hdf5Handle open_attribute(Hdf5Handle const& file, std::string const& name_, std::string const& owner,
                          std::string const& attribute) {
  auto const what = "attribute " + attribute + " of " + owner;
  Hdf5Handle const object(check_read(H5Oopen(file.get(), owner.c_str(), H5P_DEFAULT), name_, owner));
  if (check_read(H5Aexists(object.get(), attribute.c_str()), name_, what) == 0)
    throw_user("{}: {} has no attribute {}", name_, owner, attribute);
  Hdf5Handle id(check_read(H5Aopen(object.get(), attribute.c_str(), H5P_DEFAULT), name_, what));
  Hdf5Handle const space(check_read(H5Aget_space(id.get()), name_, what));
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL || H5Sget_simple_extent_npoints(space.get()) != 1)
    throw_user("{}: {} must be a single value", name_, what);
  return id;
}

void require_class(Hdf5Handle const& attribute, std::string const& name_, std::string const& what,
                   std::initializer_list<H5T_class_t> classes, char const* wanted) {
  Hdf5Handle const type(check_read(H5Aget_type(attribute.get()), name_, what));
  if (std::ranges::find(classes, H5Tget_class(type.get())) == classes.end())
    throw_user("{}: {} must be {}", name_, what, wanted);
}

} // namespace

void Hdf5File::write_attribute(std::string const& owner, std::string const& name, std::int64_t value) {
  write_attribute_of(file_, name_, owner, name, H5T_NATIVE_INT64, &value);
}

void Hdf5File::write_attribute(std::string const& owner, std::string const& name, double value) {
  write_attribute_of(file_, name_, owner, name, H5T_NATIVE_DOUBLE, &value);
}

void Hdf5File::write_attribute(std::string const& owner, std::string const& name, std::string const& value) {
  Hdf5Handle const type(ORTHANT_HDF5(H5Tcopy(H5T_C_S1)));
  ORTHANT_HDF5(H5Tset_size(type.get(), std::max<std::size_t>(1, value.size()))); // HDF5 has no empty text
  ORTHANT_HDF5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  auto const padded = value.empty() ? std::string(1, '\0') : value;
  write_attribute_of(file_, name_, owner, name, type.get(), padded.data());
}

bool Hdf5File::contains_attribute(std::string const& owner, std::string const& name) const {
  Hdf5Handle const object(check_read(H5Oopen(file_.get(), owner.c_str(), H5P_DEFAULT), name_, owner));
  return check_read(H5Aexists(object.get(), name.c_str()), name_, "attribute " + name + " of " + owner) > 0;
}

std::int64_t Hdf5File::read_integer(std::string const& owner, std::string const& name) const {
  auto const what = "attribute " + name + " of " + owner;
  auto const id = open_attribute(file_, name_, owner, name);
  require_class(id, name_, what, {H5T_INTEGER}, "an integer");
  std::int64_t value = 0;
  check_read(H5Aread(id.get(), H5T_NATIVE_INT64, &value), name_, what);
  return value;
}

std::string Hdf5File::read_text(std::string const& owner, std::string const& name) const {
  auto const what = "attribute " + name + " of " + owner;
  auto const id = open_attribute(file_, name_, owner, name);
  Hdf5Handle const type(check_read(H5Aget_type(id.get()), name_, what));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0)
    throw_user("{}: {} must be a text of fixed length", name_, what);
  constexpr std::size_t longest = std::size_t{1} << 20;
  auto const size = H5Tget_size(type.get());
  if (size > longest) throw_user("{}: {} has {} bytes; {} are allowed", name_, what, size, longest);
  std::string value(size, '\0');
  check_read(H5Aread(id.get(), type.get(), value.data()), name_, what);
  if (auto const end = value.find('\0'); end != std::string::npos) value.resize(end);
  return value;
}

#undef ORTHANT_HDF5

void add_up(Communicator const& comm, std::vector<std::uint64_t>& sums) {
  std::vector<std::int64_t> halves; // 32-bit halves, whose sums do not overflow
  for (auto const sum : sums) {
    halves.push_back(static_cast<std::int64_t>(sum >> 32));
    halves.push_back(static_cast<std::int64_t>(sum & 0xffffffffU));
  }
  all_reduce(host, comm, halves);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] =
        (static_cast<std::uint64_t>(halves[2 * i]) << 32) + static_cast<std::uint64_t>(halves[2 * i + 1]);
}

} // namespace orthant::runtime
