// From candidates to neighbours: exact distances, the nearest in order, core distances. And exact brute force for rows
// that the filter gave up.
#include "common.cuh"

constexpr int RANK_WARPS = 8;
constexpr int RANKED_AT_ONCE = 256;  // candidates of a row that a warp holds in shared memory
constexpr int EXHAUST_ROWS = 8;      // rows that a block compares with all others together
constexpr int EXHAUST_FEATURES = 32;

__device__ __forceinline__ bool before(double a, int i, double b, int j) { return a < b || (a == b && i < j); }

// The distance at which the multiplicities of the nearest rows reach min_samples. `order` holds sorted neighbours.
__device__ __forceinline__ double core_of(const double* distance, const int* column, int count, const int* multiplicity, int min_samples) {
  const int lane = threadIdx.x % LANES;
  int before_chunk = 0;
  double core = 0;
  bool found = false;
  for (int first = 0; first < count; first += LANES) {
    const bool valid = first + lane < count;
    const int own = valid ? (multiplicity ? multiplicity[column[first + lane]] : 1) : 0;
    int total = own;
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
      const int other = __shfl_up_sync(ALL_LANES, total, step);
      if (lane >= step) total += other;
    }
    const unsigned vote = __ballot_sync(ALL_LANES, valid && before_chunk + total >= min_samples);
    if (vote && !found) {
      core = distance[first + __ffs(vote) - 1];
      found = true;
    }
    before_chunk += __shfl_sync(ALL_LANES, total, LANES - 1);
  }
  return core;
}

// One warp a row. entries: (n_rows, row_pitch), the column in the lower half of each; counts < 0: nothing to do.
// nearest_distance, nearest_column: (n, list_length), written at the row's position. work_*: (n_rows, capacity), used
// where the candidates do not fit into shared memory. Writes 1 to `failed` where a row has fewer candidates than it must.
template <class T>
__device__ __forceinline__ void rank_candidates(const T* values, i64 pitch, const int* positions, i64 n_rows, const u64* entries,
                                                int row_pitch, const int* counts, int capacity, int k, int min_samples, const int* multiplicity,
                                                int list_length, double* nearest_distance, int* nearest_column, double* core,
                                                double* work_distance, int* work_column, int* failed) {
  __shared__ double shared_distance[2][RANK_WARPS][RANKED_AT_ONCE];
  __shared__ int shared_column[2][RANK_WARPS][RANKED_AT_ONCE];
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const i64 row = static_cast<i64>(blockIdx.x) * RANK_WARPS + warp;
  if (row >= n_rows) return;
  const int count = counts[row];
  const i64 position = positions[row];
  if (position < 0 || count < 0) return;
  if (count < k) {
    if (lane == 0) *failed = 1;
    return;
  }
  const bool small = count <= RANKED_AT_ONCE;
  double* squared = small ? shared_distance[0][warp] : work_distance + row * 2 * capacity;
  int* column = small ? shared_column[0][warp] : work_column + row * 2 * capacity;
  double* sorted = small ? shared_distance[1][warp] : squared + capacity;
  int* sorted_column = small ? shared_column[1][warp] : column + capacity;
  const T* x = values + position * pitch;
  for (int i = lane; i < count; i += LANES) {
    const int other = static_cast<int>(static_cast<unsigned>(entries[row * row_pitch + i]));
    column[i] = other;
    squared[i] = squared_distance(x, values + other * pitch, static_cast<int>(pitch));
  }
  __syncwarp();
  for (int i = lane; i < count; i += LANES) {
    const double own = squared[i];
    const int own_column = column[i];
    int rank = 0;
    for (int j = 0; j < count; ++j) rank += before(squared[j], column[j], own, own_column);
    if (rank < k) sorted[rank] = distance_of(own), sorted_column[rank] = own_column;
  }
  __syncwarp();
  const double reached = core_of(sorted, sorted_column, k, multiplicity, min_samples);
  if (lane == 0) core[position] = reached;
  for (int i = lane; i < list_length; i += LANES) {
    nearest_distance[position * list_length + i] = sorted[i];
    nearest_column[position * list_length + i] = sorted_column[i];
  }
}

// The k nearest of EXHAUST_ROWS rows a block by exact squared distances to all columns [first, end). The entries are
// (squared distance, column); as many as k + 2 SCAN_THREADS, of which k stay whenever more than k + SCAN_THREADS are there.
template <class T>
__device__ __forceinline__ void exhaust_rows(const T* values, i64 pitch, const int* positions, i64 n_rows, i64 first, i64 end, int k,
                                             int capacity, double* squared_entries, int* column_entries, int* counts, double* farthest) {
  __shared__ double rows[EXHAUST_ROWS][EXHAUST_FEATURES];
  __shared__ double limit[EXHAUST_ROWS];
  __shared__ int count[EXHAUST_ROWS];
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const i64 first_row = static_cast<i64>(blockIdx.x) * EXHAUST_ROWS;
  if (threadIdx.x < EXHAUST_ROWS) {
    const i64 row = first_row + threadIdx.x;
    limit[threadIdx.x] = row < n_rows ? farthest[row] : -1.0;
    count[threadIdx.x] = row < n_rows ? counts[row] : 0;
  }
  for (i64 chunk = first; chunk < end; chunk += SCAN_THREADS) {
    const i64 column = chunk + threadIdx.x;
    const T* y = values + min(column, end - 1) * pitch;
    double sum[EXHAUST_ROWS] = {};
    for (int start = 0; start < pitch; start += EXHAUST_FEATURES) {
      __syncthreads();
      for (int i = threadIdx.x; i < EXHAUST_ROWS * EXHAUST_FEATURES; i += SCAN_THREADS) {
        const int r = i / EXHAUST_FEATURES, f = i % EXHAUST_FEATURES;
        const i64 row = first_row + r;
        rows[r][f] = row < n_rows && start + f < pitch ? widened(values[positions[row] * pitch + start + f]) : 0.0;
      }
      __syncthreads();
      for (int f = 0; f < min(EXHAUST_FEATURES, static_cast<int>(pitch) - start); ++f) {
        const double value = widened(y[start + f]);
#pragma unroll
        for (int r = 0; r < EXHAUST_ROWS; ++r) {
          const double t = __dsub_rn(rows[r][f], value);
          sum[r] = __dadd_rn(sum[r], __dmul_rn(t, t));
        }
      }
    }
    if (column < end) {
#pragma unroll
      for (int r = 0; r < EXHAUST_ROWS; ++r)
        if (sum[r] < limit[r]) {
          const i64 at = (first_row + r) * capacity + atomicAdd(&count[r], 1);
          squared_entries[at] = sum[r];
          column_entries[at] = static_cast<int>(column);
        }
    }
    __syncthreads();
    const bool at_end = chunk + SCAN_THREADS >= end;
    // One warp a row: keep the k first by (squared distance, column). A rank is counted, so it takes count^2 / 32 steps.
    if (count[warp] > k + SCAN_THREADS || (at_end && count[warp] > k)) {
      const i64 base = (first_row + warp) * capacity;
      const int n = count[warp];
      const double kth = weight_of(kth_smallest(
          [&](auto&& f) {
            for (int i = lane; i < n; i += LANES) f(weight_bits(squared_entries[base + i]));
          },
          k));
      int smaller = 0;
      for (int i = lane; i < n; i += LANES) smaller += squared_entries[base + i] < kth;
      int ties = k - warp_sum(smaller), kept = 0;  // of the equal ones the first to come stay: which ones, no result tells
      for (int i = 0; i < n; i += LANES) {
        const bool valid = i + lane < n;
        const double s = valid ? squared_entries[base + i + lane] : 0.0;
        const int c = valid ? column_entries[base + i + lane] : 0;
        const unsigned equal = __ballot_sync(ALL_LANES, valid && s == kth);
        const bool keep = valid && (s < kth || (s == kth && __popc(equal & ((1u << lane) - 1u)) < ties));
        const unsigned vote = __ballot_sync(ALL_LANES, keep);
        __syncwarp();
        if (keep) {
          const int at = kept + __popc(vote & ((1u << lane) - 1u));
          squared_entries[base + at] = s, column_entries[base + at] = c;
        }
        __syncwarp();
        kept += __popc(vote);
        ties = max(0, ties - __popc(equal));
      }
      if (lane == 0) count[warp] = kept, limit[warp] = kth;
    }
    __syncthreads();
  }
  if (threadIdx.x < EXHAUST_ROWS && first_row + threadIdx.x < n_rows) {
    counts[first_row + threadIdx.x] = count[threadIdx.x];
    farthest[first_row + threadIdx.x] = limit[threadIdx.x];
  }
}

// Rows given up by the filter, gathered: positions of those with counts < 0. Adds their number to n_found.
extern "C" __global__ void find_given_up_kernel(const int* positions, const int* counts, i64 n_rows, int* found, int* n_found) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n_rows && positions[i] >= 0 && counts[i] < 0) found[atomicAdd(n_found, 1)] = positions[i];
}

extern "C" __global__ void columns_to_entries_kernel(const int* columns, i64 n, u64* entries) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) entries[i] = static_cast<unsigned>(columns[i]);
}

#define RANK_KERNELS(SUFFIX, T)                                                                                                \
  extern "C" __global__ void __launch_bounds__(RANK_WARPS* LANES) rank_candidates_##SUFFIX##_kernel(                            \
      const T* values, i64 pitch, const int* positions, i64 n_rows, const u64* entries, int row_pitch, const int* counts, int capacity, int k, \
      int min_samples, const int* multiplicity, int list_length, double* nearest_distance, int* nearest_column, double* core,   \
      double* work_distance, int* work_column, int* failed) {                                                                  \
    rank_candidates(values, pitch, positions, n_rows, entries, row_pitch, counts, capacity, k, min_samples, multiplicity, list_length,    \
                    nearest_distance, nearest_column, core, work_distance, work_column, failed);                               \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(SCAN_THREADS) exhaust_rows_##SUFFIX##_kernel(                                    \
      const T* values, i64 pitch, const int* positions, i64 n_rows, i64 first, i64 end, int k, int capacity,                    \
      double* squared_entries, int* column_entries, int* counts, double* farthest) {                                           \
    exhaust_rows(values, pitch, positions, n_rows, first, end, k, capacity, squared_entries, column_entries, counts, farthest); \
  }

RANK_KERNELS(float32, float)
RANK_KERNELS(float64, double)
