// SPDX-License-Identifier: Apache-2.0
#include "cli/epoch_products.hpp"

#include "pmm/dist_matrix.hpp"

#include <algorithm>

namespace orthant::cli {
namespace {

using pmm::Form;
using pmm::Placement;
using pmm::Transpose;
using runtime::DefaultExec;
using runtime::Vector;

/// Appends products of one layer.
class LayerProducts {
 public:
  LayerProducts(pmm::ProcessGrid const& grid, std::int64_t layer, bool is_even, LeftOperand features,
                std::vector<LocalProduct>& products)
      : grid_(grid),
        layer_(layer),
        is_even_(is_even),
        features_(features),
        products_(products) {}

  void forward(models::GcnLayerPlan const& p, bool keeps_aggregate) {
    if (p.aggregates_first) {
      if (!keeps_aggregate) add("H = A F", Form::product, LeftOperand::adjacency, p.adjacency, p.input);
      add("Q = H W", Form::product, LeftOperand::dense, p.middle, p.weight);
    } else {
      add("U = F W", Form::product, features_, p.input, p.weight);
      add("Q = A U", Form::product, LeftOperand::adjacency, p.adjacency, p.middle);
    }
  }

  void backward(models::GcnLayerPlan const& p, bool needs_input_gradient) {
    if (p.aggregates_first) {
      if (needs_input_gradient) add("dH = dQ W^T", Form::left_grad, LeftOperand::dense, p.output, p.weight);
      add("dW = H^T dQ", Form::right_grad, LeftOperand::dense, p.middle, p.output);
      if (needs_input_gradient)
        add("dF = A^T dH", Form::right_grad, LeftOperand::adjacency, p.adjacency, p.middle);
    } else {
      add("dU = A^T dQ", Form::right_grad, LeftOperand::adjacency, p.adjacency, p.output);
      if (needs_input_gradient) add("dF = dU W^T", Form::left_grad, LeftOperand::dense, p.middle, p.weight);
      add("dW = F^T dU", Form::right_grad, features_, p.input, p.middle);
    }
  }

  void forward(models::LinearPlan const& p) { add("C = A W", Form::product, features_, p.input, p.weight); }

  void backward(models::LinearPlan const& p, bool needs_input_gradient) {
    if (needs_input_gradient) add("dA = dC W^T", Form::left_grad, LeftOperand::dense, p.output, p.weight);
    add("dW = A^T dC", Form::right_grad, features_, p.input, p.output);
  }

 private:
  void add(std::string formula, Form form, LeftOperand operand, Placement const& left,
           Placement const& right) {
    auto const l = pmm::block_of(grid_, left);
    auto const r = pmm::block_of(grid_, right);
    auto const is_transposed = form == Form::right_grad;
    LocalProduct product;
    product.layer = layer_;
    product.formula = std::move(formula);
    product.form = form;
    product.left = operand;
    product.left_placement = left;
    product.is_even = is_even_;
    product.m = is_transposed ? l.columns.size() : l.rows.size();
    product.k = is_transposed ? l.rows.size() : l.columns.size();
    product.n = form == Form::left_grad ? r.rows.size() : r.columns.size();
    products_.push_back(std::move(product));
  }

  pmm::ProcessGrid const& grid_;
  std::int64_t layer_;
  bool is_even_;
  LeftOperand features_;
  std::vector<LocalProduct>& products_;
};

/// Numbers between -1/2 and 1/2: no kernel is slowed by denormals.
template<class T>
Vector<T> make_operand(std::int64_t count) {
  auto const result = runtime::make_zeros<T>("orthant::cli::operand", static_cast<std::size_t>(count));
  Kokkos::parallel_for(
      "orthant::cli::make_operand", Kokkos::RangePolicy<DefaultExec, std::int64_t>(0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        result(static_cast<std::size_t>(i)) = static_cast<T>(i * 7919 % 1009) / T{1009} - T{0.5};
      });
  return result;
}

/// Numbers of the largest operands; sparse ones lie elsewhere.
struct OperandSizes {
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t result = 0;
};

OperandSizes largest_of(std::vector<LocalProduct> const& products) {
  OperandSizes sizes;
  for (auto const& p : products) {
    if (p.is_dense()) sizes.left = std::max(sizes.left, p.m * p.k);
    sizes.right = std::max(sizes.right, p.k * p.n);
    sizes.result = std::max(sizes.result, p.m * p.n);
  }
  return sizes;
}

} // namespace

std::vector<LocalProduct> products_of_epoch(pmm::ProcessGrid const& grid, models::GcnPlan const& plan,
                                            EpochTraits const& traits) {
  std::vector<LocalProduct> products;
  auto const features = traits.has_sparse_features ? LeftOperand::sparse_features : LeftOperand::dense;
  auto const num_layers = static_cast<std::int64_t>(plan.layers.size());
  LayerProducts projection(grid, -1, true, features, products);
  LayerProducts head(grid, num_layers, true, LeftOperand::dense, products);
  auto const layer_of = [&](models::GcnLayerPlan const& layer) {
    auto const reads_features = layer.index == 0 && !plan.projection;
    return LayerProducts(grid, layer.index, layer.is_even, reads_features ? features : LeftOperand::dense,
                         products);
  };
  if (plan.projection) projection.forward(*plan.projection);
  for (auto const& layer : plan.layers)
    layer_of(layer).forward(layer, layer.index == 0 && traits.keeps_first_aggregate);
  if (plan.head) {
    head.forward(*plan.head);
    head.backward(*plan.head, true);
  }
  for (auto layer = plan.layers.rbegin(); layer != plan.layers.rend(); ++layer)
    layer_of(*layer).backward(*layer, layer->index > 0 || plan.projection || traits.trains_features);
  if (plan.projection) projection.backward(*plan.projection, traits.trains_features);
  return products;
}

template<class T>
struct ProductOperands<T>::Panels {
  Transpose transpose_left, transpose_right;
  pmm::Panel<T> left, right, result;
};

template<class T>
ProductOperands<T>::ProductOperands(std::vector<LocalProduct> const& products) {
  auto const sizes = largest_of(products);
  left_ = make_operand<T>(sizes.left);
  right_ = make_operand<T>(sizes.right);
  result_ = make_operand<T>(sizes.result);
}

template<class T>
std::int64_t ProductOperands<T>::num_bytes(std::vector<LocalProduct> const& products) {
  auto const sizes = largest_of(products);
  return (sizes.left + sizes.right + sizes.result) * static_cast<std::int64_t>(sizeof(T));
}

template<class T>
typename ProductOperands<T>::Panels ProductOperands<T>::panels_of(LocalProduct const& p) const {
  auto const is_left_transposed = p.form == Form::right_grad;
  auto const is_right_transposed = p.form == Form::left_grad;
  return {is_left_transposed ? Transpose::yes : Transpose::no,
          is_right_transposed ? Transpose::yes : Transpose::no,
          is_left_transposed ? pmm::as_matrix(left_, p.k, p.m) : pmm::as_matrix(left_, p.m, p.k),
          is_right_transposed ? pmm::as_matrix(right_, p.n, p.k) : pmm::as_matrix(right_, p.k, p.n),
          pmm::as_matrix(result_, p.m, p.n)};
}

template<class T>
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product) const {
  auto const p = panels_of(product);
  pmm::local_gemm<T>(exec, 1, p.transpose_left, p.left, p.transpose_right, p.right, 0, p.result);
}

template<class T>
void ProductOperands<T>::multiply(DefaultExec const& exec, LocalProduct const& product,
                                  pmm::LocalSpmm<T> const& sparse) const {
  sparse.apply(exec, {0, product.m}, pmm::as_matrix(right_, product.k, product.n),
               pmm::as_matrix(result_, product.m, product.n));
}

template<class T>
void ProductOperands<T>::multiply_bare(LocalProduct const& product) const {
  auto const p = panels_of(product);
  bare_gemm<T>(p.transpose_left, p.left, p.transpose_right, p.right, p.result);
}

template class ProductOperands<float>;
template class ProductOperands<double>;

} // namespace orthant::cli
