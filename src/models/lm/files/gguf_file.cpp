// SPDX-License-Identifier: Apache-2.0
#include "models/lm/files/gguf_file.hpp"

#include "runtime/error.hpp"
#include "runtime/files/byte_source.hpp"
#include "runtime/numbers/counts.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

namespace orthant::models {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian");

constexpr std::int64_t most_header_bytes = 256'000'000;
constexpr std::uint64_t most_values = std::uint64_t{1} << 24;
constexpr std::uint64_t most_tensors_or_keys = 1'000'000;
constexpr std::array<std::string_view, 3> kept_lists{"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                                     "tokenizer.ggml.merges"};
constexpr std::int64_t block_size = 32;

struct GgufKind {
  std::uint32_t number;
  std::int64_t num_values; // of a block
  std::int64_t num_bytes;
};
enum : std::uint32_t { kind_f32 = 0, kind_f16 = 1, kind_q4_1 = 3, kind_q8_0 = 8, kind_bf16 = 30 };
constexpr std::array<GgufKind, 5> gguf_kinds{{{kind_f32, 1, 4},
                                              {kind_f16, 1, 2},
                                              {kind_q4_1, block_size, 20},
                                              {kind_q8_0, block_size, 34},
                                              {kind_bf16, 1, 2}}};

/// The names of ggml's enum ggml_type, for messages.
std::string kind_name(std::uint32_t kind) {
  constexpr std::array names{"F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
                             "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                             "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                             "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};
  if (kind < names.size() && *names.at(kind) != 0) return names.at(kind);
  return fmt::format("number {}", kind);
}

/// Types of metadata, as numbered in the file.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

/// Reads the header from front to back.
class Header {
 public:
  explicit Header(std::filesystem::path const& path)
      : source_(runtime::open_file_bytes(path)),
        name_(path.string()) {}

  template<class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    runtime::throw_user("{}: {}", name_, fmt::format(text, std::forward<Args>(args)...));
  }
  [[nodiscard]] std::int64_t position() const { return position_; }
  [[nodiscard]] std::int64_t size() const { return source_->size(); }

  template<class T>
  T take() {
    T value;
    take_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::string take_text() {
    auto const length = take<std::uint64_t>();
    require_space(length);
    std::string text(static_cast<std::size_t>(length), 0);
    take_bytes(std::as_writable_bytes(std::span(text)));
    return text;
  }
  /// A key or the name of a tensor, which messages show: printable ASCII.
  std::string take_name() {
    auto name = take_text();
    if (!std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; }))
      refuse("a name in its header is damaged");
    return name;
  }
  nlohmann::json take_value(std::string const& key) {
    auto const type = take<std::uint32_t>();
    if (ValueType{type} != ValueType::array) return take_scalar(type, key);
    auto const each = take<std::uint32_t>();
    auto const count = take<std::uint64_t>();
    require_space(count); // a value has at least a byte
    if (count > most_values) refuse("'{}' has {} values", key, count);
    auto values = nlohmann::json::array();
    auto const is_kept = std::ranges::find(kept_lists, key) != kept_lists.end();
    for (std::uint64_t i = 0; i < count; ++i) {
      auto value = take_scalar(each, key);
      if (is_kept) values.push_back(std::move(value));
    }
    return is_kept ? values : nlohmann::json();
  }

 private:
  void require_space(std::uint64_t num_bytes) const {
    if (num_bytes > static_cast<std::uint64_t>(source_->size() - position_))
      refuse("its header ends in the middle of a value: the file is damaged or cut off");
    if (num_bytes > static_cast<std::uint64_t>(std::max<std::int64_t>(0, most_header_bytes - position_)))
      refuse("its header is longer than {} bytes", most_header_bytes);
  }
  void take_bytes(std::span<std::byte> out) {
    require_space(out.size());
    while (!out.empty()) {
      if (next_ == window_.size()) {
        window_.resize(static_cast<std::size_t>(
            std::min<std::int64_t>(source_->size() - position_, std::int64_t{1} << 20)));
        source_->read(position_, window_);
        next_ = 0;
      }
      auto const count = std::min(out.size(), window_.size() - next_);
      std::copy_n(window_.begin() + static_cast<std::ptrdiff_t>(next_), count, out.begin());
      next_ += count;
      position_ += static_cast<std::int64_t>(count);
      out = out.subspan(count);
    }
  }
  nlohmann::json take_scalar(std::uint32_t type, std::string const& key) {
    switch (ValueType{type}) {
    case ValueType::u8:
      return take<std::uint8_t>();
    case ValueType::i8:
      return take<std::int8_t>();
    case ValueType::u16:
      return take<std::uint16_t>();
    case ValueType::i16:
      return take<std::int16_t>();
    case ValueType::u32:
      return take<std::uint32_t>();
    case ValueType::i32:
      return take<std::int32_t>();
    // The shortest decimal number, because 1e-5 in fp32 stands for the 1e-5 of a config.json.
    case ValueType::f32:
      return finite(std::stod(fmt::format("{}", take<float>())), key);
    case ValueType::boolean:
      return take<std::uint8_t>() != 0;
    case ValueType::text:
      return take_text();
    case ValueType::u64:
      return take<std::uint64_t>();
    case ValueType::i64:
      return take<std::int64_t>();
    case ValueType::f64:
      return finite(take<double>(), key);
    case ValueType::array:
      break;
    }
    refuse("'{}' has values of type {}, which is not one of the format", key, type);
  }
  [[nodiscard]] double finite(double value, std::string const& key) const {
    if (!std::isfinite(value)) refuse("'{}' is {}", key, value);
    return value;
  }

  std::unique_ptr<runtime::ByteSource> source_;
  std::string name_;
  std::vector<std::byte> window_;
  std::size_t next_ = 0; // in window_
  std::int64_t position_ = 0;
};

GgufKind const* find_kind(std::uint32_t number) {
  auto const* const found = std::ranges::find(gguf_kinds, number, &GgufKind::number);
  return found == gguf_kinds.end() ? nullptr : found;
}

std::int64_t num_elements(GgufTensor const& tensor) {
  std::int64_t product = 1;
  for (auto const extent : tensor.shape)
    product = runtime::checked_product(product, extent, "the size of " + tensor.name);
  return product;
}

std::int64_t num_bytes(GgufTensor const& tensor) {
  auto const& kind = *find_kind(tensor.kind);
  return runtime::checked_product(num_elements(tensor) / kind.num_values, kind.num_bytes,
                                  "the bytes of " + tensor.name);
}

GgufTensor take_tensor(Header& header) {
  GgufTensor tensor;
  tensor.name = header.take_name();
  auto const num_dims = header.take<std::uint32_t>();
  if (num_dims < 1 || num_dims > 4) header.refuse("'{}' has {} dims", tensor.name, num_dims);
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    auto const extent = header.take<std::uint64_t>();
    if (extent < 1 || extent > std::uint64_t{1} << 40)
      header.refuse("'{}' has an extent of {}", tensor.name, extent);
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  tensor.kind = header.take<std::uint32_t>();
  auto const* const kind = find_kind(tensor.kind);
  if (kind == nullptr)
    header.refuse("'{}' is of the kind {}; F32, F16, BF16, Q4_1 and Q8_0 are read", tensor.name,
                  kind_name(tensor.kind));
  if (tensor.shape.back() % kind->num_values != 0)
    header.refuse("'{}' has rows of {} numbers, which are not whole blocks of {}", tensor.name,
                  tensor.shape.back(), kind->num_values);
  auto const offset = header.take<std::uint64_t>();
  if (offset > static_cast<std::uint64_t>(header.size()))
    header.refuse("the numbers of '{}' lie outside the file", tensor.name);
  tensor.offset = static_cast<std::int64_t>(offset);
  return tensor;
}

std::int64_t alignment_of(nlohmann::json const& metadata, Header const& header) {
  auto const found = metadata.find("general.alignment");
  if (found == metadata.end()) return 32;
  if (!found->is_number_unsigned() || !std::has_single_bit(found->get<std::uint64_t>()) ||
      found->get<std::uint64_t>() > 1 << 20)
    header.refuse("general.alignment is not a power of two up to 2^20");
  return found->get<std::int64_t>();
}

/// Makes offsets those in the file. The numbers of all tensors must lie in the file and must not overlap.
void place_tensors(std::vector<GgufTensor>& tensors, std::int64_t alignment, Header const& header) {
  auto const data = (header.position() + alignment - 1) / alignment * alignment;
  std::vector<std::pair<std::int64_t, GgufTensor const*>> by_offset;
  for (auto& tensor : tensors) {
    if (tensor.offset % alignment != 0)
      header.refuse("the offset of '{}' is not a multiple of {} bytes", tensor.name, alignment);
    tensor.offset += data;
    by_offset.emplace_back(tensor.offset, &tensor);
  }
  std::ranges::sort(by_offset);
  auto free = data;
  for (auto const& [offset, tensor] : by_offset) {
    std::int64_t bytes = 0;
    try {
      bytes = num_bytes(*tensor);
    } catch (runtime::UserError const& error) {
      header.refuse("{}", error.what());
    }
    if (offset < free) header.refuse("the numbers of '{}' overlap those of another tensor", tensor->name);
    if (bytes > header.size() - offset)
      header.refuse("the numbers of '{}' lie outside the file: it is damaged or cut off", tensor->name);
    free = offset + bytes;
  }
}

float fp16_at(std::byte const* bytes) {
  std::uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof(half));
  return runtime::decode_fp16(half);
}

/// The numbers of one block. q: its bytes.
void decode(std::uint32_t kind, std::byte const* q, float* out) {
  std::uint16_t half = 0;
  switch (kind) {
  case kind_f32:
    std::memcpy(out, q, sizeof(float));
    return;
  case kind_bf16:
    std::memcpy(&half, q, sizeof(half));
    *out = runtime::decode_bf16(half);
    return;
  case kind_f16:
    *out = fp16_at(q);
    return;
  case kind_q8_0:
    for (std::int64_t i = 0; i < block_size; ++i)
      out[i] = fp16_at(q) * static_cast<float>(static_cast<std::int8_t>(q[2 + i]));
    return;
  default: // Q4_1
    for (std::int64_t i = 0; i < block_size / 2; ++i) {
      auto const both = std::to_integer<unsigned>(q[4 + i]);
      out[i] = fp16_at(q) * static_cast<float>(both & 15U) + fp16_at(q + 2);
      out[i + block_size / 2] = fp16_at(q) * static_cast<float>(both >> 4U) + fp16_at(q + 2);
    }
  }
}

} // namespace

GgufFile::GgufFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error))
    runtime::throw_user("{}: there is no such file", path_.string());
  Header header(path_);
  if (header.size() < 24 || header.take<std::array<char, 4>>() != std::array{'G', 'G', 'U', 'F'})
    header.refuse("it is not a GGUF file");
  if (auto const version = header.take<std::uint32_t>(); version != 2 && version != 3)
    header.refuse("it is GGUF of version {}; 2 and 3 are read, little-endian", version);
  auto const num_tensors = header.take<std::uint64_t>();
  auto const num_metadata = header.take<std::uint64_t>();
  if (num_tensors > most_tensors_or_keys || num_metadata > most_tensors_or_keys)
    header.refuse("{} tensors and {} metadata are more than any such file has", num_tensors, num_metadata);
  for (std::uint64_t i = 0; i < num_metadata; ++i) {
    auto const key = header.take_name();
    if (metadata_.contains(key)) header.refuse("the key '{}' occurs twice in its metadata", key);
    metadata_[key] = header.take_value(key);
  }
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    tensors_.push_back(take_tensor(header));
    if (!names.insert(tensors_.back().name).second)
      header.refuse("two tensors have the name '{}'", tensors_.back().name);
  }
  place_tensors(tensors_, alignment_of(metadata_, header), header);
}

std::vector<float> GgufFile::read(GgufTensor const& tensor, runtime::Range range) const {
  auto const& kind = *find_kind(tensor.kind);
  ORTHANT_REQUIRE(range.begin % kind.num_values == 0 && range.size() % kind.num_values == 0 &&
                      range.end <= num_elements(tensor),
                  "numbers ", range.begin, " to ", range.end, " of ", tensor.name);
  auto const num_blocks = range.size() / kind.num_values;
  std::vector<std::byte> bytes(static_cast<std::size_t>(num_blocks * kind.num_bytes));
  runtime::open_file_bytes(path_)->read(tensor.offset + range.begin / kind.num_values * kind.num_bytes,
                                        bytes);
  std::vector<float> numbers(static_cast<std::size_t>(range.size()));
  for (std::int64_t i = 0; i < num_blocks; ++i)
    decode(tensor.kind, bytes.data() + i * kind.num_bytes, numbers.data() + i * kind.num_values);
  return numbers;
}

} // namespace orthant::models
