// What all kernels share: sizes, small warp helpers, and the exact distance.
#pragma once
#include "primitives.cuh"

constexpr int TILE = 128;           // rows that are filtered, bounded and skipped together
constexpr int SCAN_THREADS = 256;   // two threads for each row of a tile
constexpr int LANES = 32;
constexpr int WARP_ROWS = TILE / (SCAN_THREADS / LANES);  // rows of a tile that one warp owns
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr u64 NO_WEIGHT = 0x7ff0000000000000ull;  // bits of infinity; weights are compared by their bits
constexpr u64 NO_PAIR = ~0ull;

__device__ __forceinline__ float float_infinity() { return __int_as_float(0x7f800000); }

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
  return x;
}

// 16 bytes of a row at once. Rows are padded with zeros to a multiple of that: they add 0 * 0 to a sum, which
// leaves it as it is.
struct FourFloats {
  static constexpr int COUNT = 4;
  __device__ __forceinline__ static void load(const float* x, double (&into)[COUNT]) {
    const float4 v = *reinterpret_cast<const float4*>(x);
    into[0] = widened(v.x), into[1] = widened(v.y), into[2] = widened(v.z), into[3] = widened(v.w);
  }
};
struct TwoDoubles {
  static constexpr int COUNT = 2;
  __device__ __forceinline__ static void load(const double* x, double (&into)[COUNT]) {
    const double2 v = *reinterpret_cast<const double2*>(x);
    into[0] = v.x, into[1] = v.y;
  }
};
template <class T> struct Sixteen;
template <> struct Sixteen<float> : FourFloats {};
template <> struct Sixteen<double> : TwoDoubles {};

// The definition: differences of the user's own values in float64, features in order, each operation rounded once.
template <class T>
__device__ __forceinline__ double squared_distance(const T* x, const T* y, int padded_features) {
  constexpr int COUNT = Sixteen<T>::COUNT;
  double sum = 0;
#pragma unroll 4
  for (int f = 0; f < padded_features; f += COUNT) {
    double a[COUNT], b[COUNT];
    Sixteen<T>::load(x + f, a);
    Sixteen<T>::load(y + f, b);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const double t = __dsub_rn(a[i], b[i]);
      sum = __dadd_rn(sum, __dmul_rn(t, t));
    }
  }
  return sum;
}

// The distance of the fit: the root of the sum of squares, or half that sum. length_of: how far apart rows at such a
// distance lie. squared_length of a distance times unit_of: about the same, squared and in the filter's units.
#ifdef MREACH_HALVED_SQUARE
__device__ __forceinline__ double distance_of(double squared) { return __dmul_rn(0.5, squared); }
__device__ __forceinline__ double length_of(double distance) { return __dsqrt_rn(2.0 * distance); }
__device__ __forceinline__ float unit_of(double alpha, double scale) { return static_cast<float>(2.0 * alpha * scale * scale); }
__device__ __forceinline__ float squared_length(float distance) { return distance; }
#else
__device__ __forceinline__ double distance_of(double squared) { return __dsqrt_rn(squared); }
__device__ __forceinline__ double length_of(double distance) { return distance; }
__device__ __forceinline__ float unit_of(double alpha, double scale) { return static_cast<float>(alpha * scale); }
__device__ __forceinline__ float squared_length(float distance) { return distance * distance; }
#endif

__device__ __forceinline__ double mutual_reachability(double core_a, double core_b, double squared, double alpha) {
  return fmax(fmax(core_a, core_b), __ddiv_rn(distance_of(squared), alpha));
}

// A pair of rows as one number that orders by (lower row, higher row).
__device__ __forceinline__ u64 pair_of(int a, int b) {
  const unsigned low = static_cast<unsigned>(min(a, b)), high = static_cast<unsigned>(max(a, b));
  return static_cast<u64>(low) << 32 | high;
}

__device__ __forceinline__ u64 weight_bits(double w) { return static_cast<u64>(__double_as_longlong(w)); }
__device__ __forceinline__ double weight_of(u64 bits) { return __longlong_as_double(static_cast<i64>(bits)); }

// The k-th smallest of numbers that are not negative, by their bits, highest first. A warp together: for_each(f) calls
// f(bits) for each number of this lane.
template <class ForEach>
__device__ __forceinline__ u64 kth_smallest(const ForEach& for_each, int k) {
  u64 value = 0;
  for (int bit = 62; bit >= 0; --bit) {
    const u64 tried = value | 1ull << bit;
    int below = 0;
    for_each([&](u64 bits) { below += bits < tried; });
    if (warp_sum(below) < k) value = tried;
  }
  return value;
}

// Most calls change nothing: look before locking the address.
__device__ __forceinline__ void lower_to(u64* address, u64 value) {
  if (value < *static_cast<volatile u64*>(address)) atomicMin(address, value);
}
