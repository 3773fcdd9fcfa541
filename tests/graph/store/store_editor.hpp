#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Changes a store as somebody would who knows its format: elements, whole arrays or facts, with every
// checksum made right again.

#include "graph/crc32.hpp"
#include "graph/store/distribution.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <hdf5.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace orthant::testing {

/// A call of HDF5 that must succeed.
template<class T>
T must(T result) {
  if (result < 0) {
    H5Eprint2(H5E_DEFAULT, stderr);
    std::abort();
  }
  return result;
}

class StoreEditor {
 public:
  using Sizes = std::vector<hsize_t>;

  explicit StoreEditor(std::filesystem::path const& path)
      : file_(must(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT))) {}
  StoreEditor(StoreEditor const&) = delete;
  StoreEditor& operator=(StoreEditor const&) = delete;
  ~StoreEditor() { must(H5Fclose(file_)); }

  [[nodiscard]] hid_t file() const { return file_; }

  template<class T>
  [[nodiscard]] std::vector<T> read(std::string const& name) const {
    auto const array = must(H5Dopen2(file_, name.c_str(), H5P_DEFAULT));
    auto const space = must(H5Dget_space(array));
    std::vector<T> data(static_cast<std::size_t>(must(H5Sget_simple_extent_npoints(space))));
    must(H5Dread(array, memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()));
    must(H5Sclose(space));
    must(H5Dclose(array));
    return data;
  }
  [[nodiscard]] Sizes sizes(std::string const& name) const {
    auto const array = must(H5Dopen2(file_, name.c_str(), H5P_DEFAULT));
    auto const space = must(H5Dget_space(array));
    Sizes sizes(static_cast<std::size_t>(must(H5Sget_simple_extent_ndims(space))));
    must(H5Sget_simple_extent_dims(space, sizes.data(), nullptr));
    must(H5Sclose(space));
    must(H5Dclose(array));
    return sizes;
  }

  /// The elements of an array, changed by `edit`, and the checksums of it.
  template<class T, class Edit>
  void change(std::string const& name, Edit&& edit) {
    auto data = read<T>(name);
    edit(data);
    write(name, std::span<T const>(data));
    if (exists("/checksums" + name)) write_checksums(name, std::span<T const>(data));
  }
  /// The entries or values of a matrix in tiles, and the checksums of its tiles.
  template<class T, class Edit>
  void change_entries(std::string const& group, std::string const& leaf, Edit&& edit) {
    change<T>(group + leaf, edit);
    repair_tiles(group);
  }
  void repair_tiles(std::string const& group) {
    auto const entries = read<std::uint32_t>(group + "/entries");
    auto const values = exists(group + "/values") ? read<float>(group + "/values") : std::vector<float>();
    auto const relations = exists(group + "/relations") ? read<std::uint16_t>(group + "/relations")
                                                        : std::vector<std::uint16_t>();
    auto const rows = read<std::int64_t>(group + "/tile_row_offsets");
    auto const offsets = read<std::uint32_t>(group + "/tile_offsets");
    auto const shape = sizes(group + "/tile_checksums");
    change<std::uint32_t>(group + "/tile_checksums", [&](std::vector<std::uint32_t>& sums) {
      for (std::size_t i = 0; i < shape[0]; ++i)
        for (std::size_t j = 0; j < shape[1]; ++j) {
          auto const* const cut = &offsets[i * (shape[1] + 1) + j];
          auto const from = static_cast<std::size_t>(rows[i]) + cut[0];
          auto const size = cut[1] - cut[0];
          if (cut[1] < cut[0] || from + size > entries.size()) continue;
          auto sum = graph::crc32_of(std::as_bytes(std::span(entries).subspan(from, size)));
          if (!values.empty())
            sum = graph::crc32_of(std::as_bytes(std::span(values).subspan(from, size)), sum);
          if (!relations.empty())
            sum = graph::crc32_of(std::as_bytes(std::span(relations).subspan(from, size)), sum);
          sums[i * shape[1] + j] = sum;
        }
    });
  }

  /// Another array in place of this one. `data` may be null.
  void replace(std::string const& name, hid_t type, hid_t space, hid_t creation = H5P_DEFAULT,
               hid_t data_type = H5I_INVALID_HID, void const* data = nullptr) {
    remove(name);
    auto const array = must(H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    if (data != nullptr) must(H5Dwrite(array, data_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    must(H5Dclose(array));
  }
  void remove(std::string const& name) { must(H5Ldelete(file_, name.c_str(), H5P_DEFAULT)); }
  [[nodiscard]] bool exists(std::string const& name) const {
    for (auto slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (must(H5Lexists(file_, name.substr(0, slash).c_str(), H5P_DEFAULT)) == 0) return false;
    return must(H5Lexists(file_, name.c_str(), H5P_DEFAULT)) > 0;
  }

  /// The facts, changed by edit(json).
  template<class Edit>
  void change_facts(Edit&& edit) {
    auto json = nlohmann::json::parse(facts());
    edit(json);
    write_facts(json.dump());
  }
  [[nodiscard]] std::string facts() const {
    auto const attribute = must(H5Aopen(file_, "facts", H5P_DEFAULT));
    auto const type = must(H5Aget_type(attribute));
    std::string text(H5Tget_size(type), '\0');
    must(H5Aread(attribute, type, text.data()));
    must(H5Tclose(type));
    must(H5Aclose(attribute));
    return text;
  }
  void write_facts(std::string const& text) {
    auto const type = must(H5Tcopy(H5T_C_S1));
    must(H5Tset_size(type, std::max<std::size_t>(1, text.size())));
    must(H5Tset_strpad(type, H5T_STR_NULLPAD));
    write_attribute("facts", type, {}, text.c_str());
    must(H5Tclose(type));
    auto const sum = static_cast<std::int64_t>(graph::crc32_of(std::as_bytes(std::span(text))));
    write_attribute("facts_crc32", H5T_NATIVE_INT64, {}, &sum);
  }
  /// An attribute of the file in place of the one of that name; no sizes: a single value.
  void write_attribute(char const* name, hid_t type, Sizes const& sizes, void const* data) {
    if (must(H5Aexists(file_, name)) > 0) must(H5Adelete(file_, name));
    auto const space = sizes.empty() ? must(H5Screate(H5S_SCALAR)) : make_space(sizes);
    auto const attribute = must(H5Acreate2(file_, name, type, space, H5P_DEFAULT, H5P_DEFAULT));
    must(H5Awrite(attribute, type, data));
    must(H5Aclose(attribute));
    must(H5Sclose(space));
  }

  [[nodiscard]] static hid_t make_space(Sizes const& sizes) {
    return must(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  }

 private:
  template<class T>
  static hid_t memory_type() {
    switch (runtime::detail::hdf5_type_of<T>()) {
    case runtime::Hdf5Type::int8:
      return H5T_NATIVE_INT8;
    case runtime::Hdf5Type::uint8:
      return H5T_NATIVE_UINT8;
    case runtime::Hdf5Type::uint16:
      return H5T_NATIVE_UINT16;
    case runtime::Hdf5Type::int32:
      return H5T_NATIVE_INT32;
    case runtime::Hdf5Type::uint32:
      return H5T_NATIVE_UINT32;
    case runtime::Hdf5Type::int64:
      return H5T_NATIVE_INT64;
    case runtime::Hdf5Type::float32:
      return H5T_NATIVE_FLOAT;
    case runtime::Hdf5Type::float64:
      return H5T_NATIVE_DOUBLE;
    }
    return H5I_INVALID_HID;
  }
  template<class T>
  void write(std::string const& name, std::span<T const> data) {
    auto const array = must(H5Dopen2(file_, name.c_str(), H5P_DEFAULT));
    must(H5Dwrite(array, memory_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()));
    must(H5Dclose(array));
  }
  template<class T>
  void write_checksums(std::string const& name, std::span<T const> data) {
    auto const length = static_cast<std::size_t>(sizes(name).back());
    std::vector<std::uint32_t> sums;
    for (std::size_t row = 0; row < data.size(); row += length)
      for (std::size_t at = 0; at < length; at += graph::elements_per_checksum)
        sums.push_back(graph::crc32_of(std::as_bytes(
            data.subspan(row + at, std::min<std::size_t>(length - at, graph::elements_per_checksum)))));
    write("/checksums" + name, std::span<std::uint32_t const>(sums));
  }

  hid_t file_;
};

} // namespace orthant::testing
