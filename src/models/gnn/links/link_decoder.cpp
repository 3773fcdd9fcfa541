// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/links/link_decoder.hpp"

#include "runtime/arrays/allocation.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

using pmm::Panel;
using pmm::Transpose;
using runtime::DefaultExec;
using runtime::part_of;
using runtime::Vector;

} // namespace

template<class T>
LinkDecoder<T>::LinkDecoder(pmm::ProcessGrid const& grid, LinkPlan const& plan, std::int64_t num_positives,
                            DecoderParameters<T> parameters)
    : grid_(grid),
      b_(plan.roles.b),
      hidden_width_(plan.decoder.value().hidden_width),
      at_once_(links_at_once(plan, num_positives)),
      parameters_(std::move(parameters)),
      layer_{parameters_.hidden.bias, parameters_.output.weight, parameters_.output.bias} {
  pmm::BlockRowsSteps const steps(grid.shape(), grid.coordinates(), plan.of(pmm::BlockSide::rows));
  first_column_ = steps.first_head; // the plan's heads are single columns here
  width_ = steps.part.columns();
  ORTHANT_REQUIRE(
      parameters_.hidden_width() == hidden_width_ &&
          static_cast<std::int64_t>(parameters_.hidden.weight.extent(0)) == plan.width * hidden_width_,
      "a hidden layer of ", parameters_.hidden_width(), " numbers and ", parameters_.hidden.weight.extent(0),
      " weights for embeddings of ", plan.width, " numbers and a plan of ", hidden_width_);
  products_ = runtime::make_zeros<T>("orthant::models::link_products", at_once_ * width_);
  hidden_ = runtime::make_zeros<T>("orthant::models::link_hidden", at_once_ * hidden_width_);
  hidden_gradient_ =
      runtime::make_zeros<T>("orthant::models::link_hidden_gradient", at_once_ * hidden_width_);
  slopes_ = runtime::make_zeros<T>("orthant::models::link_slopes", at_once_);
  ones_ = runtime::make_zeros<T>("orthant::models::link_ones", at_once_);
  Kokkos::deep_copy(ones_, T{1});
}

template<class T>
Panel<T> LinkDecoder<T>::rows_of_part(Vector<T> const& weight) const {
  auto const all = static_cast<std::int64_t>(weight.extent(0)) / hidden_width_;
  return Panel<T>(weight.data(), all, hidden_width_).rows({first_column_, first_column_ + width_});
}

template<class T>
void LinkDecoder<T>::multiply(DefaultExec const& exec, Transpose transpose_a, Panel<T> const& a,
                              Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c) const {
  auto const inner = transpose_a == Transpose::yes ? a.num_rows : a.num_columns;
  grid_.world().instruments().flops.dense += 2 * c.num_rows * c.num_columns * inner;
  pmm::local_gemm<T>(exec, 1, transpose_a, a, transpose_b, b, beta, c);
}

template<class T>
template<class Work>
void LinkDecoder<T>::for_each_piece(std::int64_t num_links, Vector<T> const& scores, Work const& work) const {
  for (std::int64_t begin = 0; begin < num_links; begin += at_once_) {
    auto const n = std::min(at_once_, num_links - begin);
    work(Piece{{begin, begin + n},
               part_of(products_, 0, n * width_),
               part_of(hidden_, 0, n * hidden_width_),
               part_of(hidden_gradient_, 0, n * hidden_width_),
               part_of(slopes_, 0, n),
               part_of(scores, begin, n)});
  }
}

template<class T>
void LinkDecoder<T>::score_piece(DefaultExec const& exec, pmm::EdgeBlock const& block, Piece const& piece,
                                 Vector<T> const& x, Vector<T> const& y) const {
  auto const n = piece.links.size();
  pmm::multiply_pairs(exec, grid_.passes(), block, piece.links, width_, x, y, piece.products);
  // Z := sum_b G[b] W_1[b,:]
  multiply(exec, Transpose::no, Panel<T>(piece.products.data(), n, width_), Transpose::no,
           rows_of_part(parameters_.hidden.weight), 0, Panel<T>(piece.hidden.data(), n, hidden_width_));
  runtime::all_reduce(exec, grid_.over(b_), piece.hidden);
  pmm::score_hidden(exec, grid_.passes(), layer_, piece.hidden, piece.scores);
}

template<class T>
void LinkDecoder<T>::score(DefaultExec const& exec, pmm::EdgeBlock const& block, Vector<T> const& x,
                           Vector<T> const& y, Vector<T> const& scores) const {
  for_each_piece(block.num_edges(), scores,
                 [&](Piece const& piece) { score_piece(exec, block, piece, x, y); });
}

template<class T>
void LinkDecoder<T>::clear_gradients(DefaultExec const& exec) const {
  for (auto const* const layer : {&parameters_.hidden, &parameters_.output}) {
    Kokkos::deep_copy(exec, layer->weight_gradient, T{0});
    Kokkos::deep_copy(exec, layer->bias_gradient, T{0});
  }
}

/// Ranks along b have the same slopes and hidden values. Gradients that depend only on these are added by the first rank.
template<class T>
void LinkDecoder<T>::add_parameter_gradients(DefaultExec const& exec, Piece const& piece) const {
  auto const n = piece.links.size();
  auto const dz = Panel<T>(piece.hidden_gradient.data(), n, hidden_width_);
  if (grid_.coordinate(b_) == 0) {
    auto const slopes = Panel<T>(piece.slopes.data(), n, 1);
    auto const ones = Panel<T>(ones_.data(), n, 1);
    multiply(exec, Transpose::yes, slopes, Transpose::no, Panel<T>(piece.hidden.data(), n, hidden_width_), 1,
             Panel<T>(parameters_.output.weight_gradient.data(), 1, hidden_width_));
    if (parameters_.has_bias()) {
      multiply(exec, Transpose::yes, ones, Transpose::no, dz, 1,
               Panel<T>(parameters_.hidden.bias_gradient.data(), 1, hidden_width_));
      multiply(exec, Transpose::yes, ones, Transpose::no, slopes, 1,
               Panel<T>(parameters_.output.bias_gradient.data(), 1, 1));
    }
  }
  multiply(exec, Transpose::yes, Panel<T>(piece.products.data(), n, width_), Transpose::no, dz, 1,
           rows_of_part(parameters_.hidden.weight_gradient));
}

template<class T>
void LinkDecoder<T>::score_and_differentiate(DefaultExec const& exec, Labelled const& links,
                                             Vector<T> const& x, Vector<T> const& y, Vector<T> const& scores,
                                             Vector<T> const& dx, Vector<T> const& dy) const {
  auto& passes = grid_.passes();
  for_each_piece(links.block.num_edges(), scores, [&](Piece const& piece) {
    auto const n = piece.links.size();
    score_piece(exec, links.block, piece, x, y);
    pmm::differentiate_hidden(exec, passes, layer_, piece.scores, links.is_positive, links.weight,
                              piece.hidden, piece.hidden_gradient, piece.slopes);
    add_parameter_gradients(exec, piece);
    // dG := dZ W_1^T, overwrites G
    multiply(exec, Transpose::no, Panel<T>(piece.hidden_gradient.data(), n, hidden_width_), Transpose::yes,
             rows_of_part(parameters_.hidden.weight), 0, Panel<T>(piece.products.data(), n, width_));
    pmm::add_pair_gradients(exec, passes, links.block, piece.links, width_, piece.products, y, dx);
    pmm::add_pair_gradients_transposed(exec, passes, links.block, piece.links, width_, piece.products, x, dy);
  });
}

template class LinkDecoder<float>;
template class LinkDecoder<double>;

} // namespace orthant::models
