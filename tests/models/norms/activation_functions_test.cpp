// SPDX-License-Identifier: Apache-2.0
//
// Activation functions and their derivatives beside their definitions.
#include "models/layers/activation.hpp"
#include "pmm/rows/activations.hpp"

#include <cmath>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using models::Activation;

double logistic_of(double z) {
  return 1 / (1 + std::exp(-z));
}
/// f and f' by their definitions, in double.
double function_of(Activation f, double z) {
  switch (f) {
  case Activation::relu:
    return std::max(z, 0.0);
  case Activation::elu:
    return z > 0 ? z : std::expm1(z);
  case Activation::gelu:
    return z * std::erfc(-z / std::sqrt(2.0)) / 2;
  case Activation::silu:
    return z * logistic_of(z);
  case Activation::leaky_relu:
    return z > 0 ? z : 0.01 * z;
  case Activation::tanh:
    return std::tanh(z);
  }
  return 0;
}
double derivative_of(Activation f, double z) {
  switch (f) {
  case Activation::relu:
    return z > 0 ? 1 : 0;
  case Activation::elu:
    return z > 0 ? 1 : std::exp(z);
  case Activation::gelu:
    return std::erfc(-z / std::sqrt(2.0)) / 2 + z * std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
  case Activation::silu:
    return logistic_of(z) * (1 + z * (1 - logistic_of(z)));
  case Activation::leaky_relu:
    return z > 0 ? 1 : 0.01;
  case Activation::tanh:
    return 1 / std::pow(std::cosh(z), 2);
  }
  return 0;
}

template<class T>
class ActivationFunctionTest : public ::testing::Test {};
using AllNumbers = ::testing::Types<float, double, runtime::Bf16Number, runtime::Fp16Number>;
TYPED_TEST_SUITE(ActivationFunctionTest, AllNumbers);

// In fp32 about 6 u of the larger of f and 1; 16-bit results are rounded once more.
TYPED_TEST(ActivationFunctionTest, FunctionsAndDerivativesEqualTheirDefinitions) {
  using T = TypeParam;
  using Sum = runtime::SumOf<T>;
  auto const u = std::is_same_v<T, runtime::Bf16Number>   ? 0x1p-8
                 : std::is_same_v<T, runtime::Fp16Number> ? 0x1p-11
                 : std::is_same_v<T, float>               ? 8 * 0x1p-24
                                                          : 8 * 0x1p-53;
  runtime::DefaultExec const exec;
  runtime::PassLedger passes;
  std::int64_t const num_rows = 401, num_columns = 3;
  auto const number = [](std::int64_t row, std::int64_t column) {
    return T(static_cast<Sum>(static_cast<double>(row - 200) / 16 + static_cast<double>(column) / 64));
  };
  for (std::size_t kind = 0; kind < pmm::activation_facts.size(); ++kind) {
    auto const f = static_cast<Activation>(kind);
    EXPECT_EQ(models::parse_activation(name_of(f)), f);
    runtime::Matrix<T> const z("orthant::testing::z", num_rows, num_columns),
        y("orthant::testing::y", num_rows, num_columns), dz("orthant::testing::dz", num_rows, num_columns);
    auto const host_z = Kokkos::create_mirror_view(Kokkos::HostSpace(), z);
    for (std::int64_t i = 0; i < num_rows; ++i)
      for (std::int64_t j = 0; j < num_columns; ++j)
        host_z(static_cast<std::size_t>(i), static_cast<std::size_t>(j)) = number(i, j);
    Kokkos::deep_copy(z, host_z);

    pmm::activate(exec, passes, f, z, y);
    auto const values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), y);
    Kokkos::deep_copy(dz, T(Sum{0.75}));
    pmm::activate_backward(exec, passes, f, z, dz);
    auto const gradient = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), dz);

    for (std::size_t i = 0; i < values.extent(0); ++i)
      for (std::size_t j = 0; j < values.extent(1); ++j) {
        auto const at = static_cast<double>(static_cast<Sum>(host_z(i, j)));
        auto const value = function_of(f, at);
        EXPECT_NEAR(static_cast<double>(static_cast<Sum>(values(i, j))), value,
                    u * std::max(1.0, std::abs(value)))
            << name_of(f) << "(" << at << ")";
        EXPECT_NEAR(static_cast<double>(static_cast<Sum>(gradient(i, j))), 0.75 * derivative_of(f, at), 2 * u)
            << name_of(f) << "'(" << at << ")";
      }
  }
}

} // namespace
} // namespace orthant::testing
