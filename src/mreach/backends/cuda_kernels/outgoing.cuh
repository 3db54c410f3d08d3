// Lightest edges out of components: active rows against the rows outside their component. With `smallest` instead: the
// smallest row near enough to a row that has copies (which edge joins the copies).
//
// Hits are evaluated at once, exactly, and lower the weight that their whole component has to beat: from then on all its
// rows reach less far. Edges as light as the best at that moment go to a queue; after the launch those that still are
// decide the pair. A tile pair may be compared twice (the nearest tiles come first, then all): that changes nothing.
#pragma once
#include "scan.cuh"

constexpr int NEAREST_TILES_FIRST = 4;
constexpr int NEAREST_PHASE = 0;  // a launch of its own for the nearest tiles of all row tiles: then all bounds are near
constexpr int ALL_PHASE = 1;      // what they will be, and few pairs are evaluated in vain

struct Forest {  // what the search reads of the rows and their components, by position
  const void* values;
  i64 pitch;
  int is_double;
  const int* row_of;       // the user's row
  const double* core;
  const int* component;
  double alpha;
  double scale;            // of distances to the filter's
  float distance_slack;
  u64* best;               // (n_components), bits of the lightest weight so far
  u64* queue;              // (queue_capacity, 3): component, weight, pair
  unsigned queue_capacity;
  unsigned* queue_count;
  unsigned* smallest;      // by position, or null: search edges
};

template <class Tiles>
struct OutgoingSearch {
  struct Shared {
    float threshold[2][TILE];
    unsigned columns[2][TILE / 32];  // a bit for each column that may count
    float warp_reach[TILE / LANES];
    double warp_weight[TILE / LANES];
    int position[TILE];   // of the rows, -1 for padding
    int component[TILE];
  };

  Shared& shared;
  const Forest& forest;
  const int* column_position;       // null: column i is position i
  const float* column_core;         // by column, rounded down
  const int* column_component;      // by column
  const int* column_tile_component; // the component of all rows of a tile, or -1
  const double* column_tile_core;   // the smallest core distance of a tile
  i64 n_columns;
  int n_tiles, own_component;       // own_component: of all rows of the row tile, or -1
  float box_factor, reach2;
  double heaviest;                  // largest weight that a row of the tile still looks below
  bool only_lightest;               // evaluate one pair of a warp and tile: bounds first, what they leave later
  unsigned n_exact;

  __device__ __forceinline__ int tile_at(i64 place) const { return place < n_tiles ? static_cast<int>(place) : -1; }
  __device__ __forceinline__ bool admits(int tile) const {
    return !(own_component >= 0 && column_tile_component[tile] == own_component) && !(column_tile_core[tile] > heaviest);
  }
  __device__ __forceinline__ float reach_squared() const { return reach2; }
  __device__ __forceinline__ bool is_full() const { return false; }
  __device__ __forceinline__ void make_room(const Tiles&, int, int) {}

  // The weight that an edge of the row must not exceed to count.
  __device__ __forceinline__ static double weight_limit(const Shared& shared, const Forest& forest, int row) {
    const int position = shared.position[row];
    if (forest.smallest) return forest.core[position];
    return weight_of(*static_cast<volatile u64*>(&forest.best[shared.component[row]]));
  }
  // How far a row reaches, in the filter's units; -1 for padding.
  __device__ __forceinline__ float reach(int row) const {
    const int position = shared.position[row];
    if (position < 0) return -1.f;
    const double limit = weight_limit(shared, forest, row);
    // An edge counts up to limit >= d / alpha, rounded; d itself was rounded d + 3 times. 2^-38 covers both.
    return forest.core[position] > limit ? -1.f
                                         : __fadd_ru(__double2float_ru(forest.alpha * limit * forest.scale * (1 + 0x1p-38)), forest.distance_slack);
  }

  __device__ __forceinline__ void prepare(const Tiles& tiles, int slot, int tile) {
    if (threadIdx.x < TILE) {
      shared.threshold[slot][threadIdx.x] = tiles.threshold_of(threadIdx.x, tile, reach(threadIdx.x));
      const i64 column = static_cast<i64>(tile) * TILE + threadIdx.x;
      const bool counts = column < n_columns && !(column_core[min(column, n_columns - 1)] > heaviest) &&
                          !(own_component >= 0 && column_component[min(column, n_columns - 1)] == own_component);
      const unsigned vote = __ballot_sync(ALL_LANES, counts);
      if (threadIdx.x % LANES == 0) shared.columns[slot][threadIdx.x / LANES] = vote;
    }
  }

  // The largest reach and weight of the rows, for whole tiles. Barriers inside.
  __device__ __forceinline__ void find_reach() {
    __syncthreads();
    if (threadIdx.x < TILE) {
      const bool valid = shared.position[threadIdx.x] >= 0;
      float most = warp_max(reach(threadIdx.x));
      double weight = valid ? weight_limit(shared, forest, threadIdx.x) : 0.0;
#pragma unroll
      for (int step = LANES / 2; step > 0; step /= 2) weight = fmax(weight, __shfl_xor_sync(ALL_LANES, weight, step));
      if (threadIdx.x % LANES == 0) shared.warp_reach[threadIdx.x / LANES] = most, shared.warp_weight[threadIdx.x / LANES] = weight;
    }
    __syncthreads();
    float most = shared.warp_reach[0];
    heaviest = shared.warp_weight[0];
#pragma unroll
    for (int w = 1; w < TILE / LANES; ++w) most = fmaxf(most, shared.warp_reach[w]), heaviest = fmax(heaviest, shared.warp_weight[w]);
    reach2 = most < 0.f ? -1.f : __fmul_ru(__fmul_ru(most, most), box_factor);
  }

  // Out of line, and everything it needs in shared memory: the loop of the filter keeps its registers.
  __device__ __noinline__ static void evaluate(const Shared& shared, const Forest& forest, int row, i64 b) {
    const i64 a = shared.position[row];
    if (a < 0 || a == b) return;
    const int own = shared.component[row];
    if (!forest.smallest && forest.component[b] == own) return;
    const double limit = weight_limit(shared, forest, row);
    if (forest.core[b] > limit || forest.core[a] > limit) return;
    if (forest.smallest && static_cast<unsigned>(forest.row_of[b]) >= *static_cast<volatile unsigned*>(&forest.smallest[a])) return;
    const int pitch = static_cast<int>(forest.pitch);
    double squared;
    if (forest.is_double) {
      const double* values = static_cast<const double*>(forest.values);
      squared = squared_distance(values + a * pitch, values + b * pitch, pitch);
    } else {
      const float* values = static_cast<const float*>(forest.values);
      squared = squared_distance(values + a * pitch, values + b * pitch, pitch);
    }
    const double w = mutual_reachability(forest.core[a], forest.core[b], squared, forest.alpha);
    if (w > limit) return;
    if (forest.smallest) {
      atomicMin(&forest.smallest[a], static_cast<unsigned>(forest.row_of[b]));
      return;
    }
    lower_to(&forest.best[own], weight_bits(w));
    const unsigned at = atomicAdd(forest.queue_count, 1u);
    if (at < forest.queue_capacity) {
      forest.queue[at * 3ull] = static_cast<u64>(own);
      forest.queue[at * 3ull + 1] = weight_bits(w);
      forest.queue[at * 3ull + 2] = pair_of(forest.row_of[a], forest.row_of[b]);
    }
  }

  __device__ __forceinline__ void evaluate_bit(const Tiles& tiles, int tile, int bit) {
    const i64 column = static_cast<i64>(tile) * TILE + tiles.column_of_bit(bit);
    evaluate(shared, forest, tiles.row_of_bit(bit), column_position ? column_position[column] : column);
    ++n_exact;
  }

  __device__ __forceinline__ void take_hits(Tiles& tiles, int slot, int tile) {
    const u64 mask = tiles.bits_of_columns(shared.columns[slot]);
    u64 bits = tiles.hits([&](int row) { return shared.threshold[slot][row]; }) & mask;
    if (!__any_sync(ALL_LANES, bits != 0)) return;
    if (!forest.smallest) {
      // The lightest pair of the warp first: where its component had no near bound yet, many others were hits.
      const float unit = static_cast<float>(forest.alpha * forest.scale);
      const auto row_floor = [&](int row) {
        const float floor = shared.position[row] < 0 ? 0.f : unit * static_cast<float>(forest.core[shared.position[row]]);
        return floor * floor;
      };
      const auto column_floor = [&](int column) {
        const float floor = unit * column_core[min(static_cast<i64>(tile) * TILE + column, n_columns - 1)];
        return floor * floor;
      };
      int bit, first = threadIdx.x % LANES;
      float lightest = tiles.lightest_of(bits, row_floor, column_floor, bit);
#pragma unroll
      for (int step = LANES / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, lightest, step);
        const int other_first = __shfl_xor_sync(ALL_LANES, first, step);
        if (other < lightest || (other == lightest && other_first < first)) lightest = other, first = other_first;
      }
      if (static_cast<int>(threadIdx.x) % LANES == first && bits) {
        evaluate_bit(tiles, tile, bit);
        bits &= ~(1ull << bit);
      }
      if (only_lightest) return;
      __syncwarp();
      if (bits) bits &= tiles.hits([&](int row) { return tiles.threshold_of(row, tile, reach(row)); });
    }
    for (int left = 0; left < 64 && bits; ++left) {
      const int bit = __ffsll(static_cast<i64>(bits)) - 1;
      bits &= bits - 1;
      evaluate_bit(tiles, tile, bit);
    }
  }
};

// List the tiles nearest by box among all: each thread offers the nearest of its own, the nearest of those are listed.
template <class Search>
__device__ __forceinline__ int list_nearest_tiles(TileList& list, Search& search, const Boxes& columns) {
  __shared__ float offered[SCAN_THREADS];
  float nearest = float_infinity();
  int tile_of_nearest = -1;
  for (i64 place = threadIdx.x; place < columns.n_tiles; place += SCAN_THREADS) {
    const int tile = search.tile_at(place);
    if (!search.admits(tile)) continue;
    const float distance = box_distance(list, columns, tile);
    if (tile_of_nearest < 0 || distance < nearest) nearest = distance, tile_of_nearest = tile;
  }
  const bool valid = tile_of_nearest >= 0 && !(nearest > search.reach_squared());
  offered[threadIdx.x] = valid ? nearest : float_infinity();
  __syncthreads();
  int rank = 0;
  for (int i = 0; i < SCAN_THREADS; ++i) rank += offered[i] < nearest || (offered[i] == nearest && i < threadIdx.x);
  if (valid && rank < NEAREST_TILES_FIRST) list.tile[rank] = tile_of_nearest, list.distance[rank] = nearest;
  return min(NEAREST_TILES_FIRST, __syncthreads_count(valid));
}

// One row tile against its nearest tiles (NEAREST_PHASE) or the column tiles at places [first_place, end_place).
template <class Tiles>
__device__ __forceinline__ void search_outgoing(Tiles& tiles, unsigned char* shared_tiles, const Boxes& row_boxes, const Boxes& column_boxes,
                                                const Forest& given, const int* row_position, i64 n_rows, const int* column_position,
                                                const float* column_core, const int* column_component, i64 n_columns, const int* column_tile_component, const double* column_tile_core,
                                                float box_factor, int phase, i64 first_place, i64 end_place, u64* statistics) {
  __shared__ typename OutgoingSearch<Tiles>::Shared shared;
  __shared__ TileList list;
  __shared__ Forest forest;
  if (threadIdx.x == 0) forest = given;
  __syncthreads();
  OutgoingSearch<Tiles> search{shared, forest, column_position, column_core, column_component, column_tile_component, column_tile_core, n_columns, column_boxes.n_tiles, -1,
                               box_factor, 0.f, 0.0, phase == NEAREST_PHASE, 0u};
  if (threadIdx.x < TILE) {
    const i64 i = static_cast<i64>(tiles.row_tile) * TILE + threadIdx.x;
    const int position = i < n_rows ? row_position[i] : -1;
    shared.position[threadIdx.x] = position;
    shared.component[threadIdx.x] = position < 0 ? -1 : forest.component[position];
  }
  load_row_box(list, row_boxes, tiles.row_tile);
  search.find_reach();
  const int last = static_cast<int>(min(static_cast<i64>(TILE), n_rows - static_cast<i64>(tiles.row_tile) * TILE)) - 1;
  if (!forest.smallest && shared.component[0] == shared.component[last]) search.own_component = shared.component[0];
  tiles.open(shared_tiles);
  u64 compared = 0;
  if (phase == NEAREST_PHASE) {
    const int n = list_nearest_tiles(list, search, column_boxes);
    compared += compare_listed(tiles, search, list, n);
  }
  for (i64 place = first_place; place < end_place; place += SCAN_THREADS) {
    search.find_reach();
    const int n = list_tiles(list, search, column_boxes, place, end_place);
    compared += compare_listed(tiles, search, list, n);
  }
  copy_async_wait<0>();
  if (threadIdx.x == 0) atomicAdd(&statistics[0], compared);
  if (search.n_exact) atomicAdd(&statistics[1], static_cast<u64>(search.n_exact));
}
