#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Predictions of a network for every vertex, by original id, in a file. With z the logits:
//
//   one class       class_i = arg max_j z_ij, the smallest j of equal ones      p_ij = exp(z_ij) / sum_k exp(z_ik)
//   several         i has class j if z_ij > 0                                   p_ij = 1 / (1 + exp(-z_ij))
//   regression      the prediction of target j is z_ij

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace orthant::models {

// Rows of a matrix of vertices by original id, in any layout. Whole rows are gathered for one slice of the ids at a time, so
// besides its own block a rank holds the rows of a slice that it sends, and its share of the slice.

// A file with one row per vertex, by original id, written by all ranks together. Its extension gives the format:
//
//   .h5    /predictions   int32 [N]: the class; with several classes int8 [N x C]: 1 if the vertex has the class; of regression [N x T]
//          /class_names   int64 offsets and uint8 text of the names of classes, as in a store, if they have names
//          /probabilities [N x C], /embeddings [N x D] in the precision of the computation, if requested
//   .npy   one array: the probabilities or the embeddings if requested, else the contents of /predictions
//   .csv   header vertex[,type][,name],class[,p0,..][,e0,..], then a line per vertex; with several classes c0,.. replaces class, of regression
//          y0,..; classes are names if they have names

/// Columns of a file of predictions.
struct PredictionColumns {
  std::int64_t num_vertices = 0;
  std::int64_t num_classes = 0;
  bool has_several_classes = false; // a vertex may have several classes
  bool has_numbers = false;         // regression
  bool has_probabilities = false;
  bool has_types = false;           // of vertices, which then have names; only .csv has types and names
  bool has_names = false;           // of vertices
  std::int64_t embedding_width = 0; // 0: no embeddings
  std::vector<std::string> class_names{};
};

/// The columns for a range of vertices.
template<class T>
struct PredictionRows {
  runtime::Range ids;
  std::vector<std::int32_t> classes;   // [ids] if each vertex has one class
  std::vector<std::int8_t> indicators; // [ids x classes] 0 or 1, if it may have several
  std::vector<T> numbers;              // [ids x targets] of regression
  std::vector<T> probabilities;        // [ids x classes] or empty
  std::vector<T> embeddings;           // [ids x width] or empty
  std::vector<std::string> types;      // [ids] or empty
  std::vector<std::string> names;      // [ids] or empty
};

template<class T>
class PredictionFile {
 public:
  virtual ~PredictionFile() = default;
  /// Writes the next rows. The rows of all ranks, in the order of the ranks, follow the rows of the previous call. Collective.
  virtual void write(PredictionRows<T> const& rows) = 0;
  /// Renames the file to its final name when it is complete and on disk. Collective.
  virtual void publish() = 0;
};

/// The extension must be a known format that can hold these columns; otherwise throws UserError.
void require_prediction_format(std::filesystem::path const& path, bool has_probabilities,
                               bool has_embeddings);

/// Creates a file under a temporary name. `comm` must outlive it. Collective over `comm`. Throws UserError on all ranks if the
/// extension does not fit (require_prediction_format()), if the file cannot be created, or if there is not enough space.
template<class T>
[[nodiscard]] std::unique_ptr<PredictionFile<T>> create_prediction_file(runtime::Communicator const& comm,
                                                                        std::filesystem::path const& path,
                                                                        PredictionColumns const& columns);

template<class T>
class RowsById {
 public:
  /// Access to `matrix`, whose rows are vertices in an order of the store; on a device it is copied to the host. `grid` and
  /// `matrix` must outlive this object. Collective over the grid's world. Throws UserError if the store cannot be read. Memory: 16
  /// bytes per row of this rank's block.
  RowsById(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::DistMatrix<T> const& matrix);

  [[nodiscard]] std::int64_t width() const { return width_; }

  /// Gathers the rows of the vertices in this rank's balanced part of `ids`, [size of the part x width()], row-major. `ids` must be
  /// the same on all ranks. Collective over the grid's world. Each number is sent once.
  [[nodiscard]] std::vector<T> bring(runtime::Range ids) const;

 private:
  struct Place {
    std::int64_t id;
    std::int64_t row; // of the block
  };
  [[nodiscard]] runtime::Range columns_of(int rank) const;

  pmm::ProcessGrid const& grid_;
  pmm::Placement placement_;
  std::int64_t width_;
  decltype(Kokkos::create_mirror_view(std::declval<runtime::Matrix<T> const&>())) numbers_; // of the block
  std::vector<Place> places_; // sorted by id; empty if another rank has the same rows and sends them
};

extern template class RowsById<float>;
extern template class RowsById<double>;

/// Writes the classes of `logits`, the probabilities if `has_probabilities`, and the rows of `embeddings` unless it is null. Both
/// matrices have one row per vertex, in any layout and order of the store. Each rank writes its share of each slice of the ids.
/// Probabilities are computed in double. Collective over the grid's world. Throws UserError if the file cannot be written, or if
/// its extension does not fit. Memory besides the matrices: about 100 MiB per rank, and 500 MiB on a rank that has all rows of a
/// slice (if the order of the store is that of the ids). Each number is sent once.
template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, bool has_probabilities,
                       pmm::DistMatrix<T> const* embeddings, std::filesystem::path const& path);

} // namespace orthant::models
