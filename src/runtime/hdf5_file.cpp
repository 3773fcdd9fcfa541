// SPDX-License-Identifier: Apache-2.0
#include "runtime/hdf5_file.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <hdf5.h>
#include <utility>

namespace orthant::runtime {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

namespace detail {
void CloseHdf5::operator()(std::int64_t id) const noexcept {
  // Errors of a file's last flush are Hdf5File::close's business.
  H5Idec_ref(id);
}
} // namespace detail

namespace {

using detail::Hdf5Handle;

/// The innermost reason on HDF5's error stack, and the stack cleared.
std::string take_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, H5E_error2_t const* error, void* data) -> herr_t {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(data) = error->desc;
        return 0;
      },
      &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason.empty() ? "no reason given" : reason;
}

[[noreturn]] void fail(std::string const& file, char const* call) {
  throw Error(fmt::format("{}: {} failed: {}", file, call, take_reason()));
}

/// HDF5 returns a negative number on failure, whatever the type.
template<class T>
T check(T result, std::string const& file, char const* call) {
  if (result < 0) fail(file, call);
  return result;
}
#define ORTHANT_HDF5(call) check((call), name_, #call)

// HDF5 1.12 tells visitors more of an object; its H5O_info_t is what the newer call gives.
#if H5_VERSION_GE(1, 12, 0)
constexpr auto visit_objects = H5Ovisit3;
#else
constexpr auto visit_objects = H5Ovisit2;
#endif

/// No printing of its own; errors are thrown. Once a process.
void silence_hdf5() {
  static bool const is_silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(is_silent);
}

hid_t in_memory_type(Hdf5Type type) {
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

hid_t in_file_type(Hdf5Type type) {
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

std::vector<hsize_t> sizes_of(Hdf5File::Extents const& extents) {
  return {extents.begin(), extents.end()};
}

/// One write or read call moves at most this much, so that MPI-IO's 32-bit counts never matter.
constexpr std::int64_t max_bytes_per_call = std::int64_t{1} << 28;

/// Cuts a box along its first dimension in pieces of bounded size: visit(first row, number of rows, offset in
/// elements).
template<class Visit>
void for_each_piece(Hdf5File::Extents const& counts, std::size_t element_bytes, Visit&& visit) {
  std::int64_t row_elements = 1;
  for (std::size_t d = 1; d < counts.size(); ++d)
    row_elements *= counts[d];
  if (counts[0] == 0 || row_elements == 0) return;
  auto const row_bytes = row_elements * static_cast<std::int64_t>(element_bytes);
  auto const rows_per_call = std::max<std::int64_t>(1, max_bytes_per_call / row_bytes);
  for (std::int64_t row = 0; row < counts[0]; row += rows_per_call)
    visit(row, std::min(rows_per_call, counts[0] - row), row * row_elements);
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

Hdf5File Hdf5File::create(Communicator const& comm, std::filesystem::path const& path) {
  silence_hdf5();
  auto const name_ = path.string();
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  ORTHANT_HDF5(H5Pset_fapl_mpio(access.get(), comm.mpi(), MPI_INFO_NULL));
  ORTHANT_HDF5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST));
  Hdf5Handle file(H5Fcreate(name_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
  if (!file.owns()) throw_user("cannot create {}: {}", name_, take_reason());
  return {std::move(file), name_};
}

Hdf5File Hdf5File::open(std::filesystem::path const& path) {
  silence_hdf5();
  auto const name_ = path.string();
  std::error_code status;
  if (std::filesystem::is_directory(path, status))
    throw_user("{} is a directory; an HDF5 file was expected", name_);
  if (auto* const stream = std::fopen(name_.c_str(), "rb"); stream == nullptr)
    throw_user("cannot open {}: {}", name_, std::strerror(errno));
  else
    std::fclose(stream);
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
#if H5_VERSION_GE(1, 10, 7)
  // Shared file systems without locks are common, and nobody writes a file that others read: it is renamed.
  ORTHANT_HDF5(H5Pset_file_locking(access.get(), false, true));
#endif
  auto const is_hdf5 = H5Fis_hdf5(name_.c_str());
  if (is_hdf5 == 0) throw_user("{} is not an HDF5 file", name_);
  Hdf5Handle file(H5Fopen(name_.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!file.owns()) throw_user("{} is truncated or damaged: {}", name_, take_reason());
  return {std::move(file), name_};
}

Hdf5File Hdf5File::create_in_memory(std::string name) {
  silence_hdf5();
  auto const& name_ = name;
  Hdf5Handle const access(ORTHANT_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  constexpr std::size_t growth_bytes = std::size_t{1} << 20;
  ORTHANT_HDF5(H5Pset_fapl_core(access.get(), growth_bytes, false));
  Hdf5Handle file(ORTHANT_HDF5(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
  return {std::move(file), std::move(name)};
}

void Hdf5File::close() {
  if (!file_.owns()) return;
  auto const id = file_.release();
  if (H5Fclose(id) < 0) fail(name_, "H5Fclose");
}

bool Hdf5File::contains(std::string const& name) const {
  // Every group on the way must be there, else HDF5 calls the question an error.
  for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1))
    if (ORTHANT_HDF5(H5Lexists(file_.get(), name.substr(0, slash).c_str(), H5P_DEFAULT)) == 0) return false;
  return name == "/" || ORTHANT_HDF5(H5Lexists(file_.get(), name.c_str(), H5P_DEFAULT)) > 0;
}

std::vector<std::string> Hdf5File::array_names() const {
  std::vector<std::string> names;
  auto const visit = [](hid_t, char const* name, H5O_info_t const* info, void* data) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(data)->push_back("/" + std::string(name));
    return 0;
  };
  ORTHANT_HDF5(visit_objects(file_.get(), H5_INDEX_NAME, H5_ITER_INC, visit, &names, H5O_INFO_BASIC));
  std::sort(names.begin(), names.end());
  return names;
}

void Hdf5File::create_array(std::string const& name, Hdf5Type type, Extents const& extents) {
  auto const sizes = sizes_of(extents);
  Hdf5Handle const space(
      ORTHANT_HDF5(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr)));
  Hdf5Handle const links(ORTHANT_HDF5(H5Pcreate(H5P_LINK_CREATE)));
  ORTHANT_HDF5(H5Pset_create_intermediate_group(links.get(), 1));
  Hdf5Handle const creation(ORTHANT_HDF5(H5Pcreate(H5P_DATASET_CREATE)));
  ORTHANT_HDF5(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY));
  ORTHANT_HDF5(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER));
  ORTHANT_HDF5(H5Pset_obj_track_times(creation.get(), false)); // equal input, equal file
  Hdf5Handle const array(ORTHANT_HDF5(H5Dcreate2(file_.get(), name.c_str(), in_file_type(type), space.get(),
                                                 links.get(), creation.get(), H5P_DEFAULT)));
  auto const offset = H5Dget_offset(array.get());
  if (offset == HADDR_UNDEF) return; // empty
  auto const end = offset + H5Dget_storage_size(array.get());
  end_of_arrays_ = std::max(end_of_arrays_, static_cast<std::int64_t>(end));
}

Hdf5File::Extents Hdf5File::extents(std::string const& name) const {
  Hdf5Handle const array(ORTHANT_HDF5(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT)));
  Hdf5Handle const space(ORTHANT_HDF5(H5Dget_space(array.get())));
  auto const num_dims = ORTHANT_HDF5(H5Sget_simple_extent_ndims(space.get()));
  std::vector<hsize_t> sizes(static_cast<std::size_t>(num_dims));
  ORTHANT_HDF5(H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr));
  return {sizes.begin(), sizes.end()};
}

std::int64_t Hdf5File::offset_bytes(std::string const& name) const {
  Hdf5Handle const array(ORTHANT_HDF5(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT)));
  auto const offset = H5Dget_offset(array.get());
  return offset == HADDR_UNDEF ? 0 : static_cast<std::int64_t>(offset);
}

Hdf5Type Hdf5File::type(std::string const& name) const {
  Hdf5Handle const array(ORTHANT_HDF5(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT)));
  Hdf5Handle const found(ORTHANT_HDF5(H5Dget_type(array.get())));
  for (auto const type : {Hdf5Type::int8, Hdf5Type::uint8, Hdf5Type::uint16, Hdf5Type::int32,
                          Hdf5Type::uint32, Hdf5Type::int64, Hdf5Type::float32, Hdf5Type::float64})
    if (H5Tequal(found.get(), in_file_type(type)) > 0) return type;
  throw_user("{}: array {} holds elements of an unknown type", name_, name);
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
  for_each_piece(counts, element_bytes, [&](std::int64_t row, std::int64_t num_rows, std::int64_t offset) {
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
    ORTHANT_HDF5(H5Dwrite(array.get(), in_memory_type(type), memory.get(), space.get(), H5P_DEFAULT, from));
  });
}

void Hdf5File::read_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                        void* data, std::size_t num_elements) const {
  std::int64_t expected = 1;
  for (auto const count : counts)
    expected *= count;
  ORTHANT_REQUIRE(expected == static_cast<std::int64_t>(num_elements), name, ": box of ", expected,
                  " elements, data of ", num_elements);
  Hdf5Handle const array(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT));
  if (!array.owns()) throw_user("{}: no array {}: {}", name_, name, take_reason());
  Hdf5Handle const space(ORTHANT_HDF5(H5Dget_space(array.get())));
  Hdf5Handle const stored(ORTHANT_HDF5(H5Dget_type(array.get())));
  auto const element_bytes = size_of(type);
  for_each_piece(counts, element_bytes, [&](std::int64_t row, std::int64_t num_rows, std::int64_t offset) {
    auto start = sizes_of(begin);
    auto count = sizes_of(counts);
    start[0] += static_cast<hsize_t>(row);
    count[0] = static_cast<hsize_t>(num_rows);
    ORTHANT_HDF5(
        H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr));
    Hdf5Handle const memory(
        ORTHANT_HDF5(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr)));
    auto* const to = static_cast<std::byte*>(data) + static_cast<std::size_t>(offset) * element_bytes;
    if (H5Dread(array.get(), in_memory_type(type), memory.get(), space.get(), H5P_DEFAULT, to) < 0)
      throw_user("{}: cannot read array {}: {}", name_, name, take_reason());
  });
  bytes_read_ += expected * static_cast<std::int64_t>(H5Tget_size(stored.get()));
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

Hdf5Handle open_attribute(Hdf5Handle const& file, std::string const& name_, std::string const& owner,
                          std::string const& attribute) {
  auto const object = open_owner(file, owner, name_);
  Hdf5Handle id(H5Aopen(object.get(), attribute.c_str(), H5P_DEFAULT));
  if (!id.owns()) throw_user("{}: {} has no attribute {}: {}", name_, owner, attribute, take_reason());
  return id;
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
  auto const object = open_owner(file_, owner, name_);
  return ORTHANT_HDF5(H5Aexists(object.get(), name.c_str())) > 0;
}

std::int64_t Hdf5File::read_integer(std::string const& owner, std::string const& name) const {
  auto const id = open_attribute(file_, name_, owner, name);
  std::int64_t value = 0;
  ORTHANT_HDF5(H5Aread(id.get(), H5T_NATIVE_INT64, &value));
  return value;
}

double Hdf5File::read_real(std::string const& owner, std::string const& name) const {
  auto const id = open_attribute(file_, name_, owner, name);
  double value = 0;
  ORTHANT_HDF5(H5Aread(id.get(), H5T_NATIVE_DOUBLE, &value));
  return value;
}

std::string Hdf5File::read_text(std::string const& owner, std::string const& name) const {
  auto const id = open_attribute(file_, name_, owner, name);
  Hdf5Handle const type(ORTHANT_HDF5(H5Aget_type(id.get())));
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) > 0)
    throw_user("{}: attribute {} of {} is not a text of fixed length", name_, name, owner);
  std::string value(H5Tget_size(type.get()), '\0');
  ORTHANT_HDF5(H5Aread(id.get(), type.get(), value.data()));
  if (auto const end = value.find('\0'); end != std::string::npos) value.resize(end);
  return value;
}

#undef ORTHANT_HDF5

} // namespace orthant::runtime
