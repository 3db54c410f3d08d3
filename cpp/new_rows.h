// New rows that look for fitted ones, and the plain way: each looks at all of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "best_edges.h"
#include "buffer.h"
#include "exact.h"
#include "kernels.h"
#include "workers.h"

namespace mreach {

constexpr std::int64_t WHOLE_SLICE = 1024;           // fitted rows that stay in the cache while new rows look at them
constexpr std::int64_t WHOLE_VALUES = std::int64_t(1) << 22;  // distances held at a time: 32 MB

template <class Value>
struct NewRows {
  const Value *fitted, *rows;
  std::int64_t n_fitted, n_rows;
  int n_features;
  Measure measure;
  double alpha;
  std::int64_t min_samples;           // of the fitted rows; a new row does not count itself
  const double* fitted_core;          // equal rows have equal ones
  const std::uint8_t* candidates;     // which fitted rows may be the answer; nullptr: all
  bool core_known;
  double* core;                       // of the new rows: read where they are known, else written
  std::int64_t* answers;              // a fitted row, or -1
  double* weights;

  bool is_candidate(std::int64_t i) const { return !candidates || candidates[i]; }
};

template <class Value>
bool lexicographically_less(const Value* a, const Value* b, int n_features) {
  return std::lexicographical_compare(a, a + n_features, b, b + n_features);
}

// The best row met so far: in the user's numbers or by position, as the search has it.
struct BestRow {
  double weight = std::numeric_limits<double>::infinity(), distance = std::numeric_limits<double>::infinity();
  std::int32_t row = -1;

  // Keeps the better one, `value(row)` being a row's values. Returns whether it was the offered.
  template <class ValueOf>
  bool offer(const BestRow& other, const ValueOf& value, int n_features) {
    if (other.weight > weight || (other.weight == weight && other.distance > distance)) return false;
    if (row >= 0 && other.weight == weight && other.distance == distance &&
        !lexicographically_less(value(other.row), value(row), n_features))
      return false;
    *this = other;
    return true;
  }
};

// Every new row looks at every fitted row.
template <class Value>
void look_at_all_fitted_rows(const NewRows<Value>& task, const Kernels& kernels, Workers& workers) {
  const std::int64_t n = task.n_fitted, m = task.n_rows;
  const std::int64_t at_once = std::clamp<std::int64_t>(WHOLE_VALUES / n, 1, m);
  Buffer<double> distances(at_once * n);
  std::vector<std::vector<double>> ranked(workers.size());
  auto fitted = [&](std::int64_t i) { return task.fitted + i * task.n_features; };
  for (std::int64_t first = 0; first < m; first += at_once) {
    const std::int64_t count = std::min(at_once, m - first);
    workers.set_part(static_cast<double>(first) / m, static_cast<double>(count) / m);
    workers.run((n + WHOLE_SLICE - 1) / WHOLE_SLICE, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t r = 0; r < count && !workers.checkpoint(thread); ++r)
        for (std::int64_t i = begin * WHOLE_SLICE; i < std::min(n, end * WHOLE_SLICE); i += EXACT_LANES) {
          const Value* columns[EXACT_LANES];
          const int width = static_cast<int>(std::min<std::int64_t>(EXACT_LANES, n - i));
          for (int k = 0; k < width; ++k) columns[k] = fitted(i + k);
          exact_distances(kernels, task.measure, task.rows + (first + r) * task.n_features, columns, width,
                          task.n_features, &distances[r * n + i]);
        }
    });
    workers.set_part(static_cast<double>(first + count) / m, 0);
    workers.run(count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      for (std::int64_t r = begin; r < end; ++r) {
        const double* from = &distances[r * n];
        double& core = task.core[first + r];
        if (!task.core_known) {
          std::vector<double>& values = ranked[thread];
          values.assign(from, from + n);
          std::nth_element(values.begin(), values.begin() + (task.min_samples - 1), values.end());
          core = values[task.min_samples - 1];
        }
        BestRow best;
        for (std::int64_t i = 0; i < n; ++i)
          if (task.is_candidate(i))
            best.offer({edge_weight(core, task.fitted_core[i], from[i], task.alpha), from[i], static_cast<std::int32_t>(i)},
                       fitted, task.n_features);
        task.answers[first + r] = best.row;
        task.weights[first + r] = best.weight;
      }
    });
  }
  workers.set_part(0, 1);
}

}  // namespace mreach
