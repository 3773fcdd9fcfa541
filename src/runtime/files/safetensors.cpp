// SPDX-License-Identifier: Apache-2.0
#include "runtime/files/safetensors.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/files/staged_file.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace orthant::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::int64_t most_header_bytes = 100'000'000; // as in the format's own library
constexpr std::int64_t length_bytes = 8;
constexpr int deepest_header = 8; // three levels are needed

struct NamedType {
  std::string_view name;
  TensorType type;
  std::int64_t num_bytes;
};
constexpr std::array<NamedType, 4> types{{{"F16", TensorType::float16, 2},
                                          {"BF16", TensorType::bfloat16, 2},
                                          {"F32", TensorType::float32, 4},
                                          {"F64", TensorType::float64, 8}}};

NamedType const& named(TensorType type) {
  return *std::ranges::find(types, type, &NamedType::type);
}

/// Creates the errors of a file: "w.safetensors: .."
class Complaint {
 public:
  explicit Complaint(std::filesystem::path const& path) : path_(path.string()) {}
  template<class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw_user("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string path_;
};

/// The header as JSON. Throws if a name occurs twice, because readers differ in which one they use.
nlohmann::json parse_header(std::string const& text, Complaint const& complaint) {
  std::vector<std::set<std::string>> names; // names of the open objects
  auto const refuse_repeats = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > deepest_header) complaint.refuse("its header is nested deeper than that of any such file");
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(parsed.get<std::string>()).second)
      complaint.refuse("its header has '{}' twice", parsed.get<std::string>());
    return true;
  };
  try {
    auto header = nlohmann::json::parse(text, refuse_repeats);
    if (!header.is_object()) complaint.refuse("its header is no JSON object");
    return header;
  } catch (nlohmann::json::exception const&) {
    complaint.refuse("its header is no JSON: this is no safetensors file, or a damaged one");
  }
}

/// A list of non-negative integers.
std::vector<std::int64_t> counts_of(nlohmann::json const& list, std::string const& tensor, char const* what,
                                    Complaint const& complaint) {
  std::vector<std::int64_t> counts;
  auto const is_count = [](nlohmann::json const& one) {
    return one.is_number_unsigned() && one.get<std::uint64_t>() <= std::uint64_t{INT64_MAX};
  };
  if (!list.is_array() || !std::ranges::all_of(list, is_count))
    complaint.refuse("the {} of '{}' is no list of counts", what, tensor);
  for (auto const& one : list)
    counts.push_back(one.get<std::int64_t>());
  return counts;
}

TensorMetadata metadata_of(nlohmann::json const& header, Complaint const& complaint) {
  TensorMetadata metadata;
  auto const found = header.find("__metadata__");
  if (found == header.end()) return metadata;
  if (!found->is_object()) complaint.refuse("its __metadata__ is no JSON object");
  for (auto const& [key, text] : found->items()) {
    if (!text.is_string()) complaint.refuse("'{}' of its __metadata__ is no text", key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

struct Place {
  Tensor tensor;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Place place_of(std::string const& name, nlohmann::json const& entry, Complaint const& complaint) {
  for (auto const* const key : {"dtype", "shape", "data_offsets"})
    if (!entry.is_object() || !entry.contains(key)) complaint.refuse("'{}' has no {}", name, key);
  Place place;
  place.tensor.name = name;
  auto const type =
      std::ranges::find_if(types, [&](auto const& each) { return entry["dtype"] == each.name; });
  if (type == types.end())
    complaint.refuse("'{}' is of the type {}; F16, BF16, F32 and F64 are read", name, entry["dtype"].dump());
  place.tensor.type = type->type;
  place.tensor.shape = counts_of(entry["shape"], name, "shape", complaint);
  auto const offsets = counts_of(entry["data_offsets"], name, "data_offsets", complaint);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    complaint.refuse("the data_offsets of '{}' are no range", name);
  place.begin = offsets[0];
  place.end = offsets[1];
  auto wanted = std::int64_t{0};
  try {
    wanted = checked_product(place.tensor.num_elements(), type->num_bytes, "the bytes of " + name);
  } catch (UserError const& error) {
    complaint.refuse("{}", error.what());
  }
  if (place.end - place.begin != wanted)
    complaint.refuse("'{}' has {} bytes, but its shape needs {}", name, place.end - place.begin, wanted);
  return place;
}

std::vector<std::byte> read_bytes(std::filesystem::path const& path, std::int64_t offset,
                                  std::int64_t num_bytes) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(num_bytes));
  open_file_bytes(path)->read(offset, bytes);
  return bytes;
}

std::int64_t num_rows_of(Tensor const& tensor) {
  return tensor.shape.size() < 2 ? 1 : tensor.shape.front();
}

template<class Stored, class T, class Convert>
void convert(std::span<std::byte const> bytes, std::vector<T>& numbers, Convert const& to_number) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Stored stored;
    std::copy_n(bytes.data() + i * sizeof(Stored), sizeof(Stored), reinterpret_cast<std::byte*>(&stored));
    numbers[i] = static_cast<T>(to_number(stored));
  }
}

} // namespace

std::int64_t Tensor::num_elements() const {
  std::int64_t product = 1;
  for (auto const extent : shape)
    product = checked_product(product, extent, "the size of " + name);
  return product;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  Complaint const complaint(path_);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error)) complaint.refuse("there is no such file");
  auto const size = static_cast<std::int64_t>(std::filesystem::file_size(path_));
  if (size < length_bytes) complaint.refuse("{} bytes are too few for a safetensors file", size);
  auto const length = read_bytes(path_, 0, length_bytes);
  std::uint64_t header_bytes = 0;
  std::copy(length.begin(), length.end(), reinterpret_cast<std::byte*>(&header_bytes));
  if (header_bytes > std::uint64_t{most_header_bytes} ||
      static_cast<std::int64_t>(header_bytes) > size - length_bytes)
    complaint.refuse("a header of {} bytes does not fit: this is no safetensors file, or it is cut off",
                     header_bytes);
  auto const data = length_bytes + static_cast<std::int64_t>(header_bytes);
  auto const text = read_bytes(path_, length_bytes, data - length_bytes);
  auto const header =
      parse_header(std::string(reinterpret_cast<char const*>(text.data()), text.size()), complaint);
  metadata_ = metadata_of(header, complaint);

  std::vector<Place> places;
  for (auto const& [name, entry] : header.items())
    if (name != "__metadata__") places.push_back(place_of(name, entry, complaint));
  // In the order of offsets, each tensor must begin at the end of the one before, and the last one must end with the file.
  auto by_offset = places;
  std::ranges::sort(by_offset, {}, [](Place const& place) { return std::pair(place.begin, place.end); });
  std::int64_t end = 0;
  for (auto const& place : by_offset) {
    if (place.begin != end)
      complaint.refuse("'{}' begins at byte {} of the data, not at {}", place.tensor.name, place.begin, end);
    end = place.end;
  }
  if (end != size - data)
    complaint.refuse("its tensors take {} bytes, but {} follow its header", end, size - data);
  for (auto& place : places) {
    offsets_.push_back(data + place.begin);
    tensors_.push_back(std::move(place.tensor));
  }
}

bool SafetensorsFile::has_float64() const {
  return std::ranges::find(tensors_, TensorType::float64, &Tensor::type) != tensors_.end();
}

template<class T>
std::vector<T> SafetensorsFile::read(std::string const& name, std::optional<Range> range) const {
  auto const found = std::ranges::find(tensors_, name, &Tensor::name);
  if (found == tensors_.end()) throw_user("{}: there is no tensor '{}' in it", path_.string(), name);
  auto const [begin, end] = range.value_or(Range{0, found->num_elements()});
  ORTHANT_REQUIRE(begin >= 0 && begin <= end && end <= found->num_elements(), "numbers ", begin, " to ", end,
                  " of ", found->num_elements(), " of ", name);
  auto const num_bytes = named(found->type).num_bytes;
  auto const offset = offsets_[static_cast<std::size_t>(found - tensors_.begin())];
  auto const bytes = read_bytes(path_, offset + begin * num_bytes, (end - begin) * num_bytes);
  std::vector<T> numbers(static_cast<std::size_t>(end - begin));
  switch (found->type) {
  case TensorType::float16:
    convert<std::uint16_t>(bytes, numbers, decode_fp16);
    break;
  case TensorType::bfloat16:
    convert<std::uint16_t>(bytes, numbers, decode_bf16);
    break;
  case TensorType::float32:
    convert<float>(bytes, numbers, std::identity());
    break;
  case TensorType::float64:
    convert<double>(bytes, numbers, std::identity());
    break;
  }
  return numbers;
}

template<class T>
void write_safetensors(std::filesystem::path const& path, std::vector<Tensor> const& tensors,
                       TensorMetadata const& metadata,
                       std::function<std::vector<T>(std::size_t, Range)> const& numbers_of) {
  auto const type = sizeof(T) == 4 ? TensorType::float32 : TensorType::float64;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t end = 0;
  for (auto const& tensor : tensors) {
    ORTHANT_REQUIRE(tensor.type == type, "tensor ", tensor.name, " of another type than its numbers");
    auto const begin = end;
    end += tensor.num_elements() * named(type).num_bytes;
    header[tensor.name] = {
        {"dtype", named(type).name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  auto text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' '); // aligns the numbers
  auto const header_bytes = static_cast<std::uint64_t>(text.size());

  StagedFile staged(path, "weights");
  auto& file = staged.file();
  file.reserve(length_bytes + static_cast<std::int64_t>(header_bytes) + end);
  file.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
  file.write_at(length_bytes, std::as_bytes(std::span(text)));
  auto offset = length_bytes + static_cast<std::int64_t>(header_bytes);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto const num_rows = num_rows_of(tensors[i]);
    auto const width = num_rows == 0 ? 0 : tensors[i].num_elements() / num_rows;
    auto const per_piece =
        std::max(std::int64_t{1}, most_numbers_of_piece / std::max(std::int64_t{1}, width));
    for (std::int64_t row = 0; row < num_rows; row += per_piece) {
      Range const rows{row, std::min(row + per_piece, num_rows)};
      auto const numbers = numbers_of(i, rows);
      ORTHANT_REQUIRE(static_cast<std::int64_t>(numbers.size()) == rows.size() * width, "rows ", rows.begin,
                      " to ", rows.end, " of ", tensors[i].name, " have ", numbers.size(), " numbers");
      file.write_at(offset, std::as_bytes(std::span(numbers)));
      offset += static_cast<std::int64_t>(numbers.size() * sizeof(T));
    }
  }
  staged.publish();
}

template<class T>
void write_safetensors(std::filesystem::path const& path, std::vector<Tensor> const& tensors,
                       TensorMetadata const& metadata,
                       std::function<std::vector<T>(std::size_t)> const& numbers_of) {
  std::vector<T> whole; // numbers of the tensor whose rows are being written
  write_safetensors<T>(path, tensors, metadata, [&](std::size_t i, Range rows) {
    if (rows.begin == 0) whole = numbers_of(i);
    ORTHANT_REQUIRE(static_cast<std::int64_t>(whole.size()) == tensors[i].num_elements(), "tensor ",
                    tensors[i].name, " has ", whole.size(), " numbers");
    auto const width = std::ssize(whole) / num_rows_of(tensors[i]);
    return std::vector<T>(whole.begin() + rows.begin * width, whole.begin() + rows.end * width);
  });
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template std::vector<T> SafetensorsFile::read(std::string const&, std::optional<Range>) const;             \
  template void write_safetensors(std::filesystem::path const&, std::vector<Tensor> const&,                  \
                                  TensorMetadata const&,                                                     \
                                  std::function<std::vector<T>(std::size_t, Range)> const&);                 \
  template void write_safetensors(std::filesystem::path const&, std::vector<Tensor> const&,                  \
                                  TensorMetadata const&, std::function<std::vector<T>(std::size_t)> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::runtime
