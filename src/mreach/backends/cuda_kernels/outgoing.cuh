// Lightest edges out of components: active rows against the rows outside their component. With `smallest` instead: the
// smallest row near enough to a row that has copies (which edge joins the copies).
//
// Hits are evaluated at once, exactly, and lower the weight that their whole component has to beat: from then on all its
// rows reach less far. Edges as light as the best at that moment go to a queue; after the launch those that still are
// decide the pair. Where they do not fit into the queue the scan is repeated: no weight falls any more then, so each
// edge as light as the best decides at once. A tile pair may be compared twice (the nearest tiles come first, then
// all): that changes nothing.
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
  u64* queue_count;
  u64* pair;               // (n_components), or null: the lowest pair as light as the best, where that is final
  unsigned* smallest;      // by position, or null: search edges
};

template <class Tiles>
struct OutgoingSearch {
  struct Shared {
    int position[TILE];   // of the rows, -1 for padding
    int component[TILE];
    double warp_heaviest[WARPS];
    Forest forest;
  };

  Shared& shared;
  const Forest& forest;             // shared.forest
  const int* column_position;       // null: column i is position i
  const float* column_core;         // by column, rounded down
  const int* column_component;      // by column
  const int* column_tile_component; // the component of all rows of a tile, or -1
  const double* column_tile_core;   // the smallest core distance of a tile
  i64 n_columns;
  int n_tiles, own_component;       // own_component: of all rows of the row tile, or -1
  float box_factor, reach2;
  double heaviest;                  // largest weight that a row of the warp still looks below
  double heaviest_of_block;
  bool only_lightest;               // evaluate one pair of a warp and tile: bounds first, what they leave later
  unsigned n_exact;
  typename Tiles::RowMargin margin;       // of the row that this lane stands for
  typename Tiles::TileMargin tile_margin; // of the tile that is compared
  float threshold;                        // of the lane's row

  __device__ __forceinline__ static int first_row() { return threadIdx.x / LANES * WARP_ROWS; }
  __device__ __forceinline__ static int lane_row() { return first_row() + threadIdx.x % WARP_ROWS; }

  __device__ __forceinline__ int tile_at(i64 place) const { return place < n_tiles ? static_cast<int>(place) : -1; }
  __device__ __forceinline__ bool admits(int tile) const {
    return !(own_component >= 0 && column_tile_component[tile] == own_component) && !(column_tile_core[tile] > heaviest_of_block);
  }
  __device__ __forceinline__ float reach_squared() const { return reach2; }
  __device__ __forceinline__ void offer_to_block() { shared.warp_heaviest[threadIdx.x / LANES] = heaviest; }
  __device__ __forceinline__ void take_from_block() {
    heaviest_of_block = shared.warp_heaviest[0];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) heaviest_of_block = fmax(heaviest_of_block, shared.warp_heaviest[w]);
  }

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
    if (forest.core[position] > limit) return -1.f;
    // An edge counts up to limit >= d / alpha, rounded; d itself was rounded d + 3 times. 2^-38 covers both, and the
    // smallest number what the quotient loses where it is so small that it has few digits or none.
    const double length = length_of(forest.alpha * (limit + 0x1p-1074));
    return __fadd_ru(__double2float_ru(length * forest.scale * (1 + 0x1p-38)), forest.distance_slack);
  }

  __device__ __forceinline__ void prepare(const Tiles& tiles, const typename Tiles::TileMargin& tile) {
    tile_margin = tile;
    threshold = tiles.threshold_of(margin, tile, reach(lane_row()));
  }

  // The largest reach and weight of the warp's rows, for whole tiles.
  __device__ __forceinline__ void find_reach() {
    const float most = warp_max(reach(lane_row()));
    heaviest = shared.position[lane_row()] >= 0 ? weight_limit(shared, forest, lane_row()) : 0.0;
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) heaviest = fmax(heaviest, __shfl_xor_sync(ALL_LANES, heaviest, step));
    reach2 = most < 0.f ? -1.f : __fmul_ru(__fmul_ru(most, most), box_factor);
  }

  // Out of line, and everything it needs in shared memory: the loop of the filter keeps its registers.
  __device__ __noinline__ static void evaluate(const Shared& shared, int row, i64 b) {
    const Forest& forest = shared.forest;
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
    if (forest.pair) {
      lower_to(&forest.pair[own], pair_of(forest.row_of[a], forest.row_of[b]));
      return;
    }
    lower_to(&forest.best[own], weight_bits(w));
    const u64 at = atomicAdd(forest.queue_count, 1ull);
    if (at < forest.queue_capacity) {
      forest.queue[at * 3] = static_cast<u64>(own);
      forest.queue[at * 3 + 1] = weight_bits(w);
      forest.queue[at * 3 + 2] = pair_of(forest.row_of[a], forest.row_of[b]);
    }
  }

  __device__ __forceinline__ void evaluate_bit(int tile, int bit) {
    const i64 column = static_cast<i64>(tile) * TILE + Tiles::column_of_bit(bit);
    evaluate(shared, first_row() + Tiles::row_of_bit(bit), column_position ? column_position[column] : column);
    ++n_exact;
  }

  // A bit for each column of the tile that may count for the warp.
  __device__ __forceinline__ void find_columns(int tile, unsigned (&mask)[TILE / 32]) const {
#pragma unroll
    for (int part = 0; part < TILE / 32; ++part) {
      const i64 column = static_cast<i64>(tile) * TILE + part * 32 + threadIdx.x % LANES;
      const i64 at = min(column, n_columns - 1);
      mask[part] = __ballot_sync(ALL_LANES, column < n_columns && !(column_core[at] > heaviest) &&
                                                !(own_component >= 0 && column_component[at] == own_component));
    }
  }

  __device__ __forceinline__ void take_hits(Tiles& tiles, int tile) {
    u64 bits = tiles.hits([&](int row) { return __shfl_sync(ALL_LANES, threshold, row); });
    if (!__any_sync(ALL_LANES, bits != 0)) return;
    const int component_of_tile = column_tile_component[tile];
    if (component_of_tile >= 0 && !forest.smallest) {  // a row tile of several components meets whole tiles of each
#pragma unroll
      for (int r = 0; r < Tiles::LANE_ROWS; ++r)
        if (shared.component[first_row() + Tiles::lane_row() + r * Tiles::ROW_STEP] == component_of_tile) bits &= ~Tiles::bits_of_row(r);
      if (!__any_sync(ALL_LANES, bits != 0)) return;
    }
    unsigned mask[TILE / 32];
    find_columns(tile, mask);
    bits &= Tiles::bits_of_columns(mask);
    if (!__any_sync(ALL_LANES, bits != 0)) return;
    if (!forest.smallest) {
      // The lightest pair of the warp first: where its component had no near bound yet, many others were hits.
      const float unit = unit_of(forest.alpha, forest.scale);
      const auto row_floor = [&](int row) {
        const int position = shared.position[first_row() + row];
        const float floor = position < 0 ? 0.f : unit * static_cast<float>(forest.core[position]);
        return squared_length(floor);
      };
      const auto column_floor = [&](int column) {
        const float floor = unit * column_core[min(static_cast<i64>(tile) * TILE + column, n_columns - 1)];
        return squared_length(floor);
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
        evaluate_bit(tile, bit);
        bits &= ~(1ull << bit);
      }
      __syncwarp();
      find_reach();
      if (only_lightest) return;
      threshold = tiles.threshold_of(margin, tile_margin, reach(lane_row()));
      bits &= tiles.hits([&](int row) { return __shfl_sync(ALL_LANES, threshold, row); });
    }
    for (int left = 0; left < 64 && bits; ++left) {
      const int bit = __ffsll(static_cast<i64>(bits)) - 1;
      bits &= bits - 1;
      evaluate_bit(tile, bit);
    }
    __syncwarp();
  }
};

// List the tiles nearest by box among all: each thread offers the nearest of its own, the nearest of those are listed.
template <class Tiles, class List, class Search>
__device__ __forceinline__ int list_nearest_tiles(const Tiles& tiles, List& list, Search& search, const Boxes& columns) {
  __shared__ float offered[SCAN_THREADS];
  const float reach_squared = reach_of_block(list, search);
  float nearest = float_infinity();
  int tile_of_nearest = -1;
  for (i64 place = threadIdx.x; place < columns.n_tiles; place += SCAN_THREADS) {
    const int tile = search.tile_at(place);
    if (!search.admits(tile)) continue;
    const float distance = box_distance(list, columns, tile);
    if (tile_of_nearest < 0 || distance < nearest) nearest = distance, tile_of_nearest = tile;
  }
  const bool valid = tile_of_nearest >= 0 && !(nearest > reach_squared);
  offered[threadIdx.x] = valid ? nearest : float_infinity();
  __syncthreads();
  int rank = 0;
  for (int i = 0; i < SCAN_THREADS; ++i) rank += offered[i] < nearest || (offered[i] == nearest && i < threadIdx.x);
  if (valid && rank < NEAREST_TILES_FIRST) {
    list.tile[rank] = tile_of_nearest, list.distance[rank] = nearest, list.margin[rank] = tiles.tile_margin(tile_of_nearest);
  }
  return min(NEAREST_TILES_FIRST, __syncthreads_count(valid));
}

// One row tile against its nearest tiles (NEAREST_PHASE) or the column tiles at places [first_place, end_place).
template <class Tiles>
__device__ __forceinline__ void search_outgoing(Tiles& tiles, unsigned char* shared_tiles, const Boxes& row_boxes, const Boxes& column_boxes,
                                                const Forest& forest, const int* row_position, i64 n_rows, const int* column_position,
                                                const float* column_core, const int* column_component, i64 n_columns,
                                                const int* column_tile_component, const double* column_tile_core,
                                                float box_factor, int phase, i64 first_place, i64 end_place, u64* statistics) {
  using Search = OutgoingSearch<Tiles>;
  __shared__ typename Search::Shared shared;
  __shared__ typename Tiles::List list;
  if (threadIdx.x == 0) shared.forest = forest;
  if (threadIdx.x < TILE) {
    const i64 i = static_cast<i64>(tiles.row_tile) * TILE + threadIdx.x;
    const int position = i < n_rows ? row_position[i] : -1;
    shared.position[threadIdx.x] = position;
    shared.component[threadIdx.x] = position < 0 ? -1 : forest.component[position];
  }
  load_row_box(list, row_boxes, tiles.row_tile);
  __syncthreads();
  Search search{shared, shared.forest, column_position, column_core, column_component, column_tile_component, column_tile_core, n_columns,
                column_boxes.n_tiles, -1, box_factor, 0.f, 0.0, 0.0, phase == NEAREST_PHASE, 0u, tiles.row_margin(Search::lane_row()),
                typename Tiles::TileMargin{}, 0.f};
  const int last = static_cast<int>(min(static_cast<i64>(TILE), n_rows - static_cast<i64>(tiles.row_tile) * TILE)) - 1;
  if (!forest.smallest && shared.component[0] == shared.component[last]) search.own_component = shared.component[0];
  search.find_reach();
  tiles.open(shared_tiles);
  typename Tiles::Ring ring(tiles);
  u64 compared = 0;
  if (phase == NEAREST_PHASE) {
    const int n = list_nearest_tiles(tiles, list, search, column_boxes);
    compared += compare_listed(tiles, ring, search, list, n);
  }
  for (i64 place = first_place; place < end_place; place += SCAN_THREADS) {
    search.find_reach();
    const int n = list_tiles(tiles, list, search, column_boxes, place, end_place);
    compared += compare_listed(tiles, ring, search, list, n);
  }
  if (threadIdx.x % LANES == 0) atomicAdd(&statistics[0], compared);  // by every warp: eighths of tile pairs
  if (search.n_exact) atomicAdd(&statistics[1], static_cast<u64>(search.n_exact));
}
