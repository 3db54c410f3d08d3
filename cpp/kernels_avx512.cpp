// The filter for x86-64 with AVX-512 F, DQ, BW and VL.
#include "kernels.h"
#include <immintrin.h>

namespace mreach {
namespace avx2 {
void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums);
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums);
}
namespace avx512 {

constexpr int FLOATS = 16, TILE_ROWS = 8, TILE_VECTORS = 2;  // 16 sums hide the latency of two multiply-adds
typedef __mmask16 Mask;

static inline Mask mask_none() { return 0; }
static inline Mask mask_or(Mask a, Mask b) { return static_cast<Mask>(a | b); }
static inline Mask keeps(__m512 a, __m512 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
static inline uint32_t mask_bits(Mask m) { return m; }
static inline bool mask_any(Mask m) { return m != 0; }

#include "kernels_source.inc"

extern const Kernels KERNELS;
const Kernels KERNELS = {"avx512", N_TILES, filter_block, near_tiles, move_panel, child_distances, block_distances,
                         avx2::exact_sums_float, avx2::exact_sums_double};

}  // namespace avx512
}  // namespace mreach
