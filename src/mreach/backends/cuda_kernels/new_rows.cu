// New rows against the rows of a fit, all of them and exactly: how far the k-th nearest is, and which fitted row is the one
// of least mutual reachability distance.
//
// A block compares NEW_TILE new rows with the fitted rows of its part of a launch, as many at a time. What a part has found
// of a new row lies at (new row, part) and goes on from launch to launch; at the end the parts are merged.
#include "common.cuh"

constexpr int NEW_TILE = 64;                    // rows of a tile, new or fitted
constexpr int EDGE = 4;                         // a thread's share of a pair of tiles: EDGE new rows x EDGE fitted ones
constexpr int SIDE = NEW_TILE / EDGE;           // threads along each side of it
constexpr int WARPS = SCAN_THREADS / LANES;
constexpr int FEATURES_AT_ONCE = 32;
constexpr int PITCH = NEW_TILE + 2;             // so that fewer banks of shared memory meet while rows are copied
static_assert(SIDE * SIDE == SCAN_THREADS, "each thread has its share");

struct alignas(16) TilePair {  // by feature
  double fresh[FEATURES_AT_ONCE][PITCH];
  double fitted[FEATURES_AT_ONCE][PITCH];
};

// The rows of a thread's share, in their tiles. Neighbouring threads have neighbouring pairs of columns: no bank meets twice.
__device__ __forceinline__ int new_row_of(int i) { return static_cast<int>(threadIdx.x) / SIDE * EDGE + i; }
__device__ __forceinline__ int column_of(int j) { return j / 2 * (2 * SIDE) + static_cast<int>(threadIdx.x) % SIDE * 2 + j % 2; }

// Some features of the rows [first, first + NEW_TILE); those from `end` on are copies of the last. rows: which, or null: all.
template <class T>
__device__ __forceinline__ void copy_tile(double (&into)[FEATURES_AT_ONCE][PITCH], const T* values, int d, const int* rows, i64 first,
                                          i64 end, int start, int width) {
  for (int i = threadIdx.x; i < NEW_TILE * width; i += SCAN_THREADS) {
    const int r = i / width, f = i - r * width;
    const i64 at = min(first + r, end - 1);
    into[f][r] = widened(values[(rows ? rows[at] : at) * d + start + f]);
  }
}

__device__ __forceinline__ void load_share(const double* values, int stride, double (&into)[EDGE]) {
#pragma unroll
  for (int i = 0; i < EDGE; i += 2) {
    const double2 two = *reinterpret_cast<const double2*>(values + i / 2 * stride);
    into[i] = two.x, into[i + 1] = two.y;
  }
}

// The contract's squared distances of a thread's share: features in order, each operation rounded once. It begins with a
// barrier, so that what the block wrote before is seen, and nobody still reads the tiles.
template <class T>
__device__ __forceinline__ void square_distances(TilePair& tiles, const T* new_values, i64 first_new, i64 n_new, const T* values,
                                                 const int* rows, i64 column, i64 end, int d, double (&sum)[EDGE][EDGE]) {
#pragma unroll
  for (int i = 0; i < EDGE; ++i)
#pragma unroll
    for (int j = 0; j < EDGE; ++j) sum[i][j] = 0;
  for (int start = 0; start < d; start += FEATURES_AT_ONCE) {
    const int width = min(FEATURES_AT_ONCE, d - start);
    __syncthreads();
    copy_tile(tiles.fresh, new_values, d, nullptr, first_new, n_new, start, width);
    copy_tile(tiles.fitted, values, d, rows, column, end, start, width);
    __syncthreads();
#pragma unroll 2
    for (int f = 0; f < width; ++f) {
      double x[EDGE], y[EDGE];
      load_share(&tiles.fresh[f][new_row_of(0)], 2, x);
      load_share(&tiles.fitted[f][column_of(0)], 2 * SIDE, y);
#pragma unroll
      for (int i = 0; i < EDGE; ++i)
#pragma unroll
        for (int j = 0; j < EDGE; ++j) {
          const double t = __dsub_rn(x[i], y[j]);
          sum[i][j] = __dadd_rn(sum[i][j], __dmul_rn(t, t));
        }
    }
  }
}

// Keep the k smallest of `count` squares, in any order; returns the k-th. A warp together.
__device__ __forceinline__ double keep_smallest(double* squares, int count, int k) {
  const int lane = threadIdx.x % LANES;
  const u64 kth = kth_smallest(
      [&](auto&& f) {
        for (int i = lane; i < count; i += LANES) f(weight_bits(squares[i]));
      },
      k);
  int kept = 0;
  for (int first = 0; first < count; first += LANES) {
    const bool valid = first + lane < count;
    const double square = valid ? squares[first + lane] : 0.0;
    const bool keep = valid && weight_bits(square) < kth;
    const unsigned vote = __ballot_sync(ALL_LANES, keep);
    if (keep) squares[kept + __popc(vote & ((1u << lane) - 1u))] = square;
    kept += __popc(vote);
    __syncwarp();
  }
  for (int i = kept + lane; i < k; i += LANES) squares[i] = weight_of(kth);
  return weight_of(kth);
}

// The k nearest squares of each new row in each part, and perhaps some more: (new row, part, capacity). A part takes what is
// below its k-th smallest, `limits`; more than capacity - NEW_TILE are thinned out to k.
template <class T>
__device__ __forceinline__ void squares_near_new(const T* new_values, i64 n_new, const T* values, i64 first, i64 end, i64 columns_of_part,
                                                 int n_parts, int d, int opens, int k, int capacity, double* squares, int* counts,
                                                 double* limits) {
  __shared__ TilePair tiles;
  __shared__ double limit[NEW_TILE];
  __shared__ int count[NEW_TILE];
  const i64 first_new = static_cast<i64>(static_cast<int>(blockIdx.x) / n_parts) * NEW_TILE;
  const int part = static_cast<int>(blockIdx.x) % n_parts;
  const i64 begin = first + part * columns_of_part, stop = min(end, begin + columns_of_part);
  const auto slot = [&](int r) { return (first_new + r) * n_parts + part; };
  if (threadIdx.x < NEW_TILE) {
    const bool valid = first_new + threadIdx.x < n_new;
    count[threadIdx.x] = valid && !opens ? counts[slot(threadIdx.x)] : 0;
    limit[threadIdx.x] = !valid ? -1.0 : opens ? weight_of(NO_WEIGHT) : limits[slot(threadIdx.x)];
  }
  for (i64 column = begin; column < stop; column += NEW_TILE) {
    double sum[EDGE][EDGE];
    square_distances(tiles, new_values, first_new, n_new, values, nullptr, column, stop, d, sum);
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      const int r = new_row_of(i);
      const double reach = limit[r];
#pragma unroll
      for (int j = 0; j < EDGE; ++j)
        if (sum[i][j] < reach && column + column_of(j) < stop) squares[slot(r) * capacity + atomicAdd(&count[r], 1)] = sum[i][j];
    }
    __syncthreads();
    for (int r = threadIdx.x / LANES; r < NEW_TILE; r += WARPS) {
      if (count[r] <= capacity - NEW_TILE) continue;
      const double kth = keep_smallest(squares + slot(r) * capacity, count[r], k);
      __syncwarp();
      if (threadIdx.x % LANES == 0) limit[r] = kth, count[r] = k;
    }
  }
  __syncthreads();
  if (threadIdx.x < NEW_TILE && first_new + threadIdx.x < n_new) {
    counts[slot(threadIdx.x)] = count[threadIdx.x];
    limits[slot(threadIdx.x)] = limit[threadIdx.x];
  }
}

// The distance of the k-th nearest of each new row, over all parts. Squares beyond float64 are not among what parts keep:
// where they leave fewer than k, the k-th is one of them. A warp a row.
extern "C" __global__ void cores_of_new_kernel(const double* squares, const int* counts, i64 n_new, int n_parts, int capacity, int k,
                                               double* core) {
  const i64 row = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  if (row >= n_new) return;
  int count = 0;
  for (int part = 0; part < n_parts; ++part) count += counts[row * n_parts + part];
  u64 kth = NO_WEIGHT;
  if (count >= k) {
    kth = kth_smallest(
        [&](auto&& f) {
          for (int part = 0; part < n_parts; ++part) {
            const i64 slot = row * n_parts + part;
            for (int i = lane; i < counts[slot]; i += LANES) f(weight_bits(squares[slot * capacity + i]));
          }
        },
        k);
  }
  if (lane == 0) core[row] = distance_of(weight_of(kth));
}

// A fitted row and what it is to a new one; row < 0: none.
struct Found {
  double weight, distance;
  int row;
};

// Whether a fitted row comes before another: by its values in order, equal rows by their numbers.
template <class T>
__device__ __noinline__ bool precedes(const T* values, int d, i64 a, i64 b) {
  for (int f = 0; f < d; ++f) {
    const double x = widened(values[a * d + f]), y = widened(values[b * d + f]);
    if (x != y) return x < y;
  }
  return a < b;
}

template <class T>
__device__ __forceinline__ bool comes_first(const T* values, int d, const Found& a, const Found& b) {
  if (a.row < 0 || a.row == b.row) return false;
  if (b.row < 0) return true;
  if (a.weight != b.weight) return a.weight < b.weight;
  if (a.distance != b.distance) return a.distance < b.distance;
  return precedes(values, d, a.row, b.row);
}

// Not below any square that has a distance of at most `distance`. 2^-38 covers the roundings of the distance, of a quotient
// and of the products here, the last term what is lost among subnormal numbers.
__device__ __forceinline__ double squares_up_to(double distance) {
  const double wide = length_of(distance) * (1 + 0x1p-38);
  return wide * wide * (1 + 0x1p-38) + 0x1p-1070;
}

// The largest square that a row may have to come before what was found: it weighs no more than that, and where that is the
// least weight there can be, it is no farther. (A quotient d / alpha of at most w: see reach() of outgoing.cuh.)
__device__ __forceinline__ double reach_of(const Found& found, double new_core, double alpha) {
  const double reach = squares_up_to(alpha * (found.weight + 0x1p-1074));
  return found.weight == new_core ? fmin(reach, squares_up_to(found.distance)) : reach;
}

// The fitted row of least (weight, distance, values, number) of each new row in each part: weights, distances and rows are
// (new row, part). rows: the fitted rows that may be found, or null: all.
template <class T>
__device__ __forceinline__ void lightest_to_new(const T* new_values, i64 n_new, const T* values, const int* rows, i64 first, i64 end,
                                                i64 columns_of_part, int n_parts, int d, int opens, const double* new_core,
                                                const double* core, double alpha, double* weights, double* distances, int* found_rows) {
  __shared__ TilePair tiles;
  const i64 first_new = static_cast<i64>(static_cast<int>(blockIdx.x) / n_parts) * NEW_TILE;
  const int part = static_cast<int>(blockIdx.x) % n_parts;
  const i64 begin = first + part * columns_of_part, stop = min(end, begin + columns_of_part);
  Found found[EDGE];
  double reach[EDGE];
#pragma unroll
  for (int i = 0; i < EDGE; ++i) {
    const i64 row = first_new + new_row_of(i), slot = row * n_parts + part;
    found[i] = {weight_of(NO_WEIGHT), weight_of(NO_WEIGHT), -1};
    if (row < n_new && !opens) found[i] = {weights[slot], distances[slot], found_rows[slot]};
    reach[i] = row < n_new ? reach_of(found[i], new_core[row], alpha) : -1.0;
  }
  for (i64 column = begin; column < stop; column += NEW_TILE) {
    double sum[EDGE][EDGE];
    square_distances(tiles, new_values, first_new, n_new, values, rows, column, stop, d, sum);
    bool changed = false;
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {
      unsigned hits = 0;
#pragma unroll
      for (int j = 0; j < EDGE; ++j) hits |= static_cast<unsigned>(!(sum[i][j] > reach[i]) && column + column_of(j) < stop) << j;
      for (int left = 0; left < EDGE && hits; ++left) {
        const int j = __ffs(hits) - 1;
        hits &= hits - 1;
        const double squared = j < 2 ? (j == 0 ? sum[i][0] : sum[i][1]) : (j == 2 ? sum[i][2] : sum[i][3]);
        const i64 at = column + column_of(j);
        const int row = rows ? rows[at] : static_cast<int>(at);
        const Found other{mutual_reachability(new_core[first_new + new_row_of(i)], core[row], squared, alpha), distance_of(squared), row};
        if (comes_first(values, d, other, found[i])) found[i] = other, changed = true;
      }
    }
    if (!__any_sync(ALL_LANES, changed)) continue;
#pragma unroll
    for (int i = 0; i < EDGE; ++i) {  // SIDE threads share a new row
#pragma unroll
      for (int step = SIDE / 2; step > 0; step /= 2) {
        const Found other{__shfl_xor_sync(ALL_LANES, found[i].weight, step), __shfl_xor_sync(ALL_LANES, found[i].distance, step),
                          __shfl_xor_sync(ALL_LANES, found[i].row, step)};
        if (comes_first(values, d, other, found[i])) found[i] = other;
      }
      const i64 row = first_new + new_row_of(i);
      if (row < n_new) reach[i] = reach_of(found[i], new_core[row], alpha);
    }
  }
  if (threadIdx.x % SIDE != 0) return;
#pragma unroll
  for (int i = 0; i < EDGE; ++i) {
    const i64 row = first_new + new_row_of(i), slot = row * n_parts + part;
    if (row < n_new) weights[slot] = found[i].weight, distances[slot] = found[i].distance, found_rows[slot] = found[i].row;
  }
}

// What comes first of all parts. A thread a row.
template <class T>
__device__ __forceinline__ void lightest_of_parts(const T* values, int d, const double* weights, const double* distances,
                                                  const int* found_rows, i64 n_new, int n_parts, double* weight, int* found_row) {
  const i64 row = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= n_new) return;
  Found best{weight_of(NO_WEIGHT), weight_of(NO_WEIGHT), -1};
  for (int part = 0; part < n_parts; ++part) {
    const i64 slot = row * n_parts + part;
    const Found other{weights[slot], distances[slot], found_rows[slot]};
    if (comes_first(values, d, other, best)) best = other;
  }
  weight[row] = best.weight, found_row[row] = best.row;
}

#define NEW_ROWS_KERNELS(SUFFIX, T)                                                                                            \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) squares_near_new_##SUFFIX##_kernel(                             \
      const T* new_values, i64 n_new, const T* values, i64 first, i64 end, i64 columns_of_part, int n_parts, int d, int opens,  \
      int k, int capacity, double* squares, int* counts, double* limits) {                                                     \
    squares_near_new(new_values, n_new, values, first, end, columns_of_part, n_parts, d, opens, k, capacity, squares, counts,   \
                     limits);                                                                                                  \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS, 2) lightest_to_new_##SUFFIX##_kernel(                              \
      const T* new_values, i64 n_new, const T* values, const int* rows, i64 first, i64 end, i64 columns_of_part, int n_parts,   \
      int d, int opens, const double* new_core, const double* core, double alpha, double* weights, double* distances,           \
      int* found_rows) {                                                                                                       \
    lightest_to_new(new_values, n_new, values, rows, first, end, columns_of_part, n_parts, d, opens, new_core, core, alpha,     \
                    weights, distances, found_rows);                                                                           \
  }                                                                                                                            \
  extern "C" __global__ void lightest_of_parts_##SUFFIX##_kernel(const T* values, int d, const double* weights,                 \
                                                                 const double* distances, const int* found_rows, i64 n_new,    \
                                                                 int n_parts, double* weight, int* found_row) {                \
    lightest_of_parts(values, d, weights, distances, found_rows, n_new, n_parts, weight, found_row);                            \
  }

NEW_ROWS_KERNELS(float32, float)
NEW_ROWS_KERNELS(float64, double)
