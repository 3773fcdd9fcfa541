// SPDX-License-Identifier: Apache-2.0
//
// The vendor's products (src/pmm/vendor/vendor_*) against loops on the host, without Kokkos, MPI or a test
// framework: what a machine with a device and a bare toolkit can run first (scripts/check_cuda.sh,
// check_hip.sh). Prints the number of devices; exits 0 without one, 1 where a result is wrong. All numbers
// are small integers, exact in each arithmetic and in any order of the sums.
#include "pmm/vendor/vendor_api.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "pmm/vendor/vendor_spmm.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// The library's own throws with the rank of an MPI job (runtime/error.cpp).
void orthant::runtime::throw_internal(std::string_view text, std::source_location where) {
  throw std::runtime_error(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " +
                           std::string(text));
}

namespace {

using orthant::pmm::GemmMath;
using orthant::pmm::Transpose;
using orthant::runtime::Bf16Number;
using orthant::runtime::Fp16Number;
using orthant::runtime::SumOf;
namespace vendor = orthant::pmm::vendor;

template<class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::vector<T> const& numbers) : size_(numbers.size()) {
    void* memory = nullptr;
    ORTHANT_CHECK_RUNTIME(Malloc(&memory, size_ * sizeof(T)));
    data_ = static_cast<T*>(memory);
    ORTHANT_CHECK_RUNTIME(
        Memcpy(data_, numbers.data(), size_ * sizeof(T), ORTHANT_VENDOR_RUNTIME(MemcpyHostToDevice)));
  }
  DeviceArray(DeviceArray const&) = delete;
  DeviceArray& operator=(DeviceArray const&) = delete;
  ~DeviceArray() { static_cast<void>(ORTHANT_VENDOR_RUNTIME(Free)(data_)); }
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::vector<T> on_host() const {
    std::vector<T> numbers(size_);
    ORTHANT_CHECK_RUNTIME(DeviceSynchronize());
    ORTHANT_CHECK_RUNTIME(
        Memcpy(numbers.data(), data_, size_ * sizeof(T), ORTHANT_VENDOR_RUNTIME(MemcpyDeviceToHost)));
    return numbers;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

/// Integers from -8 to 8.
template<class T>
std::vector<T> small_integers(std::size_t count, unsigned seed) {
  std::vector<T> numbers(count);
  for (auto& number : numbers) {
    seed = seed * 1664525U + 1013904223U;
    number = static_cast<T>(static_cast<SumOf<T>>(static_cast<int>(seed >> 16) % 17 - 8));
  }
  return numbers;
}

template<class T>
bool agrees(std::string const& what, std::vector<T> const& expected, std::vector<T> const& found) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(expected[i] == found[i])) {
      std::printf("WRONG %s: number %zu is %g, not %g\n", what.c_str(), i, static_cast<double>(found[i]),
                  static_cast<double>(expected[i]));
      return false;
    }
  std::printf("ok    %s\n", what.c_str());
  return true;
}

/// C := 2 op(A) op(B) - C. A result of 16 bits is the exact number, rounded once.
template<class Operand, class Result>
bool gemm_is_right(vendor::Gemm const& gemm, std::string const& name, Transpose ta, Transpose tb,
                   GemmMath math) {
  using Sum = SumOf<Result>;
  constexpr std::int64_t m = 37, n = 20, k = 29, wider = 3; // rows lie `wider` numbers further apart
  auto const rows_of = [](Transpose t, std::int64_t rows, std::int64_t columns) {
    return t == Transpose::yes ? columns : rows;
  };
  auto const a_rows = rows_of(ta, m, k), a_stride = m + k - a_rows + wider;
  auto const b_rows = rows_of(tb, k, n), b_stride = k + n - b_rows + wider;
  constexpr auto c_stride = n + wider;
  auto const a = small_integers<Operand>(static_cast<std::size_t>(a_rows * a_stride), 1);
  auto const b = small_integers<Operand>(static_cast<std::size_t>(b_rows * b_stride), 2);
  auto expected = small_integers<Result>(static_cast<std::size_t>(m * c_stride), 3);
  DeviceArray<Operand> const device_a(a), device_b(b);
  DeviceArray<Result> const device_c(expected);
  auto const at = [](std::vector<Operand> const& matrix, std::int64_t stride, Transpose t, std::int64_t i,
                     std::int64_t j) {
    return matrix[static_cast<std::size_t>(t == Transpose::yes ? j * stride + i : i * stride + j)];
  };
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      Sum sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += at(a, a_stride, ta, i, l) * at(b, b_stride, tb, l, j);
      auto& number = expected[static_cast<std::size_t>(i * c_stride + j)];
      number = Result(2 * sum - number);
    }
  gemm.multiply(vendor::GemmProduct<Operand, Result>{
      m, n, k, Sum{2}, vendor::GemmOperand<Operand>{device_a.data(), a_stride, ta},
      vendor::GemmOperand<Operand>{device_b.data(), b_stride, tb}, Sum{-1}, device_c.data(), c_stride, math});
  return agrees(name + (ta == Transpose::yes ? " A^T" : " A") + (tb == Transpose::yes ? " B^T" : " B"),
                expected, device_c.on_host());
}

/// A^T B over many rows, as one product and as one for every slab of the rows.
template<class T>
bool slabs_are_right(vendor::Gemm const& gemm, std::string const& name, GemmMath math) {
  constexpr std::int64_t m = 37, n = 20, length = 300, num_slabs = 6, k = length * num_slabs;
  auto const a = small_integers<T>(m * k, 1);
  auto const b = small_integers<T>(n * k, 2);
  std::vector<T> slabs(m * n * num_slabs, T{0}), whole(m * n, T{0});
  for (std::size_t row = 0; row < k; ++row)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        auto const term = a[row * m + i] * b[row * n + j];
        slabs[row / length * m * n + i * n + j] += term;
        whole[i * n + j] += term;
      }
  DeviceArray<T> const device_a(a), device_b(b);
  DeviceArray<T> const device_slabs(std::vector<T>(slabs.size(), T{77}));
  DeviceArray<T> const device_whole(std::vector<T>(whole.size(), T{77}));
  vendor::GemmProduct<T> product{m,
                                 n,
                                 k,
                                 T{1},
                                 vendor::GemmOperand<T>{device_a.data(), m, Transpose::yes},
                                 vendor::GemmOperand<T>{device_b.data(), n, Transpose::no},
                                 T{0},
                                 device_whole.data(),
                                 n,
                                 math};
  gemm.multiply(product);
  product.k = length;
  product.c = device_slabs.data();
  gemm.multiply(product, vendor::GemmBatch{num_slabs, length * m, length * n, m * n});
  auto const right = agrees(name + " of many rows", whole, device_whole.on_host());
  return agrees(name + " of each slab", slabs, device_slabs.on_host()) && right;
}

/// A times the identity, A of 1 + 2^-12: tf32 and bf16 would round that to 1.
bool fp32_keeps_its_digits() {
  constexpr std::int64_t size = 128;
  std::vector<float> const a(size * size, 1.0F + 0x1p-12F);
  std::vector<float> identity(size * size, 0.0F);
  for (std::size_t i = 0; i < size; ++i)
    identity[i * size + i] = 1.0F;
  DeviceArray<float> const device_a(a), device_b(identity), device_c(std::vector<float>(a.size(), 77.0F));
  vendor::Gemm const gemm(nullptr);
  gemm.multiply(vendor::GemmProduct<float>{
      size, size, size, 1.0F, vendor::GemmOperand<float>{device_a.data(), size, Transpose::no},
      vendor::GemmOperand<float>{device_b.data(), size, Transpose::no}, 0.0F, device_c.data(), size});
  return agrees("gemm fp32 rounds no operand", a, device_c.on_host());
}

template<class Operand, class Result>
bool gemm_is_right_transposed(vendor::Gemm const& gemm, std::string const& name,
                              GemmMath math = GemmMath::fp32) {
  auto right = true;
  for (auto const ta : {Transpose::no, Transpose::yes})
    for (auto const tb : {Transpose::no, Transpose::yes})
      right = gemm_is_right<Operand, Result>(gemm, "gemm " + name, ta, tb, math) && right;
  return right;
}

template<class T>
bool gemm_is_right(GemmMath math, std::string const& name) {
  vendor::Gemm const gemm(nullptr);
  auto right = slabs_are_right<T>(gemm, "gemm " + name, math);
  right = !vendor::is_capturing(nullptr) && right;
  return gemm_is_right_transposed<T, T>(gemm, name, math) && right;
}

bool gemm_of_16_bits_is_right() {
  vendor::Gemm const gemm(nullptr);
  auto right = gemm_is_right_transposed<Bf16Number, float>(gemm, "bf16 to fp32");
  right = gemm_is_right_transposed<Bf16Number, Bf16Number>(gemm, "bf16 to bf16") && right;
  right = gemm_is_right_transposed<Fp16Number, float>(gemm, "fp16 to fp32") && right;
  return gemm_is_right_transposed<Fp16Number, Fp16Number>(gemm, "fp16 to fp16") && right;
}

/// Rows of 0 to 200 non-zeros.
template<class T>
bool spmm_is_right(std::string const& name, vendor::SpmmAlgorithm algorithm, std::int64_t width) {
  constexpr std::int64_t num_rows = 301, num_columns = 211;
  std::vector<std::int32_t> offsets(1, 0), columns;
  for (std::int64_t i = 0; i < num_rows; ++i) {
    auto const length = i % 7 == 0 ? 0 : i % 50 == 1 ? 200 : i % 11;
    for (std::int64_t k = 0; k < length; ++k)
      columns.push_back(static_cast<std::int32_t>((i + k) % num_columns));
    offsets.push_back(static_cast<std::int32_t>(columns.size()));
  }
  auto const values = small_integers<T>(columns.size(), 4);
  auto const b = small_integers<T>(static_cast<std::size_t>(num_columns * width), 5);
  std::vector<T> expected(static_cast<std::size_t>(num_rows * width), T{0});
  DeviceArray<std::int32_t> const device_offsets(offsets), device_columns(columns);
  DeviceArray<T> const device_values(values), device_b(b);
  DeviceArray<T> const device_c(std::vector<T>(expected.size(), T{77}));
  for (std::size_t i = 0; i < num_rows; ++i)
    for (auto entry = static_cast<std::size_t>(offsets[i]); entry < static_cast<std::size_t>(offsets[i + 1]);
         ++entry)
      for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j)
        expected[i * static_cast<std::size_t>(width) + j] +=
            values[entry] * b[static_cast<std::size_t>(columns[entry]) * static_cast<std::size_t>(width) + j];
  auto const label = "spmm " + name + " " + vendor::name_of(algorithm) + " width " + std::to_string(width);
  std::optional<vendor::Spmm<T>> spmm;
  try {
    spmm.emplace(nullptr, algorithm,
                 vendor::CsrOperand<T>{num_rows, num_columns, static_cast<std::int64_t>(columns.size()),
                                       device_offsets.data(), device_columns.data(), device_values.data()},
                 width, device_b.data(), device_c.data());
  } catch (std::exception const& error) {
    // A version may have another algorithm for other operands only; the one for row-major ones is a must.
    std::printf("%s: refused: %s\n", label.c_str(), error.what());
    return algorithm != vendor::SpmmAlgorithm::csr_alg2;
  }
  spmm->apply(nullptr, device_b.data(), device_c.data());
  auto const first = agrees(label, expected, device_c.on_host());
  spmm->apply(nullptr, device_b.data(), device_c.data()); // prepared once, applied often
  return agrees(label + " again", expected, device_c.on_host()) && first;
}

bool all_is_right() {
  auto right = gemm_is_right<float>(GemmMath::fp32, "fp32");
  right = gemm_is_right<double>(GemmMath::fp32, "fp64") && right;
  right = fp32_keeps_its_digits() && right;
  right = gemm_of_16_bits_is_right() && right;
#if !defined(ORTHANT_ENABLE_HIP)
  right = gemm_is_right<float>(GemmMath::tf32, "tf32") && right;
  right = gemm_is_right<float>(GemmMath::bf16, "bf16") && right;
#endif
  for (auto const algorithm : vendor::spmm_algorithms)
    for (std::int64_t const width : {1, 7, 32, 47, 128}) {
      right = spmm_is_right<float>("fp32", algorithm, width) && right;
      right = spmm_is_right<double>("fp64", algorithm, width) && right;
    }
  return right;
}

} // namespace

int main() {
  int num_devices = 0;
  auto const code = ORTHANT_VENDOR_RUNTIME(GetDeviceCount)(&num_devices);
  if (code != ORTHANT_VENDOR_RUNTIME(Success) || num_devices == 0) {
    std::printf("0 devices (%s): compiled and linked, nothing was run\n",
                ORTHANT_VENDOR_RUNTIME(GetErrorString)(code));
    return EXIT_SUCCESS;
  }
  std::printf("%d devices\n", num_devices);
  try {
    auto const right = all_is_right();
    std::printf(right ? "all products are right\n" : "SOME PRODUCTS ARE WRONG\n");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (std::exception const& error) {
    std::printf("FAILED: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
