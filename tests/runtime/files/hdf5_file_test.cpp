// SPDX-License-Identifier: Apache-2.0
//
// HDF5 files that somebody else made: what may differ from our own is read, and the rest is the user's
// mistake, told with the names of the file and of what is wrong in it.
#include "runtime/files/hdf5_file.hpp"

#include "runtime/error.hpp"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <numeric>

namespace orthant::runtime {
namespace {

class Hdf5FileTest : public ::testing::Test {
 protected:
  std::filesystem::path folder = [] {
    auto pattern = (std::filesystem::temp_directory_path() / "orthant-XXXXXX").string();
    return std::filesystem::path(::mkdtemp(pattern.data()));
  }();
  std::filesystem::path path = folder / "made.h5";
  hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

  ~Hdf5FileTest() override { std::filesystem::remove_all(folder); }

  /// An array of `sizes`, or a single value if there are none, of the numbers 0, 1, .. where they are few.
  void make(char const* name, hid_t type, std::vector<hsize_t> const& sizes, hid_t creation = H5P_DEFAULT) {
    auto const space = sizes.empty()
                           ? H5Screate(H5S_SCALAR)
                           : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
    auto const array = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    ASSERT_GE(array, 0);
    if (auto const count = H5Sget_simple_extent_npoints(space);
        count < 10'000 && H5Tget_class(type) != H5T_STRING) {
      std::vector<double> numbers(static_cast<std::size_t>(count));
      std::iota(numbers.begin(), numbers.end(), 0.0);
      ASSERT_GE(H5Dwrite(array, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data()), 0);
    }
    if (H5Tget_class(type) == H5T_STRING) {
      std::vector<char> const zeros(1024);
      ASSERT_GE(H5Dwrite(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), 0);
    }
    H5Dclose(array);
    H5Sclose(space);
  }
  void make_attribute(char const* name, hid_t type, std::vector<hsize_t> const& sizes, void const* data) {
    auto const space = sizes.empty()
                           ? H5Screate(H5S_SCALAR)
                           : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
    auto const attribute = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_GE(H5Awrite(attribute, type, data), 0);
    H5Aclose(attribute);
    H5Sclose(space);
  }
  [[nodiscard]] static hid_t compressed_chunks() {
    auto const creation = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t const chunk = 16;
    H5Pset_chunk(creation, 1, &chunk);
    H5Pset_deflate(creation, 6);
    return creation;
  }
  [[nodiscard]] Hdf5File reopen() {
    H5Fclose(file);
    return Hdf5File::open(path);
  }

  /// The message, which names the file and is one line.
  template<class Work>
  std::string message_of(Work&& work) {
    try {
      work();
    } catch (UserError const& error) {
      std::string const message = error.what();
      EXPECT_NE(message.find("made.h5"), std::string::npos) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      return message;
    } catch (std::exception const& error) {
      return std::string("no UserError: ") + error.what();
    }
    return "no error";
  }
};

TEST_F(Hdf5FileTest, ReadsWhatOtherProgramsMake) {
  make("double", H5T_IEEE_F64LE, {3, 4});
  make("big_endian", H5T_IEEE_F32BE, {12});
  make("compressed", H5T_IEEE_F32LE, {100}, compressed_chunks());

  auto const opened = reopen();

  EXPECT_EQ(opened.read_all<float>("/double"), opened.read_all<float>("/big_endian"));
  EXPECT_EQ(opened.read_all<float>("/compressed")[99], 99);
  EXPECT_EQ(opened.describe("/double").extents, (std::vector<std::int64_t>{3, 4}));
}

TEST_F(Hdf5FileTest, RefusesOddArrays) {
  make("scalar", H5T_IEEE_F32LE, {});
  make("text", H5T_C_S1, {5});
  make("unwritten", H5T_IEEE_F32LE, {hsize_t{1} << 40});
  make("claimed", H5T_IEEE_F32LE, {hsize_t{1} << 60}, compressed_chunks());
  make("compressed", H5T_IEEE_F32LE, {100}, compressed_chunks());
  H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Lcreate_external("/dev/zero", "/x", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/circle", file, "circle", H5P_DEFAULT, H5P_DEFAULT);

  auto const opened = reopen();
  auto const why = [&](char const* name) {
    return message_of([&] { static_cast<void>(opened.read_all<float>(name)); });
  };

  EXPECT_NE(why("/scalar").find("/scalar must be an array, but it is a single value"), std::string::npos);
  EXPECT_NE(why("/text").find("array /text cannot be read"), std::string::npos) << why("/text");
  EXPECT_NE(why("/unwritten").find("bytes, but 0 are stored"), std::string::npos) << why("/unwritten");
  EXPECT_NE(why("/claimed").find("/claimed"), std::string::npos) << why("/claimed");
  EXPECT_NE(why("/group").find("/group must be an array"), std::string::npos);
  EXPECT_NE(why("/elsewhere").find("link to another file"), std::string::npos);
  EXPECT_NE(why("/circle").find("/circle"), std::string::npos) << why("/circle");
  EXPECT_NE(why("/nothing").find("holds no array /nothing"), std::string::npos) << why("/nothing");
  EXPECT_NE(message_of([&] { static_cast<void>(opened.describe("/compressed")); }).find("contiguous"),
            std::string::npos);
  std::vector<float> data(7);
  EXPECT_NE(message_of([&] { opened.read("/compressed", {95}, {7}, std::span(data)); }).find("shape (100)"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              opened.read("/compressed", {0, 0}, {1, 7}, std::span(data));
            }).find("shape (100)"),
            std::string::npos);
}

TEST_F(Hdf5FileTest, RefusesOddAttributes) {
  std::vector<std::int64_t> const numbers(7000, 1);
  make_attribute("vector", H5T_NATIVE_INT64, {7000}, numbers.data());
  make_attribute("one", H5T_NATIVE_INT64, {1}, numbers.data());
  make_attribute("text", H5T_C_S1, {}, "1");
  auto const letters = H5Tcopy(H5T_C_S1);
  H5Tset_size(letters, 8);
  make_attribute("texts", letters, {70}, numbers.data());

  auto const opened = reopen();
  auto const why = [&](char const* name) {
    return message_of([&] { static_cast<void>(opened.read_integer("/", name)); });
  };

  EXPECT_EQ(opened.read_integer("/", "one"), 1);
  EXPECT_EQ(opened.read_text("/", "text"), "1");
  EXPECT_NE(why("vector").find("attribute vector of / must be a single value"), std::string::npos);
  EXPECT_NE(why("text").find("attribute text of / must be an integer"), std::string::npos);
  EXPECT_NE(why("none").find("no attribute none"), std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(opened.read_text("/", "texts")); }).find("single value"),
            std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(opened.read_text("/", "one")); }).find("must be a text"),
            std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(opened.read_integer("/", "vector")); }).find("single value"),
            std::string::npos);
}

} // namespace
} // namespace orthant::runtime
