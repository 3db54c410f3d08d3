// The contract's distance: float64, difference form, features in order, every operation rounded once. Compiled
// without contraction (-ffp-contract=off): a fused multiply-add rounds differently.
#pragma once
#include <cmath>
#include <cstdint>

namespace mreach {

constexpr int EXACT_LANES = 8;  // candidates evaluated side by side, to hide the latency of each one's sum

// distances[k] = d(x, candidates[k]) for k < count <= EXACT_LANES. Vectorised across candidates, never across
// features, so the order of each sum is the contract's.
template <class Value>
inline void exact_distances(const Value* x, const Value* const* candidates, int count, int n_features,
                            double* distances) {
  double sum[EXACT_LANES] = {};
  const Value* y[EXACT_LANES];
  for (int k = 0; k < EXACT_LANES; ++k) y[k] = candidates[k < count ? k : 0];
  if (count <= EXACT_LANES / 2) {
    for (int f = 0; f < n_features; ++f) {
      const double value = static_cast<double>(x[f]);
      for (int k = 0; k < EXACT_LANES / 2; ++k) {
        const double t = value - static_cast<double>(y[k][f]);
        sum[k] = sum[k] + t * t;
      }
    }
  } else {
    for (int f = 0; f < n_features; ++f) {
      const double value = static_cast<double>(x[f]);
      for (int k = 0; k < EXACT_LANES; ++k) {
        const double t = value - static_cast<double>(y[k][f]);
        sum[k] = sum[k] + t * t;
      }
    }
  }
  for (int k = 0; k < count; ++k) distances[k] = std::sqrt(sum[k]);
}

template <class Value>
inline double exact_distance(const Value* x, const Value* y, int n_features) {
  double sum = 0;
  for (int f = 0; f < n_features; ++f) {
    const double t = static_cast<double>(x[f]) - static_cast<double>(y[f]);
    sum = sum + t * t;
  }
  return std::sqrt(sum);
}

// How far a computed distance can lie from the true one: at most EXACT_RELATIVE of it (n_features <= 2^20), and
// EXACT_ABSOLUTE where squares are subnormal. A true distance above `search_bound(t)` has a computed one above t.
constexpr double EXACT_RELATIVE = 0x1p-30;
constexpr double EXACT_ABSOLUTE = 0x1p-525;
inline double search_bound(double distance) { return distance * (1 + EXACT_RELATIVE) + EXACT_ABSOLUTE; }

}  // namespace mreach
