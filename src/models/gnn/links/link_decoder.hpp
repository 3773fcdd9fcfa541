#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scores of links by a perceptron with one hidden layer of K numbers, of the products of the ends' embeddings, number by number: the
// predictor of the Open Graph Benchmark's examples (Hu et al., arXiv 2005.00687), with one hidden layer and no dropout.
//
//   G_e := H_u * H_v                                  for links e = (u, v) of the block
//   Z_e := sum_b G_e[b] W_1[b,:]                      one all_reduce over b of K numbers per link
//   z_e := <relu(Z_e + b_1), w_2> + b_2
//
// and with s_e, the derivative of the loss by z_e, and R_e := relu(Z_e + b_1):
//
//   dZ_e := s_e w_2 where Z_e + b_1 > 0, else 0
//   dw_2 := sum_e s_e R_e        db_2 := sum_e s_e        db_1 := sum_e dZ_e          over all blocks
//   dW_1[b,:] := sum_e G_e[b]^T dZ_e                                                  over all blocks
//   dG_e[b] := W_1[b,:] dZ_e     dH_u += dG_e * H_v       dH_v += dG_e * H_u
//
// Ranks along b have the columns of H and the rows of W_1 of that part, and all of Z. The sums over blocks are those of the
// network's array of all parameters, in which the numbers lie. Since s_e follows from z_e alone, a piece of the links is scored
// and differentiated before the next one: no array is as long as the list of links, and nothing is sent twice.

#include "models/gnn/links/link_step.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "runtime/arrays/views.hpp"

namespace orthant::models {

// The numbers of a perceptron that scores links, as its kernels use them: whole on every rank, with this rank's addends of their
// gradients. They lie in the network's array of all parameters, so its passes bring the numbers and sum the addends.

template<class T>
struct DecoderParameters {
  struct Layer {
    runtime::Vector<T> weight, weight_gradient; // [inputs x outputs], row-major
    runtime::Vector<T> bias, bias_gradient;     // [outputs], or empty
  };
  Layer hidden; // W_1 [width of H x K], b_1
  Layer output; // w_2 [K], b_2

  /// K; 0: there is none.
  [[nodiscard]] std::int64_t hidden_width() const {
    return static_cast<std::int64_t>(output.weight.extent(0));
  }
  [[nodiscard]] bool has_bias() const { return hidden.bias.extent(0) > 0; }
};

template<class T>
class LinkDecoder {
 public:
  /// For blocks of that plan, which has a decoder of these parameters (Error), and pieces for that many edges. `grid` must outlive it.
  /// Not collective.
  LinkDecoder(pmm::ProcessGrid const& grid, LinkPlan const& plan, std::int64_t num_positives,
              DecoderParameters<T> parameters);

  /// scores(e) := z_e for all links of the block. `x` [rows x part of H's columns] and `y` [columns x ..] are the rows of the ends.
  /// Collective over b. Enqueues on exec.
  void score(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, runtime::Vector<T> const& x,
             runtime::Vector<T> const& y, runtime::Vector<T> const& scores) const;

  /// Gradients of parameters := 0, ahead of a step's lists.
  void clear_gradients(runtime::DefaultExec const& exec) const;

  /// Links of one label, and what their derivatives are multiplied by.
  struct Labelled {
    pmm::EdgeBlock const& block;
    bool is_positive;
    double weight;
  };
  /// score(), and adds to the gradients of the parameters, to dx and to dy.
  void score_and_differentiate(runtime::DefaultExec const& exec, Labelled const& links,
                               runtime::Vector<T> const& x, runtime::Vector<T> const& y,
                               runtime::Vector<T> const& scores, runtime::Vector<T> const& dx,
                               runtime::Vector<T> const& dy) const;

 private:
  /// Arrays of a piece.
  struct Piece {
    runtime::Range links;
    runtime::Vector<T> products, hidden, hidden_gradient, slopes, scores;
  };
  template<class Work>
  void for_each_piece(std::int64_t num_links, runtime::Vector<T> const& scores, Work const& work) const;
  void score_piece(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, Piece const& piece,
                   runtime::Vector<T> const& x, runtime::Vector<T> const& y) const;
  void add_parameter_gradients(runtime::DefaultExec const& exec, Piece const& piece) const;
  /// Of W_1 or its gradient, the rows of this rank's part.
  [[nodiscard]] pmm::Panel<T> rows_of_part(runtime::Vector<T> const& weight) const;
  void multiply(runtime::DefaultExec const& exec, pmm::Transpose transpose_a, pmm::Panel<T> const& a,
                pmm::Transpose transpose_b, pmm::Panel<T> const& b, T beta, pmm::Panel<T> const& c) const;

  pmm::ProcessGrid const& grid_;
  pmm::Axis b_;
  std::int64_t first_column_; // of this rank's part
  std::int64_t width_;        // columns of that part
  std::int64_t hidden_width_; // K
  std::int64_t at_once_;
  DecoderParameters<T> parameters_;
  pmm::HiddenLayer<T> layer_;
  runtime::Vector<T> products_, hidden_, hidden_gradient_, slopes_, ones_;
};

extern template class LinkDecoder<float>;
extern template class LinkDecoder<double>;

} // namespace orthant::models
