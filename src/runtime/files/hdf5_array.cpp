// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/hdf5_call.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace orthant::runtime {

namespace detail {

namespace {

/// Throws UserError for an external link, which leads to a file that the user has not named.
void require_no_external_link(Hdf5Handle const& file, std::string const& file_name, std::string const& name) {
  for (auto slash = name.find('/', 1);; slash = name.find('/', slash + 1)) {
    auto const part = name.substr(0, slash);
    auto const what = "the link " + part;
    if (check_read(H5Lexists(file.get(), part.c_str(), H5P_DEFAULT), file_name, what) == 0)
      throw_user("{} holds no array {}", file_name, name);
    H5L_info_t info;
    check_read(H5Lget_info(file.get(), part.c_str(), &info, H5P_DEFAULT), file_name, what);
    if (info.type != H5L_TYPE_HARD && info.type != H5L_TYPE_SOFT)
      throw_user("{}: {} is a link to another file; all arrays must be in this one", file_name, part);
    if (slash == std::string::npos) return;
  }
}

Hdf5Handle open_dataset(Hdf5Handle const& file, std::string const& file_name, std::string const& name) {
  require_no_external_link(file, file_name, name);
  Hdf5Handle const object(check_read(H5Oopen(file.get(), name.c_str(), H5P_DEFAULT), file_name, name));
  if (H5Iget_type(object.get()) != H5I_DATASET)
    throw_user("{}: {} must be an array, but it is a group or a type", file_name, name);
  return Hdf5Handle(check_read(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), file_name, "array " + name));
}

} // namespace

OpenArray::OpenArray(Hdf5Handle const& file, std::string const& file_name, std::string const& name)
    : file_name_(file_name),
      name_(name),
      array_(open_dataset(file, file_name, name)) {
  auto const what = "array " + name;
  space_ = Hdf5Handle(check_read(H5Dget_space(array_.get()), file_name, what));
  if (H5Sget_simple_extent_type(space_.get()) != H5S_SIMPLE)
    throw_user("{}: {} must be an array, but it is a single value", file_name, name);
  auto const num_dims = check_read(H5Sget_simple_extent_ndims(space_.get()), file_name, what);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(num_dims));
  check_read(H5Sget_simple_extent_dims(space_.get(), sizes.data(), nullptr), file_name, what);
  for (auto const size : sizes)
    extents_.push_back(checked_narrow<std::int64_t>(size, file_name + ": an extent of " + name));

  Hdf5Handle const type(check_read(H5Dget_type(array_.get()), file_name, what));
  element_bytes_ = static_cast<std::int64_t>(H5Tget_size(type.get()));
  Hdf5Handle const creation(check_read(H5Dget_create_plist(array_.get()), file_name, what));
  require_bytes(creation.get());
}

void OpenArray::require_bytes(std::int64_t property_list) const {
  auto const what = file_name_ + ": the size of " + name_;
  auto bytes = element_bytes_;
  for (auto const extent : extents_)
    bytes = checked_product(bytes, extent, what);
  auto const layout = H5Pget_layout(property_list);
  if (layout == H5D_VIRTUAL || (layout == H5D_CONTIGUOUS && H5Pget_external_count(property_list) != 0))
    throw_user("{}: the data of {} are in another file; they must be in this one", file_name_, name_);

  // A file of a few bytes may claim any extents: they are compared with the stored size before memory is allocated. Compression by deflate
  // saves at most a factor of 1,032.
  constexpr std::int64_t most_compression = 1032;
  auto const stored = checked_narrow<std::int64_t>(H5Dget_storage_size(array_.get()), what);
  bool const fits = layout == H5D_CHUNKED ? bytes / most_compression <= stored : bytes <= stored;
  if (!fits)
    throw_user("{} is damaged: the extents of {} need {} bytes, but {} are stored", file_name_, name_, bytes,
               stored);
}

Hdf5Type OpenArray::type() const {
  Hdf5Handle const found(check_read(H5Dget_type(array_.get()), file_name_, "array " + name_));
  for (auto const type : {Hdf5Type::int8, Hdf5Type::uint8, Hdf5Type::uint16, Hdf5Type::int32,
                          Hdf5Type::uint32, Hdf5Type::int64, Hdf5Type::float32, Hdf5Type::float64})
    if (H5Tequal(found.get(), in_file_type(type)) > 0) return type;
  throw_user("{}: the elements of {} must be little-endian integers or real numbers of a usual size",
             file_name_, name_);
}

std::int64_t OpenArray::offset_bytes() const {
  if (std::ranges::find(extents_, 0) != extents_.end()) return 0;
  auto const offset = H5Dget_offset(array_.get());
  if (offset == HADDR_UNDEF)
    throw_user("{}: {} must be stored as one contiguous piece, neither in chunks nor compressed", file_name_,
               name_);
  return checked_narrow<std::int64_t>(offset, file_name_ + ": the place of " + name_);
}

} // namespace detail

using detail::check_read;

namespace {
// Since HDF5 1.12, visitors get more data of an object; the older H5O_info_t has the data of the newer call.
#if H5_VERSION_GE(1, 12, 0)
constexpr auto visit_objects = H5Ovisit3;
#else
constexpr auto visit_objects = H5Ovisit2;
#endif
} // namespace

std::vector<std::string> Hdf5File::array_names() const {
  std::vector<std::string> names;
  auto const visit = [](hid_t, char const* name, H5O_info_t const* info, void* data) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(data)->push_back("/" + std::string(name));
    return 0;
  };
  check_read(visit_objects(file_.get(), H5_INDEX_NAME, H5_ITER_INC, visit, &names, H5O_INFO_BASIC), name_,
             "the list of arrays");
  std::sort(names.begin(), names.end());
  return names;
}

Hdf5File::Extents Hdf5File::extents(std::string const& name) const {
  return detail::OpenArray(file_, name_, name).extents();
}

Hdf5Type Hdf5File::type(std::string const& name) const {
  return detail::OpenArray(file_, name_, name).type();
}

std::int64_t Hdf5File::offset_bytes(std::string const& name) const {
  return detail::OpenArray(file_, name_, name).offset_bytes();
}

Hdf5Array Hdf5File::describe(std::string const& name) const {
  detail::OpenArray const array(file_, name_, name);
  return {name, array.type(), array.extents(), array.offset_bytes()};
}

std::vector<std::byte> Hdf5File::image() const {
  check_read(H5Fflush(file_.get(), H5F_SCOPE_LOCAL), name_, "the file in memory");
  auto const size = check_read(H5Fget_file_image(file_.get(), nullptr, 0), name_, "the file in memory");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  check_read(H5Fget_file_image(file_.get(), bytes.data(), bytes.size()), name_, "the file in memory");
  return bytes;
}

void Hdf5File::read_box(std::string const& name, Extents const& begin, Extents const& counts, Hdf5Type type,
                        void* data, std::size_t num_elements) const {
  std::int64_t expected = 1;
  for (auto const count : counts)
    expected *= count;
  ORTHANT_REQUIRE(expected == static_cast<std::int64_t>(num_elements), name, ": box of ", expected,
                  " elements, data of ", num_elements);
  detail::OpenArray const array(file_, name_, name);
  auto const& extents = array.extents();
  ORTHANT_REQUIRE(begin.size() == counts.size());
  bool is_inside = extents.size() == counts.size();
  for (std::size_t d = 0; is_inside && d < counts.size(); ++d)
    is_inside = begin[d] >= 0 && counts[d] >= 0 && begin[d] <= extents[d] - counts[d];
  if (!is_inside)
    throw_user("{}: array {} has the shape ({}); elements ({}) from ({}) were expected in it", name_, name,
               fmt::join(extents, " x "), fmt::join(counts, " x "), fmt::join(begin, ", "));
  auto const element_bytes = size_of(type);
  auto const what = "array " + name;
  detail::for_each_piece(
      counts, element_bytes, [&](std::int64_t row, std::int64_t num_rows, std::int64_t at) {
        std::vector<hsize_t> start(begin.begin(), begin.end());
        std::vector<hsize_t> count(counts.begin(), counts.end());
        start[0] += static_cast<hsize_t>(row);
        count[0] = static_cast<hsize_t>(num_rows);
        check_read(
            H5Sselect_hyperslab(array.space(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
            name_, what);
        detail::Hdf5Handle const memory(
            check_read(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), name_, what));
        auto* const to = static_cast<std::byte*>(data) + static_cast<std::size_t>(at) * element_bytes;
        check_read(
            H5Dread(array.id(), detail::in_memory_type(type), memory.get(), array.space(), H5P_DEFAULT, to),
            name_, what);
      });
  bytes_read_ += expected * array.element_bytes();
}

} // namespace orthant::runtime
