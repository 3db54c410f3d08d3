// The filter for x86-64 with AVX2 and FMA.
#include "kernels.h"
#include <immintrin.h>

namespace mreach {
namespace avx2 {

constexpr int FLOATS = 8, TILE_ROWS = 6, TILE_VECTORS = 2;  // 12 sums, 2 columns, 1 row: 15 of 16 registers
typedef __m256 Mask;

static inline Mask mask_none() { return _mm256_setzero_ps(); }
static inline Mask mask_or(Mask a, Mask b) { return _mm256_or_ps(a, b); }
static inline Mask keeps(__m256 a, __m256 b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
static inline uint32_t mask_bits(Mask m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
static inline bool mask_any(Mask m) { return mask_bits(m) != 0; }

#include "kernels_source.inc"

void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums);
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums);

extern const Kernels KERNELS;
const Kernels KERNELS = {"avx2", N_TILES, filter_block, near_tiles, move_panel, child_distances, block_distances,
                         exact_sums_float, exact_sums_double};

}  // namespace avx2
}  // namespace mreach
