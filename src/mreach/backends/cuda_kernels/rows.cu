// What the door asks about the user's rows: the range of every column, and which rows are not finite.
//
// Rows lie one after another (row-major), n_features values each, float or double.
#include "primitives.cuh"

#define ROWS_THREADS 256  // of a block; rows.py has the same number

// Unsigned numbers in the order of the values. All ones, which no value gives, stands for NaN.
static __device__ __forceinline__ unsigned long long key_of(double value) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(value);
    return (bits >> 63) ? ~bits : (bits | 0x8000000000000000ULL);
}

// A block looks at `columns` columns of `rows_per_block` rows. Neighbouring threads read neighbouring values:
// the columns of one row, then those of the next. keys[0, n_features) gets the complement of the key of each
// column's smallest value, keys[n_features, 2 n_features) the key of its largest; both start at 0.
template <typename Value>
static __device__ __forceinline__ void column_ranges(const Value* __restrict__ rows, long long n_rows,
                                                     int n_features, int columns, int n_column_tiles,
                                                     long long rows_per_block, unsigned long long* keys) {
    __shared__ double lows[ROWS_THREADS];
    __shared__ double highs[ROWS_THREADS];
    __shared__ int nans[ROWS_THREADS];

    const int thread = (int)threadIdx.x;
    const int rows_at_once = ROWS_THREADS / columns;
    const int step = thread / columns;
    const int column = (int)(blockIdx.x % (unsigned)n_column_tiles) * columns + thread % columns;
    const bool looks = step < rows_at_once && column < n_features;
    const long long begin = (long long)(blockIdx.x / (unsigned)n_column_tiles) * rows_per_block;
    const long long end = begin + rows_per_block < n_rows ? begin + rows_per_block : n_rows;

    const double infinity = __longlong_as_double(0x7ff0000000000000LL);
    double low = infinity, high = -infinity;
    int has_nan = 0;
    if (looks) {
#pragma unroll 4
        for (long long row = begin + step; row < end; row += rows_at_once) {
            const double value = widened(rows[row * n_features + column]);
            low = value < low ? value : low;
            high = value > high ? value : high;
            has_nan |= value != value;
        }
    }
    lows[thread] = low;
    highs[thread] = high;
    nans[thread] = has_nan;
    __syncthreads();

    for (int width = ROWS_THREADS / 2; width > 0; width >>= 1) {
        if (step < width && step + width < rows_at_once) {
            const int other = thread + width * columns;
            lows[thread] = lows[other] < lows[thread] ? lows[other] : lows[thread];
            highs[thread] = highs[other] > highs[thread] ? highs[other] : highs[thread];
            nans[thread] |= nans[other];
        }
        __syncthreads();
    }

    if (looks && step == 0 && begin < end) {
        const unsigned long long nan = ~0ULL;
        atomicMax(&keys[column], nans[thread] ? nan : ~key_of(lows[thread]));
        atomicMax(&keys[n_features + column], nans[thread] ? nan : key_of(highs[thread]));
    }
}

// A row's mark becomes 1 where it holds an infinity, 2 where it holds a NaN (perhaps both); it starts at 0.
template <typename Value>
static __device__ __forceinline__ void row_marks(const Value* __restrict__ rows, long long n_values,
                                                 int n_features, unsigned* marks) {
    const long long stride = (long long)gridDim.x * ROWS_THREADS;
#pragma unroll 4
    for (long long i = (long long)blockIdx.x * ROWS_THREADS + threadIdx.x; i < n_values; i += stride) {
        const Value value = rows[i];
        const Value difference = value - value;  // NaN unless the value is finite
        if (difference != difference) {
            atomicMax(&marks[i / n_features], value != value ? 2u : 1u);
        }
    }
}

extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
column_ranges_float32_kernel(const float* rows, long long n_rows, int n_features, int columns,
                             int n_column_tiles, long long rows_per_block, unsigned long long* keys) {
    column_ranges<float>(rows, n_rows, n_features, columns, n_column_tiles, rows_per_block, keys);
}

extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
column_ranges_float64_kernel(const double* rows, long long n_rows, int n_features, int columns,
                             int n_column_tiles, long long rows_per_block, unsigned long long* keys) {
    column_ranges<double>(rows, n_rows, n_features, columns, n_column_tiles, rows_per_block, keys);
}

extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
row_marks_float32_kernel(const float* rows, long long n_values, int n_features, unsigned* marks) {
    row_marks<float>(rows, n_values, n_features, marks);
}

extern "C" __global__ void __launch_bounds__(ROWS_THREADS)
row_marks_float64_kernel(const double* rows, long long n_values, int n_features, unsigned* marks) {
    row_marks<double>(rows, n_values, n_features, marks);
}
