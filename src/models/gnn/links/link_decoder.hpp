#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Scores of links by a perceptron with one hidden layer of K numbers. Its input is the elementwise product of the embeddings of the two
// ends: the predictor in the examples of the Open Graph Benchmark (Hu et al., arXiv 2005.00687), with one hidden layer and no dropout.
//
//   G_e := H_u * H_v                                  for links e = (u, v) of the block
//   Z_e := sum_b G_e[b] W_1[b,:]                      one all_reduce over b of K numbers per link
//   z_e := <relu(Z_e + b_1), w_2> + b_2
//
// Gradients, with s_e the derivative of the loss by z_e, and R_e := relu(Z_e + b_1):
//
//   dZ_e := s_e w_2 where Z_e + b_1 > 0, else 0
//   dw_2 := sum_e s_e R_e        db_2 := sum_e s_e        db_1 := sum_e dZ_e          over all blocks
//   dW_1[b,:] := sum_e G_e[b]^T dZ_e                                                  over all blocks
//   dG_e[b] := W_1[b,:] dZ_e     dH_u += dG_e * H_v       dH_v += dG_e * H_u
//
// A rank along b has its part of the columns of H and of the rows of W_1, and the whole of Z. Parameters are stored in the network's array
// of all parameters, which also sums gradients over blocks. s_e depends only on z_e, so the links are processed in pieces, each of which is
// scored and differentiated before the next one. Therefore no array is as long as the list of links, and nothing is sent twice.

#include "models/gnn/links/link_step.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/pairs/pair_layers.hpp"
#include "runtime/arrays/views.hpp"

namespace orthant::models {

// Parameters of a perceptron that scores links, as its kernels use them: whole on every rank, with this rank's partial gradients.
// They are stored in the network's array of all parameters, so the network's passes gather them and sum the gradients.

template<class T>
struct DecoderParameters {
  struct Layer {
    runtime::Vector<T> weight, weight_gradient; // [inputs x outputs], row-major
    runtime::Vector<T> bias, bias_gradient;     // [outputs], or empty
  };
  Layer hidden; // W_1 [width of H x K], b_1
  Layer output; // w_2 [K], b_2

  /// K; 0 without a perceptron.
  [[nodiscard]] std::int64_t hidden_width() const {
    return static_cast<std::int64_t>(output.weight.extent(0));
  }
  [[nodiscard]] bool has_bias() const { return hidden.bias.extent(0) > 0; }
};

template<class T>
class LinkDecoder {
 public:
  /// Decoder for blocks of this plan, and pieces for `num_positives` edges. The plan must have a decoder with the shapes of
  /// `parameters`; otherwise throws Error. `grid` must outlive this object. Not collective.
  LinkDecoder(pmm::ProcessGrid const& grid, LinkPlan const& plan, std::int64_t num_positives,
              DecoderParameters<T> parameters);

  /// scores(e) := z_e for all links of the block. `x` [rows x part of H's columns] and `y` [columns x the same part]: rows of H for
  /// the first and the second ends. Collective over b. Enqueues on exec.
  void score(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, runtime::Vector<T> const& x,
             runtime::Vector<T> const& y, runtime::Vector<T> const& scores) const;

  /// Sets the gradients of the parameters to 0. Call it once per step, before the lists of links. Enqueues on exec.
  void clear_gradients(runtime::DefaultExec const& exec) const;

  /// Links that all have the same label, and the factor of their derivatives.
  struct Labelled {
    pmm::EdgeBlock const& block;
    bool is_positive;
    double weight;
  };
  /// Computes the scores like score(), and adds to the gradients of the parameters, to dx and to dy. Collective over b. Enqueues on exec.
  void score_and_differentiate(runtime::DefaultExec const& exec, Labelled const& links,
                               runtime::Vector<T> const& x, runtime::Vector<T> const& y,
                               runtime::Vector<T> const& scores, runtime::Vector<T> const& dx,
                               runtime::Vector<T> const& dy) const;

 private:
  /// Arrays of a piece of the links.
  struct Piece {
    runtime::Range links;
    runtime::Vector<T> products, hidden, hidden_gradient, slopes, scores;
  };
  template<class Work>
  void for_each_piece(std::int64_t num_links, runtime::Vector<T> const& scores, Work const& work) const;
  void score_piece(runtime::DefaultExec const& exec, pmm::EdgeBlock const& block, Piece const& piece,
                   runtime::Vector<T> const& x, runtime::Vector<T> const& y) const;
  void add_parameter_gradients(runtime::DefaultExec const& exec, Piece const& piece) const;
  /// Rows of W_1, or of its gradient, in this rank's part.
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
