// SPDX-License-Identifier: Apache-2.0
//
// Attention's kernels on the edges of a block against serial loops of the equations in double. Heads and widths are such that vectors
// fit and do not.
#include "pmm/edges/edge_kernels_fixture.hpp"

namespace orthant::testing {
namespace {

using namespace orthant::pmm;

double leaky(double z) {
  return z > 0 ? z : 0.2 * z;
}
double leaky_slope(double z) {
  return z > 0 ? 1 : 0.2;
}

using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(EdgeKernelsTest, Scalars);

TYPED_TEST(EdgeKernelsTest, Dots) {
  using T = TypeParam;
  this->for_each_shape([&] {
    std::vector<double> right(this->of_edges_.size(), 0);
    this->for_each_number([&](auto e, auto h, auto place) {
      for (std::int64_t c = 0; c < this->heads_.width; ++c)
        right[place] += static_cast<double>(this->of_rows_[this->in_row(e, h, c)]) *
                        static_cast<double>(this->of_columns_[this->in_column(e, h, c)]);
    });
    this->for_each_way([&](auto const* way) {
      std::vector<T> values(right.size(), 99);
      this->run(way, num_rows,
                device_edges::Dots<T>{this->pattern_.offsets.data(), this->pattern_.columns.data(),
                                      this->heads_, this->of_rows_.data(), this->of_columns_.data(),
                                      values.data()},
                &host_edges::HostEdgeKernels<T>::dots,
                host_edges::HostDots<T>{this->by_rows(this->heads_.width), this->of_rows_.data(),
                                        this->of_columns_.data(), values.data()});
      this->expect_near(values, right, "dots");
    });
  });
}

TYPED_TEST(EdgeKernelsTest, WeightedSums) {
  using T = TypeParam;
  auto const factor = T{1.25};
  this->for_each_shape([&] {
    std::vector<double> of_rows(this->of_rows_.size(), 0);
    std::vector<double> of_columns(this->of_columns_.size(), 0);
    this->for_each_number([&](auto e, auto h, auto place) {
      auto const value = static_cast<double>(this->of_edges_[place]);
      for (std::int64_t c = 0; c < this->heads_.width && value > 0; ++c) {
        auto const i = this->in_row(e, h, c);
        auto const j = this->in_column(e, h, c);
        of_rows[i] += value * 1.25 * static_cast<double>(this->of_columns_[j]);
        of_columns[j] += value * 1.25 * static_cast<double>(this->of_rows_[i]);
      }
    });
    this->for_each_way([&](auto const* way) {
      std::vector<T> p(of_rows.size(), 99);
      std::vector<T> d(of_columns.size(), 99);
      auto const& pattern = this->pattern_;
      auto const* const values = this->of_edges_.data();
      this->run(way, num_rows,
                device_edges::WeightedSums<T>{pattern.offsets.data(), pattern.columns.data(), nullptr,
                                              this->heads_, values, factor, this->of_columns_.data(),
                                              p.data()},
                &host_edges::HostEdgeKernels<T>::weighted_sums,
                host_edges::HostSums<T>{this->by_rows(this->heads_.width), values, factor,
                                        this->of_columns_.data(), p.data()});
      this->expect_near(p, of_rows, "of rows");
      this->run(way, num_columns,
                device_edges::WeightedSums<T>{pattern.column_offsets.data(), pattern.rows.data(),
                                              pattern.places.data(), this->heads_, values, factor,
                                              this->of_rows_.data(), d.data()},
                &host_edges::HostEdgeKernels<T>::weighted_sums,
                host_edges::HostSums<T>{this->by_columns(this->heads_.width), values, factor,
                                        this->of_rows_.data(), d.data()});
      this->expect_near(d, of_columns, "of columns");
    });
  });
}

TYPED_TEST(EdgeKernelsTest, StaticScores) {
  using T = TypeParam;
  auto const expect = [&] {
    auto const count = this->heads_.count;
    auto const features = this->features();
    std::vector<double> scores(this->of_edges_.size()), gradients(scores.size());
    std::vector<double> ds(this->s_.size(), 0), dt(this->t_.size(), 0);
    this->for_each_number([&](auto e, auto h, auto place) {
      auto const i = at(this->pattern_.row(e) * count + h);
      auto const j = at(this->pattern_.column(e) * count + h);
      auto const sum = static_cast<double>(this->s_[i]) + static_cast<double>(this->t_[j]) + this->term(e, h);
      scores[place] = leaky(sum);
      gradients[place] = static_cast<double>(this->of_edges_[place]) * leaky_slope(sum);
      ds[i] += gradients[place];
      dt[j] += gradients[place];
    });
    this->for_each_way([&](auto const* way) {
      auto const& pattern = this->pattern_;
      auto const* const s = this->s_.data();
      auto const* const t = this->t_.data();
      using Scores = host_edges::HostStaticScores<T>;
      using HostKernels = host_edges::HostEdgeKernels<T>;
      std::vector<T> values(scores.size(), 99);
      this->run(way, num_rows,
                device_edges::StaticScores<T>{
                    pattern.offsets.data(), pattern.columns.data(), count, s, t, values.data(), {features}},
                &HostKernels::static_scores,
                Scores{this->by_rows(1), s, t, values.data(), nullptr, nullptr, features});
      this->expect_near(values, scores, "scores");

      auto gradient = this->of_edges_;
      std::vector<T> of_rows(ds.size(), 99), of_columns(dt.size(), 99), in_passing(dt.size(), 0);
      this->run(way, num_rows,
                device_edges::StaticBackward<T>{pattern.offsets.data(),
                                                pattern.columns.data(),
                                                count,
                                                s,
                                                t,
                                                gradient.data(),
                                                of_rows.data(),
                                                {features}},
                &HostKernels::static_scores_backward,
                Scores{this->by_rows(1), s, t, gradient.data(), of_rows.data(), in_passing.data(), features});
      this->expect_near(gradient, gradients, "gradient");
      this->expect_near(of_rows, ds, "ds");
      if (way != nullptr) this->expect_near(in_passing, dt, "dt in passing");
      this->run(way, num_columns,
                device_edges::SumsOfColumns<T>{pattern.column_offsets.data(), pattern.places.data(), count,
                                               gradient.data(), of_columns.data()},
                &HostKernels::sum_edges,
                Scores{this->by_columns(1), nullptr, nullptr, gradient.data(), of_columns.data(), nullptr});
      this->expect_near(of_columns, dt, "dt");
    });
  };
  this->for_each_shape([&] { this->for_each_number_of_features(this->heads_.count, expect); });
}

TYPED_TEST(EdgeKernelsTest, DynamicScores) {
  using T = TypeParam;
  auto const expect = [&] {
    auto const& heads = this->heads_;
    auto const features = this->features();
    std::vector<double> scores(this->of_edges_.size(), 0);
    std::vector<double> dl(this->of_rows_.size(), 0), terms(dl.size(), 0), dr(this->of_columns_.size(), 1);
    this->for_each_number([&](auto e, auto h, auto place) {
      auto const g = static_cast<double>(this->of_edges_[place]);
      for (std::int64_t c = 0; c < heads.width; ++c) {
        auto const a = static_cast<double>(this->factors_[at(h * heads.width + c)]);
        auto const sum = this->z(e, h, c) + this->term(e, h * heads.width + c);
        scores[place] += a * leaky(sum);
        dl[this->in_row(e, h, c)] += g * a * leaky_slope(sum);
        terms[this->in_row(e, h, c)] += g * leaky(sum);
        dr[this->in_column(e, h, c)] += g * a * leaky_slope(sum);
      }
    });
    this->for_each_way([&](auto const* way) {
      auto const& pattern = this->pattern_;
      auto const* const l = this->of_rows_.data();
      auto const* const r = this->of_columns_.data();
      auto const* const a = this->factors_.data();
      auto const* const g = this->of_edges_.data();
      using Backward = host_edges::HostDynamicBackward<T>;
      using HostKernels = host_edges::HostEdgeKernels<T>;
      std::vector<T> values(scores.size(), 99), of_rows(dl.size(), 99), of_a(dl.size(), 99),
          of_columns(dr.size(), 1);
      this->run(
          way, num_rows,
          device_edges::DynamicScores<T>{
              pattern.offsets.data(), pattern.columns.data(), heads, l, r, a, values.data(), {features}},
          &HostKernels::dynamic_scores,
          host_edges::HostDynamicScores<T>{this->by_rows(heads.width), l, r, a, values.data(), features});
      this->expect_near(values, scores, "scores");
      this->run(way, num_rows,
                device_edges::DynamicRows<T>{pattern.offsets.data(),
                                             pattern.columns.data(),
                                             heads,
                                             l,
                                             r,
                                             a,
                                             g,
                                             of_rows.data(),
                                             of_a.data(),
                                             {features}},
                &HostKernels::dynamic_scores_backward,
                Backward{this->by_rows(heads.width), l, r, a, g, of_rows.data(), of_a.data(), features});
      this->expect_near(of_rows, dl, "dL");
      this->expect_near(of_a, terms, "terms of da");
      this->run(way, num_columns,
                device_edges::DynamicColumns<T>{pattern.column_offsets.data(),
                                                pattern.rows.data(),
                                                pattern.places.data(),
                                                heads,
                                                l,
                                                r,
                                                a,
                                                g,
                                                of_columns.data(),
                                                {features}},
                &HostKernels::dynamic_scores_backward,
                Backward{this->by_columns(heads.width), r, l, a, g, of_columns.data(), nullptr, features});
      this->expect_near(of_columns, dr, "dR");
    });
  };
  this->for_each_shape([&] { this->for_each_number_of_features(this->heads_.columns(), expect); });
}

TYPED_TEST(EdgeKernelsTest, Softmax) {
  using T = TypeParam;
  auto const factor = T{1.25};
  this->for_each_shape([&] {
    auto const count = this->heads_.count;
    auto const& pattern = this->pattern_;
    auto const* const offsets = pattern.offsets.data();
    auto const of_row = [&](auto e, auto h) { return at(pattern.row(e) * count + h); };
    std::vector<double> maxima(this->s_.size(), -HUGE_VAL), sums(maxima.size(), 0), along(maxima.size(), 0);
    std::vector<double> right(this->of_edges_.size()), gradients(right.size());
    // Some of far different sizes
    auto values = this->of_edges_;
    for (auto& value : values)
      value *= T{20};
    auto const dropped = [](std::size_t place) { return place % 5 == 2; };
    auto const gradient = this->numbers(8, static_cast<std::int64_t>(right.size()));
    this->for_each_number([&](auto e, auto h, auto place) {
      maxima[of_row(e, h)] = std::max(maxima[of_row(e, h)], static_cast<double>(values[place]));
    });
    this->for_each_number([&](auto e, auto h, auto place) {
      sums[of_row(e, h)] += right[place] =
          std::exp(static_cast<double>(values[place]) - maxima[of_row(e, h)]);
    });
    this->for_each_number([&](auto e, auto h, auto place) {
      right[place] /= sums[of_row(e, h)];
      if (!dropped(place)) along[of_row(e, h)] += right[place] * 1.25 * static_cast<double>(gradient[place]);
    });
    this->for_each_number([&](auto e, auto h, auto place) {
      gradients[place] = right[place] * ((dropped(place) ? 0 : 1.25 * static_cast<double>(gradient[place])) -
                                         along[of_row(e, h)]);
    });
    this->for_each_way([&](auto const* way) {
      using HostKernels = host_edges::HostEdgeKernels<T>;
      auto found = values;
      std::vector<T> found_maxima(maxima.size(), 99), found_sums(maxima.size(), 99);
      host_edges::HostSoftmax<T> const rows{offsets, count, found.data(), found_maxima.data(),
                                            found_sums.data()};
      this->run(way, num_rows, device_edges::Maxima<T>{offsets, count, found.data(), found_maxima.data()},
                &HostKernels::find_maxima, rows);
      for (std::size_t i = 0; i < maxima.size(); ++i)
        EXPECT_EQ(static_cast<double>(found_maxima[i]), maxima[i]);
      this->run(
          way, num_rows,
          device_edges::Exponentials<T>{offsets, count, found_maxima.data(), found.data(), found_sums.data()},
          &HostKernels::exponentials, rows);
      this->expect_near(found_sums, sums, "sums");
      this->run(way, num_rows, device_edges::Shares<T>{offsets, count, found_sums.data(), found.data()},
                &HostKernels::shares, rows);
      this->expect_near(found, right, "softmax", true);

      auto kept = found;
      for (std::size_t place = 0; place < kept.size(); ++place)
        if (dropped(place)) kept[place] = -kept[place];
      auto back = gradient;
      host_edges::HostSoftmaxBackward<T> const adjoint{offsets, count,       kept.data(),
                                                       factor,  back.data(), found_sums.data()};
      this->run(
          way, num_rows,
          device_edges::GradientSums<T>{offsets, count, kept.data(), factor, back.data(), found_sums.data()},
          &HostKernels::gradient_sums, adjoint);
      this->expect_near(found_sums, along, "sums of gradients");
      this->run(way, num_rows,
                device_edges::ScoreGradients<T>{offsets, count, kept.data(), factor, found_sums.data(),
                                                back.data()},
                &HostKernels::score_gradients, adjoint);
      this->expect_near(back, gradients, "gradients of scores");
      if (way == nullptr) return;

      // Whole rows at once: the same bits.
      auto whole = values;
      auto whole_back = gradient;
      way->softmax({offsets, count, whole.data(), nullptr, nullptr}, 0, num_rows);
      EXPECT_EQ(whole, found);
      way->softmax_backward({offsets, count, kept.data(), factor, whole_back.data(), nullptr}, 0, num_rows);
      EXPECT_EQ(whole_back, back);
    });
  });
}

} // namespace
} // namespace orthant::testing
