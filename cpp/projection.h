// Where the filter looks from: a robust centre, a power-of-two scale and the leading principal directions. Any
// centre, scale and directions give the right result; good ones exclude more.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "workers.h"

namespace mreach {

constexpr int MIN_SAMPLE = 256, MAX_SAMPLE = 1024;  // rows that centre, scale and directions are taken from: a
constexpr int SAMPLE_PART = 4;                      // fourth of all, within these limits
constexpr double COORDINATE_LIMIT = 0x1p40;  // scaled coordinates are clamped here: clamping never lengthens a distance
constexpr double SAMPLE_LIMIT = 0x1p10;      // rows farther out than this do not shape the directions
constexpr int MAX_COVARIANCE_FEATURES = 256; // beyond it the covariance is applied without being formed
constexpr int POWER_STEPS = 6, WIDE_POWER_STEPS = 3;
constexpr std::int64_t SAMPLE_VALUES = 1 << 21;     // rows times features that the directions are found from
constexpr double MAX_SKEW = 0x1p-32;         // directions less orthonormal than this are not used

struct Projection {
  int n_features = 0, n_directions = 0;
  std::vector<double> centre;
  double scale = 1;                 // a power of two
  std::vector<double> directions;   // (n_directions, n_features), orthonormal up to `skew`
  std::vector<double> by_feature;   // the same, (n_features, n_directions)
  double skew = 0;                  // bound of the Frobenius norm of directions * directions^T - identity

  // Rotated coordinates of a centred row. The inner loop runs over directions, so that it vectorises.
  void rotate(const double* y, double* out) const {
    std::fill(out, out + n_directions, 0.0);
    for (int f = 0; f < n_features; ++f) {
      const double value = y[f];
      const double* column = &by_feature[static_cast<std::size_t>(f) * n_directions];
      for (int k = 0; k < n_directions; ++k) out[k] += value * column[k];
    }
  }

  // y = clamp(scale * (x - centre)); rounding moves each coordinate by at most 2^-52 of it.
  template <class Value>
  void centred(const Value* x, double* y) const {
    for (int f = 0; f < n_features; ++f) {
      const double t = (static_cast<double>(x[f]) - centre[f]) * scale;
      y[f] = t > COORDINATE_LIMIT ? COORDINATE_LIMIT : t < -COORDINATE_LIMIT ? -COORDINATE_LIMIT : t;
    }
  }
};

// Gram-Schmidt; two passes give orthogonality to machine precision. Directions that vanish become zero.
inline void orthonormalise(std::vector<double>& rows, int count, int width, int passes) {
  for (int i = 0; i < count; ++i) {
    double* a = &rows[static_cast<std::size_t>(i) * width];
    double before = 0;
    for (int f = 0; f < width; ++f) before += a[f] * a[f];
    for (int pass = 0; pass < passes; ++pass)
      for (int j = 0; j < i; ++j) {
        const double* b = &rows[static_cast<std::size_t>(j) * width];
        double dot = 0;
        for (int f = 0; f < width; ++f) dot += a[f] * b[f];
        for (int f = 0; f < width; ++f) a[f] -= dot * b[f];
      }
    double norm = 0;
    for (int f = 0; f < width; ++f) norm += a[f] * a[f];
    const bool vanished = !(norm > before * 1e-20) || !(norm > 0);
    const double inverse = vanished ? 0 : 1 / std::sqrt(norm);
    for (int f = 0; f < width; ++f) a[f] *= inverse;
  }
}

inline double orthonormality_error(const std::vector<double>& rows, int count, int width) {
  double sum = 0;
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < count; ++j) {
      const double *a = &rows[static_cast<std::size_t>(i) * width], *b = &rows[static_cast<std::size_t>(j) * width];
      double dot = 0, norm = 0;
      for (int f = 0; f < width; ++f) dot += a[f] * b[f], norm += a[f] * a[f];
      // A zero direction is orthogonal to everything and measures nothing: it shortens, which is allowed.
      const double error = std::fabs(dot - (i == j && norm > 0.5 ? 1.0 : 0.0)) + (width + 2) * 0x1p-52;
      sum += error * error;
    }
  return std::sqrt(sum);
}

// Leading directions of the sample's covariance by subspace iteration.
inline void find_directions(Projection& p, const std::vector<double>& sample, int m, Workers& workers) {
  const int d = p.n_features, q = p.n_directions;
  std::vector<double> mean(d, 0.0), centred(sample);
  for (int i = 0; i < m; ++i)
    for (int f = 0; f < d; ++f) mean[f] += sample[static_cast<std::size_t>(i) * d + f] / m;
  for (int i = 0; i < m; ++i)
    for (int f = 0; f < d; ++f) centred[static_cast<std::size_t>(i) * d + f] -= mean[f];
  std::vector<double> covariance;
  const bool form = d <= MAX_COVARIANCE_FEATURES;
  if (form) {
    covariance.assign(static_cast<std::size_t>(d) * d, 0.0);
    workers.run(d, 8, [&](std::int64_t begin, std::int64_t end, int) {
      for (int i = 0; i < m; ++i) {
        const double* y = &centred[static_cast<std::size_t>(i) * d];
        for (std::int64_t a = begin; a < end; ++a) {
          double* row = &covariance[a * d];
          const double v = y[a];
          for (int b = 0; b < d; ++b) row[b] += v * y[b];
        }
      }
    });
  }
  // Start from spread-out sample rows plus a fixed pattern, so that no direction starts at zero.
  p.directions.assign(static_cast<std::size_t>(q) * d, 0.0);
  for (int k = 0; k < q; ++k)
    for (int f = 0; f < d; ++f)
      p.directions[static_cast<std::size_t>(k) * d + f] =
          centred[static_cast<std::size_t>(static_cast<std::int64_t>(k) * m / q) * d + f] +
          1e-3 * static_cast<double>((static_cast<std::int64_t>(f) * 7919 + static_cast<std::int64_t>(k) * 104729) % 1009 - 504) / 504;
  orthonormalise(p.directions, q, d, 1);
  std::vector<double> next(p.directions.size());
  const int steps = form ? POWER_STEPS : WIDE_POWER_STEPS;
  for (int step = 0; step < steps; ++step) {
    workers.run(q, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t k = begin; k < end; ++k) {
        const double* v = &p.directions[k * d];
        double* out = &next[k * d];
        std::fill(out, out + d, 0.0);
        if (form) {
          for (int a = 0; a < d; ++a) {
            const double* row = &covariance[static_cast<std::size_t>(a) * d];
            for (int b = 0; b < d; ++b) out[b] += v[a] * row[b];
          }
        } else {
          for (int i = 0; i < m; ++i) {
            const double* y = &centred[static_cast<std::size_t>(i) * d];
            double dot = 0;
            for (int f = 0; f < d; ++f) dot += v[f] * y[f];
            for (int f = 0; f < d; ++f) out[f] += dot * y[f];
          }
        }
      }
    });
    p.directions.swap(next);
    orthonormalise(p.directions, q, d, step + 1 == steps ? 2 : 1);
  }
  p.skew = orthonormality_error(p.directions, q, d);
}

// rows[0..count): the rows of X to look at.
template <class Value>
Projection find_projection(const Value* X, const std::int32_t* rows, std::int64_t count, int n_features,
                           int n_directions, Workers& workers) {
  Projection p;
  p.n_features = n_features;
  p.n_directions = n_directions;
  const int m = static_cast<int>(std::min<std::int64_t>(count, std::clamp<std::int64_t>(count / SAMPLE_PART, MIN_SAMPLE, MAX_SAMPLE)));
  auto sampled = [&](int i) { return X + static_cast<std::int64_t>(rows[static_cast<std::int64_t>(i) * count / m]) * n_features; };
  p.centre.resize(n_features);
  workers.run(n_features, 16, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<double> values(m);
    for (std::int64_t f = begin; f < end; ++f) {
      for (int i = 0; i < m; ++i) values[i] = static_cast<double>(sampled(i)[f]);
      std::nth_element(values.begin(), values.begin() + m / 2, values.end());
      p.centre[f] = values[m / 2];
    }
  });
  std::vector<double> reach(m);
  double largest = 0;
  for (int i = 0; i < m; ++i) {
    reach[i] = 0;
    for (int f = 0; f < n_features; ++f)
      reach[i] = std::max(reach[i], std::fabs(static_cast<double>(sampled(i)[f]) - p.centre[f]));
    largest = std::max(largest, reach[i]);
  }
  // A high quantile, so that a single row far out does not push all others into one point.
  std::nth_element(reach.begin(), reach.begin() + (m - 1) * 98 / 100, reach.end());
  const double typical = reach[(m - 1) * 98 / 100] > 0 ? reach[(m - 1) * 98 / 100] : largest;
  int exponent = 0;
  if (typical > 0) std::frexp(typical, &exponent);
  p.scale = std::ldexp(1.0, std::min(1000, std::max(-1000, -exponent)));
  if (n_directions > 0) {
    std::vector<double> sample;
    sample.reserve(static_cast<std::size_t>(m) * n_features);
    std::vector<double> y(n_features);
    const int useful = static_cast<int>(std::min<std::int64_t>(m, std::max<std::int64_t>(2 * n_directions, SAMPLE_VALUES / n_features)));
    for (int k = 0; k < useful; ++k) {
      p.centred(sampled(static_cast<int>(static_cast<std::int64_t>(k) * m / useful)), y.data());
      const bool far = std::any_of(y.begin(), y.end(), [](double v) { return std::fabs(v) > SAMPLE_LIMIT; });
      if (!far) sample.insert(sample.end(), y.begin(), y.end());
    }
    const int kept = static_cast<int>(sample.size() / n_features);
    if (kept > 0) find_directions(p, sample, kept, workers);
    if (kept == 0 || p.skew > MAX_SKEW) {
      p.directions.assign(static_cast<std::size_t>(n_directions) * n_features, 0.0);
      p.skew = 0;
    }
    p.by_feature.resize(p.directions.size());
    for (int k = 0; k < n_directions; ++k)
      for (int f = 0; f < n_features; ++f)
        p.by_feature[static_cast<std::size_t>(f) * n_directions + k] = p.directions[static_cast<std::size_t>(k) * n_features + f];
  }
  return p;
}

}  // namespace mreach
