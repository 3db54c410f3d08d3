// Exact sums with AVX2: four candidates to a vector. Built without -mfma and without contraction, so that a product
// and a sum stay two roundings.
#include "kernels.h"
#include <immintrin.h>

namespace mreach {
namespace avx2 {

void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums);
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums);

static inline __m256d load_four(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
static inline __m256d load_four(const double* p) { return _mm256_loadu_pd(p); }

static inline __m256d add_square(__m256d sum, double value, __m256d y) {
  const __m256d t = _mm256_sub_pd(_mm256_set1_pd(value), y);
  return _mm256_add_pd(sum, _mm256_mul_pd(t, t));
}

// Four features of four candidates, turned so that a vector holds one feature of all four.
template <class Value>
static inline __m256d add_four_features(__m256d sum, const Value* x, const Value* const* y, int f) {
  const __m256d a = load_four(y[0] + f), b = load_four(y[1] + f), c = load_four(y[2] + f), d = load_four(y[3] + f);
  const __m256d ab_low = _mm256_unpacklo_pd(a, b), ab_high = _mm256_unpackhi_pd(a, b);
  const __m256d cd_low = _mm256_unpacklo_pd(c, d), cd_high = _mm256_unpackhi_pd(c, d);
  sum = add_square(sum, static_cast<double>(x[f]), _mm256_permute2f128_pd(ab_low, cd_low, 0x20));
  sum = add_square(sum, static_cast<double>(x[f + 1]), _mm256_permute2f128_pd(ab_high, cd_high, 0x20));
  sum = add_square(sum, static_cast<double>(x[f + 2]), _mm256_permute2f128_pd(ab_low, cd_low, 0x31));
  return add_square(sum, static_cast<double>(x[f + 3]), _mm256_permute2f128_pd(ab_high, cd_high, 0x31));
}

template <class Value>
static inline void exact_sums(const Value* x, const Value* const* candidates, int n_features, double* sums) {
  __m256d first = _mm256_setzero_pd(), second = _mm256_setzero_pd();
  const Value* const* more = candidates + 4;
  int f = 0;
  for (; f + 4 <= n_features; f += 4) {
    first = add_four_features(first, x, candidates, f);
    second = add_four_features(second, x, more, f);
  }
  for (; f < n_features; ++f) {
    const double value = static_cast<double>(x[f]);
    first = add_square(first, value, _mm256_setr_pd(candidates[0][f], candidates[1][f], candidates[2][f], candidates[3][f]));
    second = add_square(second, value, _mm256_setr_pd(more[0][f], more[1][f], more[2][f], more[3][f]));
  }
  _mm256_storeu_pd(sums, first);
  _mm256_storeu_pd(sums + 4, second);
}

void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums) {
  exact_sums(x, candidates, n_features, sums);
}
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums) {
  exact_sums(x, candidates, n_features, sums);
}

}  // namespace avx2
}  // namespace mreach
