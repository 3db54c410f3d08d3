// The filter for every processor of the architecture: SSE2 on x86-64, NEON on arm64.
#include "kernels.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace mreach {
namespace baseline {

constexpr int FLOATS = 4, TILE_ROWS = 4, TILE_VECTORS = 2;
typedef int Mask __attribute__((vector_size(16)));
typedef float Quad __attribute__((vector_size(16)));

static inline Mask mask_none() { return Mask{}; }
static inline Mask mask_or(Mask a, Mask b) { return a | b; }
static inline Mask keeps(Quad a, Quad b) { return ~(a < b); }
static inline uint32_t mask_bits(Mask m) {
#if defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps(reinterpret_cast<__m128>(m)));
#else
  return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u);
#endif
}
static inline bool mask_any(Mask m) { return mask_bits(m) != 0; }

#include "kernels_source.inc"

void exact_sums_float(const float* x, const float* const* candidates, int n_features, double* sums);
void exact_sums_double(const double* x, const double* const* candidates, int n_features, double* sums);

extern const Kernels KERNELS;
const Kernels KERNELS = {"baseline", N_TILES, filter_block, near_tiles, move_panel, child_distances, block_distances,
                         exact_sums_float, exact_sums_double};

}  // namespace baseline
}  // namespace mreach
