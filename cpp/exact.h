// The contract's distance: float64, difference form, features in order, every operation rounded once. Compiled
// without contraction (-ffp-contract=off): a fused multiply-add rounds differently.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels.h"

namespace mreach {

// sums[k] = squared distance of x and candidates[k] for all EXACT_LANES candidates, in whatever instruction set:
// each lane does the contract's operations in the contract's order.
template <class Value>
inline void exact_sums(const Value* x, const Value* const* candidates, int n_features, double* sums) {
  double sum[EXACT_LANES] = {};
  for (int f = 0; f < n_features; ++f) {
    const double value = static_cast<double>(x[f]);
    for (int k = 0; k < EXACT_LANES; ++k) {
      const double t = value - static_cast<double>(candidates[k][f]);
      sum[k] = sum[k] + t * t;
    }
  }
  for (int k = 0; k < EXACT_LANES; ++k) sums[k] = sum[k];
}

inline void run_exact_sums(const Kernels& kernels, const float* x, const float* const* candidates, int n_features, double* sums) {
  kernels.exact_sums_float(x, candidates, n_features, sums);
}
inline void run_exact_sums(const Kernels& kernels, const double* x, const double* const* candidates, int n_features, double* sums) {
  kernels.exact_sums_double(x, candidates, n_features, sums);
}

// What a distance is made of the sum of squares.
struct Measure {
  bool halved_square = false;  // half of the sum; else its root

  double of(double sum) const { return halved_square ? 0.5 * sum : std::sqrt(sum); }
  // The Euclidean distance of rows at this distance.
  double euclidean(double distance) const { return halved_square ? std::sqrt(2 * distance) : distance; }
};

// distances[k] = d(x, candidates[k]) for k < count <= EXACT_LANES. Vectorised across candidates, never across
// features. candidates[] beyond count is filled up here.
template <class Value>
inline void exact_distances(const Kernels& kernels, const Measure& measure, const Value* x, const Value** candidates,
                            int count, int n_features, double* distances) {
  for (int k = count; k < EXACT_LANES; ++k) candidates[k] = candidates[0];
  double sums[EXACT_LANES];
  run_exact_sums(kernels, x, candidates, n_features, sums);
  if (measure.halved_square) {
    for (int k = 0; k < count; ++k) distances[k] = 0.5 * sums[k];
  } else {
    for (int k = 0; k < count; ++k) distances[k] = std::sqrt(sums[k]);
  }
}

template <class Value>
inline double exact_distance(const Measure& measure, const Value* x, const Value* y, int n_features) {
  double sum = 0;
  for (int f = 0; f < n_features; ++f) {
    const double t = static_cast<double>(x[f]) - static_cast<double>(y[f]);
    sum = sum + t * t;
  }
  return measure.of(sum);
}

// How far a computed distance can lie from the true one, both Euclidean: at most EXACT_RELATIVE of it (n_features <=
// 2^20), and EXACT_ABSOLUTE where squares are subnormal. Rows whose true Euclidean distance is above
// `search_bound(measure, t)` have a computed distance above t, in whatever measure (docs/filter.md).
constexpr double EXACT_RELATIVE = 0x1p-30;
constexpr double EXACT_ABSOLUTE = 0x1p-525;
inline double search_bound(const Measure& measure, double distance) {
  return measure.euclidean(distance) * (1 + EXACT_RELATIVE) + EXACT_ABSOLUTE;
}

}  // namespace mreach
