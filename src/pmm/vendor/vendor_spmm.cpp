// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_spmm.hpp"

#include "pmm/vendor/vendor_api.hpp"

namespace orthant::pmm::vendor {
namespace {

using LibraryHandle = ORTHANT_VENDOR_SPARSE(Handle_t);
using SparseDescriptor = ORTHANT_VENDOR_SPARSE(SpMatDescr_t);
using DenseDescriptor = ORTHANT_VENDOR_SPARSE(DnMatDescr_t);

constexpr auto not_transposed = ORTHANT_VENDOR_SPARSE_CONSTANT(OPERATION_NON_TRANSPOSE);

auto library_algorithm(SpmmAlgorithm algorithm) {
  switch (algorithm) {
  case SpmmAlgorithm::csr_alg2:
    return ORTHANT_VENDOR_SPARSE_CONSTANT(SPMM_CSR_ALG2);
  case SpmmAlgorithm::csr_alg3:
    return ORTHANT_VENDOR_SPARSE_CONSTANT(SPMM_CSR_ALG3);
  default:
    return ORTHANT_VENDOR_SPARSE_CONSTANT(SPMM_ALG_DEFAULT);
  }
}

/// The libraries' descriptors take `void*` even for data that they only read.
template<class T>
void* writable(T const* data) {
  return const_cast<void*>(static_cast<void const*>(data));
}

/// Descriptor of a row-major matrix for one call.
template<class T>
class Dense {
 public:
  Dense(std::int64_t num_rows, std::int64_t num_columns, T const* data) {
    ORTHANT_CHECK_SPARSE(CreateDnMat(&descriptor_, num_rows, num_columns, num_columns, writable(data),
                                     number_type<T>, ORTHANT_VENDOR_SPARSE_CONSTANT(ORDER_ROW)));
  }
  Dense(Dense const&) = delete;
  Dense& operator=(Dense const&) = delete;
  ~Dense() { static_cast<void>(ORTHANT_VENDOR_SPARSE(DestroyDnMat)(descriptor_)); }
  [[nodiscard]] DenseDescriptor get() const { return descriptor_; }

 private:
  DenseDescriptor descriptor_ = nullptr;
};

} // namespace

char const* name_of(SpmmAlgorithm algorithm) {
  switch (algorithm) {
  case SpmmAlgorithm::csr_alg2:
    return "CSR_ALG2";
  case SpmmAlgorithm::csr_alg3:
    return "CSR_ALG3";
  default:
    return "DEFAULT";
  }
}

template<class T>
void Spmm<T>::DestroyLibrary::operator()(void* handle) const noexcept {
  static_cast<void>(ORTHANT_VENDOR_SPARSE(Destroy)(static_cast<LibraryHandle>(handle)));
}

template<class T>
void Spmm<T>::DestroyMatrix::operator()(void* matrix) const noexcept {
  static_cast<void>(ORTHANT_VENDOR_SPARSE(DestroySpMat)(static_cast<SparseDescriptor>(matrix)));
}

template<class T>
void Spmm<T>::FreeMemory::operator()(void* memory) const noexcept {
  static_cast<void>(ORTHANT_VENDOR_RUNTIME(Free)(memory));
}

template<class T>
Spmm<T>::Spmm(void* stream, SpmmAlgorithm algorithm, CsrOperand<T> const& a, std::int64_t width, T const* b,
              T* c)
    : algorithm_(algorithm),
      num_rows_(a.num_rows),
      num_columns_(a.num_columns),
      width_(width) {
  LibraryHandle library = nullptr;
  ORTHANT_CHECK_SPARSE(Create(&library));
  library_ = decltype(library_)(library);
  ORTHANT_CHECK_SPARSE(SetStream(library, static_cast<Stream>(stream)));

  constexpr auto index_type = ORTHANT_VENDOR_SPARSE_CONSTANT(INDEX_32I);
  SparseDescriptor matrix = nullptr;
  ORTHANT_CHECK_SPARSE(CreateCsr(&matrix, a.num_rows, a.num_columns, a.num_nonzeros, writable(a.row_offsets),
                                 writable(a.columns), writable(a.values), index_type, index_type,
                                 ORTHANT_VENDOR_SPARSE_CONSTANT(INDEX_BASE_ZERO), number_type<T>));
  matrix_ = decltype(matrix_)(matrix);

  T const one = 1;
  T const zero = 0;
  Dense<T> const dense_b(num_columns_, width_, b);
  Dense<T> const dense_c(num_rows_, width_, c);
  std::size_t num_bytes = 0;
  ORTHANT_CHECK_SPARSE(SpMM_bufferSize(library, not_transposed, not_transposed, &one, matrix, dense_b.get(),
                                       &zero, dense_c.get(), number_type<T>, library_algorithm(algorithm_),
                                       &num_bytes));
  void* buffer = nullptr;
  ORTHANT_CHECK_RUNTIME(Malloc(&buffer, num_bytes > 0 ? num_bytes : 1)); // so that the buffer is never null
  buffer_ = decltype(buffer_)(buffer);
  ORTHANT_CHECK_SPARSE(SpMM_preprocess(library, not_transposed, not_transposed, &one, matrix, dense_b.get(),
                                       &zero, dense_c.get(), number_type<T>, library_algorithm(algorithm_),
                                       buffer));
}

template<class T>
void Spmm<T>::apply(void* stream, T const* b, T* c) const {
  auto const library = static_cast<LibraryHandle>(library_.get());
  auto const matrix = static_cast<SparseDescriptor>(matrix_.get());
  T const one = 1;
  T const zero = 0;
  Dense<T> const dense_b(num_columns_, width_, b);
  Dense<T> const dense_c(num_rows_, width_, c);
  ORTHANT_CHECK_SPARSE(SetStream(library, static_cast<Stream>(stream)));
  ORTHANT_CHECK_SPARSE(SpMM(library, not_transposed, not_transposed, &one, matrix, dense_b.get(), &zero,
                            dense_c.get(), number_type<T>, library_algorithm(algorithm_), buffer_.get()));
}

std::size_t free_device_bytes() {
  std::size_t num_free = 0;
  std::size_t num_total = 0;
  ORTHANT_CHECK_RUNTIME(MemGetInfo(&num_free, &num_total));
  return num_free;
}

template class Spmm<float>;
template class Spmm<double>;

} // namespace orthant::pmm::vendor
