#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The table of activation functions f(z) and their derivatives. Phi and phi are the distribution and the density of the normal
// distribution, s is the logistic function:
//
//   kind         f(z)                               f'(z)
//   relu         max(z, 0)                          1 if z > 0, else 0
//   elu          z if z > 0, else exp(z) - 1        1 if z > 0, else exp(z)
//   gelu         z Phi(z)                           Phi(z) + z phi(z)
//   silu         z s(z)                             s(z) (1 + z (1 - s(z)))
//   leaky_relu   z if z > 0, else 0.01 z            1 if z > 0, else 0.01
//   tanh         tanh(z)                            1 - tanh(z)^2
//
// All are as in PyTorch with its default arguments. Sources: Clevert, Unterthiner & Hochreiter (arXiv 1511.07289, alpha = 1), Hendrycks &
// Gimpel (arXiv 1606.08415), Ramachandran, Zoph & Le (arXiv 1710.05941).
//
// `Math` provides exponential(z), hyperbolic_tangent(z) and normal_at(z), which returns Phi and phi. Each instruction set of a host and the
// device has its own (row_activation_host_kernel.inc, rows/activations.cpp).

#include "runtime/device/device_function.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace orthant::pmm {

enum class Activation : std::uint8_t { relu, elu, gelu, silu, leaky_relu, tanh };

/// Labels of the kernels of a kind, whose name is the end of the label, and number of exponentials per element.
struct ActivationFacts {
  std::string_view label;
  std::string_view backward_label;
  int num_exponentials;
};

/// By kind.
inline constexpr std::array activation_facts{
    ActivationFacts{"orthant::pmm::relu", "orthant::pmm::relu_backward", 0},
    ActivationFacts{"orthant::pmm::elu", "orthant::pmm::elu_backward", 1},
    ActivationFacts{"orthant::pmm::gelu", "orthant::pmm::gelu_backward", 1},
    ActivationFacts{"orthant::pmm::silu", "orthant::pmm::silu_backward", 1},
    ActivationFacts{"orthant::pmm::leaky_relu", "orthant::pmm::leaky_relu_backward", 0},
    ActivationFacts{"orthant::pmm::tanh", "orthant::pmm::tanh_backward", 1}};

[[nodiscard]] constexpr ActivationFacts const& facts_of(Activation kind) {
  return activation_facts[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr std::string_view without_namespace(std::string_view label) {
  return label.substr(label.rfind(':') + 1);
}
[[nodiscard]] constexpr std::string_view name_of(Activation kind) {
  return without_namespace(facts_of(kind).label);
}

template<class Math>
struct ReluFunction {
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    return z < T{0} ? T{0} : z; // NaN is kept
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    return z > T{0} ? T{1} : T{0};
  }
};

template<class Math>
struct EluFunction {
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    auto const below = Math::exponential(z) - T{1};
    return z > T{0} ? z : below;
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    auto const below = Math::exponential(z);
    return z > T{0} ? T{1} : below;
  }
};

template<class Math>
struct GeluFunction {
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    return z * Math::normal_at(z).distribution;
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    auto const normal = Math::normal_at(z);
    return normal.distribution + z * normal.density;
  }
};

template<class Math>
struct SiluFunction {
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    return z * (T{1} / (T{1} + Math::exponential(-z)));
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    auto const s = T{1} / (T{1} + Math::exponential(-z));
    return s * (T{1} + z * (T{1} - s));
  }
};

template<class Math>
struct LeakyReluFunction {
  static constexpr double slope = 0.01;
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    return z > T{0} ? z : static_cast<T>(slope) * z;
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    return z > T{0} ? T{1} : static_cast<T>(slope);
  }
};

template<class Math>
struct TanhFunction {
  template<class T>
  ORTHANT_FUNCTION static T value(T z) {
    return Math::hyperbolic_tangent(z);
  }
  template<class T>
  ORTHANT_FUNCTION static T derivative(T z) {
    auto const y = Math::hyperbolic_tangent(z);
    return T{1} - y * y;
  }
};

/// Calls work(f) with the function f of `kind`, so that the choice is made once per array.
template<class Math, class Work>
void with_activation(Activation kind, Work const& work) {
  switch (kind) {
  case Activation::relu:
    return work(ReluFunction<Math>());
  case Activation::elu:
    return work(EluFunction<Math>());
  case Activation::gelu:
    return work(GeluFunction<Math>());
  case Activation::silu:
    return work(SiluFunction<Math>());
  case Activation::leaky_relu:
    return work(LeakyReluFunction<Math>());
  case Activation::tanh:
    return work(TanhFunction<Math>());
  }
}

} // namespace orthant::pmm
