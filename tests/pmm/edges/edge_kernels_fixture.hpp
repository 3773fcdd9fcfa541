#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A block of edges with numbers on it, and every implementation of attention's kernels: those of devices, which run anywhere, and those of
// host processors for every instruction set that this machine has.

#include "pmm/edges/edge_softmax_device.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {

inline constexpr std::int64_t num_rows = 41;
inline constexpr std::int64_t num_columns = 29;

inline std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A block with an empty row, an empty column, a full row, and rows of one edge; by rows and by columns.
struct Pattern {
  std::vector<pmm::Offset> offsets{0}, column_offsets, places;
  std::vector<pmm::LocalColumn> columns, rows;

  Pattern() {
    std::vector<std::vector<std::int64_t>> of_column(at(num_columns));
    for (std::int64_t i = 0; i < num_rows; ++i) {
      for (std::int64_t j = 0; j < num_columns; ++j) {
        auto const is_full = i == 17;
        auto const is_edge = is_full || (i != 5 && (i + j * j) % (1 + i % 7) == 0);
        if (j == 11 || !is_edge) continue;
        of_column[at(j)].push_back(static_cast<std::int64_t>(columns.size()));
        columns.push_back(static_cast<pmm::LocalColumn>(j));
        row_of.push_back(i);
      }
      offsets.push_back(static_cast<pmm::Offset>(columns.size()));
    }
    column_offsets.push_back(0);
    for (auto const& edges : of_column) {
      for (auto const e : edges) {
        places.push_back(e);
        rows.push_back(static_cast<pmm::LocalColumn>(row_of[at(e)]));
      }
      column_offsets.push_back(static_cast<pmm::Offset>(places.size()));
    }
  }
  [[nodiscard]] std::int64_t num_edges() const { return static_cast<std::int64_t>(columns.size()); }
  [[nodiscard]] std::int64_t row(std::int64_t e) const { return row_of[at(e)]; }
  [[nodiscard]] std::int64_t column(std::int64_t e) const { return columns[at(e)]; }

 private:
  std::vector<std::int64_t> row_of;
};

template<class T>
class EdgeKernelsTest : public ::testing::Test {
 protected:
  using Numbers = std::vector<T>;
  using Kernels = pmm::host_edges::HostEdgeKernels<T>;

  static Numbers numbers(std::uint64_t seed, std::int64_t count) {
    Numbers all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(static_cast<T>(
          std::sin(static_cast<double>(i * 7 + 1) * (0.37 + 0.11 * static_cast<double>(seed)))));
    return all;
  }
  /// The list of shapes, with the numbers of one.
  void for_each_shape(std::function<void()> const& body) {
    for (auto const& shape : {pmm::Heads{1, 1},
                              {2, 0},
                              {1, 3},
                              {1, 7},
                              {1, 16},
                              {1, 47},
                              {1, 150},
                              {2, 8},
                              {3, 5},
                              {4, 1},
                              {6, 7},
                              {8, 8},
                              {9, 32},
                              {5, 64},
                              {12, 2},
                              {16, 4},
                              {2, 300}}) {
      SCOPED_TRACE(::testing::Message() << shape.count << " heads of " << shape.width);
      heads_ = shape;
      of_rows_ = numbers(1, num_rows * heads_.columns());
      of_columns_ = numbers(2, num_columns * heads_.columns());
      of_edges_ = numbers(3, pattern_.num_edges() * heads_.count);
      s_ = numbers(4, num_rows * heads_.count);
      t_ = numbers(5, num_columns * heads_.count);
      factors_ = numbers(6, heads_.columns());
      body();
    }
  }
  /// compute(way) for each implementation: null is the device's.
  void for_each_way(std::function<void(Kernels const*)> const& compute) {
    if constexpr (pmm::runs_on_host) compute(nullptr); // a device does not read these arrays
    for (auto const& kernels : pmm::host_edges::supported_edge_kernels<T>())
      compute(&kernels);
  }
  /// The kernel on all lists, in two parts.
  template<class Device, class Arguments>
  void run(Kernels const* way, std::int64_t num_lists, Device const& device,
           void (*Kernels::*host)(Arguments const&, std::int64_t, std::int64_t), Arguments const& arguments) {
    if (way == nullptr) {
      pmm::device_edges::run(runtime::DefaultExec(), "orthant::testing::edges", num_lists,
                             pattern_.num_edges(), device,
                             heads_.count % 2 == 0 ? 1 : pmm::longest_of_thread);
      runtime::DefaultExec().fence();
    } else {
      (way->*host)(arguments, 0, num_lists / 3);
      (way->*host)(arguments, num_lists / 3, num_lists);
    }
  }
  /// Sums of at most 300 numbers that are not larger than 1, in any order: their rounding. `is_relative`: of numbers that are all
  /// right to some digits, such as coefficients of a softmax, whose exponents are rounded.
  static void expect_near(Numbers const& found, std::vector<double> const& right, char const* what,
                          bool is_relative = false) {
    constexpr auto tolerance = std::is_same_v<T, float> ? 1e-5 : 2e-14;
    ASSERT_EQ(found.size(), right.size());
    auto largest = 0.0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      auto const error =
          std::abs(static_cast<double>(found[i]) - right[i]) / ((is_relative ? 0 : 1) + std::abs(right[i]));
      largest = std::isnan(error) ? HUGE_VAL : std::max(largest, error);
    }
    EXPECT_LE(largest, tolerance) << what;
  }
  [[nodiscard]] pmm::host_edges::HostEdges by_rows(std::int64_t width) const {
    return {pattern_.offsets.data(), pattern_.columns.data(), nullptr, heads_.count, width};
  }
  [[nodiscard]] pmm::host_edges::HostEdges by_columns(std::int64_t width) const {
    return {pattern_.column_offsets.data(), pattern_.rows.data(), pattern_.places.data(), heads_.count,
            width};
  }
  /// body(edge, head, place of the number of the edge).
  template<class Body>
  void for_each_number(Body const& body) const {
    for (std::int64_t e = 0; e < pattern_.num_edges(); ++e)
      for (std::int64_t h = 0; h < heads_.count; ++h)
        body(e, h, at(e * heads_.count + h));
  }
  [[nodiscard]] std::size_t in_row(std::int64_t e, std::int64_t h, std::int64_t c) const {
    return at((pattern_.row(e) * heads_.count + h) * heads_.width + c);
  }
  [[nodiscard]] std::size_t in_column(std::int64_t e, std::int64_t h, std::int64_t c) const {
    return at((pattern_.column(e) * heads_.count + h) * heads_.width + c);
  }
  [[nodiscard]] double z(std::int64_t e, std::int64_t h, std::int64_t c) const {
    return static_cast<double>(of_rows_[in_row(e, h, c)]) +
           static_cast<double>(of_columns_[in_column(e, h, c)]);
  }

  /// Features of edges and factors with rows of `width` numbers, two of them unused: term() adds to the arguments of leaky.
  void make_features(std::int64_t num_features, std::int64_t width) {
    num_features_ = num_features;
    stride_ = width + 2;
    features_ = numbers(11, pattern_.num_edges() * num_features);
    feature_factors_ = numbers(12, num_features * stride_);
  }
  [[nodiscard]] pmm::host_edges::HostEdgeFeatures<T> features() const {
    return {features_.data(), feature_factors_.data(), num_features_, stride_};
  }
  [[nodiscard]] double term(std::int64_t e, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t f = 0; f < num_features_; ++f)
      sum += static_cast<double>(features_[at(e * num_features_ + f)]) *
             static_cast<double>(feature_factors_[at(f * stride_ + column)]);
    return sum;
  }
  template<class Body>
  void for_each_number_of_features(std::int64_t width, Body const& body) {
    for (std::int64_t const count : {0, 3}) {
      make_features(count, width);
      body();
    }
  }

  Pattern pattern_;
  std::int64_t num_features_ = 0, stride_ = 0;
  Numbers features_, feature_factors_;
  pmm::Heads heads_;
  Numbers of_rows_, of_columns_, of_edges_, s_, t_, factors_;
};

} // namespace orthant::testing
