// The compiled core as the Python module mreach._core: arrays in, arrays out, nothing decided here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "condensed_tree.h"
#include "edge_sort.h"
#include "hierarchy.h"
#include "kernels.h"
#include "linkage.h"
#include "nearest_rows.h"
#include "nearest_search.h"
#include "points.h"
#include "records.h"
#include "selection.h"
#include "spanning_forest.h"
#include "spanning_tree.h"
#include "workers.h"

namespace nb = nanobind;

namespace {

using namespace mreach;

constexpr std::size_t MAX_ROWS = 0x7ffffff0u;

template <class T>
using Input = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<nb::numpy, T>;
template <class T>
using InOut = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

// Hands a vector or a buffer to NumPy without a copy.
template <class Values>
auto to_numpy(Values&& values) {
  auto* kept = new Values(std::forward<Values>(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Values*>(p); });
  return Output<std::remove_pointer_t<decltype(kept->data())>>(kept->data(), {kept->size()}, owner);
}

// Arrays of records come as int64, the fields one after another; those to be written are never copied on the way.
const EdgeRecord* edge_records(const Input<std::int64_t>& edges) { return reinterpret_cast<const EdgeRecord*>(edges.data()); }
std::int32_t n_points(const Input<std::int64_t>& edges) { return static_cast<std::int32_t>(edges.shape(0) / 3) + 1; }

// Runs `work` without the GIL. A poll that asked for the end has set the Python error to raise.
template <class Work>
auto without_gil(Work&& work) {
  try {
    nb::gil_scoped_release release;
    return work();
  } catch (const Cancelled&) {
    throw nb::python_error();
  }
}

nb::dict to_dict(const ScanCounts& counts) {
  nb::dict out;
  out["panels"] = counts.panels;
  out["blocks"] = counts.blocks;
  out["hits"] = counts.hits;
  out["exact"] = counts.exact;
  out["tiles"] = std::vector<std::int64_t>(counts.tiles, counts.tiles + MAX_STAGES);
  return out;
}

// What a fit holds between its stages, whatever the type of its values.
class Session {
 public:
  virtual ~Session() = default;
  virtual std::vector<double> core_distances(std::int64_t min_samples) = 0;
  virtual nb::tuple listed_neighbors() const = 0;
  virtual void start_tree(double alpha) = 0;
  virtual void find_listed_edges() = 0;
  virtual std::int64_t scan_active_rows() = 0;
  virtual std::int64_t contract() = 0;
  virtual void take_edges(EdgeRecord* out) = 0;
  virtual nb::dict statistics() const = 0;
};

template <class Value>
class TypedSession final : public Session {
 public:
  TypedSession(const Value* X, std::int64_t n_rows, int n_features, const Measure& measure, int n_threads,
               std::function<bool(double)> poll, const Kernels& kernels, const Tuning& tuning)
      : n_rows_(n_rows), kernels_(kernels), tuning_(tuning), workers_(n_threads, std::move(poll)),
        points_(X, n_rows, n_features, measure, workers_) {}

  std::vector<double> core_distances(std::int64_t min_samples) override {
    tree_.reset();
    NearestSearch<Value> search(points_, min_samples, tuning_, kernels_, workers_, lists_);
    search.run();
    neighbor_counts_ = search.counts();
    std::vector<double> of_rows(n_rows_);
    for (std::int64_t p = 0; p < points_.n; ++p) of_rows[points_.row_of[p]] = lists_.core_distances[p];
    const Collapsed& collapsed = points_.collapsed;
    for (std::size_t c = 0; c < collapsed.copy.size(); ++c)
      of_rows[collapsed.copy[c]] = of_rows[collapsed.representatives[collapsed.copy_of[c]]];
    return of_rows;
  }
  // By the user's rows: a list's start (and one end more), its rows, their distances, and how often each row occurs.
  // A copy lists the row that it equals, which lists the others.
  nb::tuple listed_neighbors() const override {
    if (lists_.core_distances.size() == 0) throw std::logic_error("core_distances comes before listed_neighbors");
    std::vector<std::int64_t> start(n_rows_ + 1, 0);
    std::vector<std::int32_t> multiplicity(n_rows_), rows;
    std::vector<double> distances;
    const Collapsed& collapsed = points_.collapsed;
    for (std::int64_t p = 0; p < points_.n; ++p) {
      start[points_.row_of[p] + 1] = lists_.counts[p];
      multiplicity[points_.row_of[p]] = points_.multiplicity[p];
    }
    for (std::size_t c = 0; c < collapsed.copy.size(); ++c) {
      start[collapsed.copy[c] + 1] = 1;
      multiplicity[collapsed.copy[c]] = collapsed.multiplicity[collapsed.copy_of[c]];
    }
    for (std::int64_t i = 0; i < n_rows_; ++i) start[i + 1] += start[i];
    rows.resize(start[n_rows_]);
    distances.resize(start[n_rows_]);
    for (std::int64_t p = 0; p < points_.n; ++p) {
      const std::int64_t at = start[points_.row_of[p]];
      for (std::int32_t k = 0; k < lists_.counts[p]; ++k) {
        rows[at + k] = points_.row_of[lists_.of(p)[k].position];
        distances[at + k] = lists_.of(p)[k].distance;
      }
    }
    for (std::size_t c = 0; c < collapsed.copy.size(); ++c) {
      rows[start[collapsed.copy[c]]] = collapsed.representatives[collapsed.copy_of[c]];
      distances[start[collapsed.copy[c]]] = 0;
    }
    return nb::make_tuple(to_numpy(std::move(start)), to_numpy(std::move(rows)), to_numpy(std::move(distances)),
                          to_numpy(std::move(multiplicity)));
  }
  void start_tree(double alpha) override {
    if (lists_.core_distances.size() == 0) throw std::logic_error("core_distances comes before start_tree");
    tree_ = std::make_unique<SpanningTree<Value>>(points_, lists_, alpha, tuning_, kernels_, workers_);
  }
  void find_listed_edges() override { tree().find_listed_edges(); }
  std::int64_t scan_active_rows() override { return tree().scan_active_rows(); }
  std::int64_t contract() override { return tree().contract(); }
  void take_edges(EdgeRecord* out) override {
    std::vector<Edge> edges = tree().take_edges();
    if (static_cast<std::int64_t>(edges.size()) != n_rows_ - 1) throw std::logic_error("the rounds come before take_edges");
    sort_edges(edges);
    for (const Edge& e : edges) *out++ = {e.lower, e.higher, e.weight};
  }
  nb::dict statistics() const override {
    nb::dict out;
    out["distinct_rows"] = points_.n;
    out["panels"] = points_.n_panels;
    out["list_length"] = lists_.length;
    out["neighbors"] = to_dict(neighbor_counts_);
    if (tree_) out["spanning_tree"] = to_dict(tree_->counts);
    return out;
  }

 private:
  SpanningTree<Value>& tree() {
    if (!tree_) throw std::logic_error("start_tree comes before the rounds");
    return *tree_;
  }

  std::int64_t n_rows_;
  const Kernels& kernels_;
  const Tuning tuning_;
  Workers workers_;
  Points<Value> points_;
  NeighborLists lists_;
  ScanCounts neighbor_counts_;
  std::unique_ptr<SpanningTree<Value>> tree_;
};

// A context manager: inside, this thread rounds to nearest and keeps subnormals.
class FloatEnvironment {
 public:
  void enter() { inside_ = std::make_unique<DefaultFloatEnvironment>(); }
  void exit() { inside_.reset(); }

 private:
  std::unique_ptr<DefaultFloatEnvironment> inside_;
};

std::vector<std::string> kernel_names() {
  const char* names[8];
  const int count = available_kernels(names, 8);
  return std::vector<std::string>(names, names + count);
}

const Kernels& named_kernels(const std::string& name) {
  const Kernels* set = select_kernels(name.c_str());
  if (!set) throw std::invalid_argument("kernels '" + name + "' cannot run on this processor");
  return *set;
}

// The callback is Python's; a failure in it (a signal's exception too) ends the work and is raised by the call. It is
// shared by pointer: copies are made, and the last one dropped, where the GIL is not held.
std::function<bool(double)> poll_of(nb::object poll) {
  const std::shared_ptr<nb::object> callback(new nb::object(std::move(poll)), [](nb::object* kept) {
    nb::gil_scoped_acquire hold;
    delete kept;
  });
  return [callback](double share) {
    nb::gil_scoped_acquire hold;
    if (PyErr_CheckSignals() != 0) return false;
    if (callback->is_none()) return true;
    PyObject* result = PyObject_CallFunction(callback->ptr(), "d", share);
    if (!result) return false;
    Py_DECREF(result);
    return true;
  };
}

template <class Value>
Session* open_session(const Input<Value>& X, int n_threads, nb::object poll, bool halved_square, const std::string& kernels,
                      bool prune, int min_list_length, int max_list_length, double whole_share, int group_blocks,
                      int symmetric, int near_panels) {
  if (X.ndim() != 2) throw std::invalid_argument("X must have two dimensions");
  if (X.shape(0) > MAX_ROWS) throw std::invalid_argument("more than 2**31 - 16 rows");
  const Kernels& set = named_kernels(kernels);
  Tuning tuning;
  tuning.prune = prune;
  if (min_list_length > 0) tuning.min_list_length = min_list_length;
  if (max_list_length > 0) tuning.max_list_length = max_list_length;
  if (whole_share >= 0) tuning.whole_share = whole_share;
  tuning.group_blocks = group_blocks;
  tuning.symmetric = symmetric;
  if (near_panels >= 0) tuning.near_panels = near_panels;
  const std::function<bool(double)> tick = poll_of(std::move(poll));
  const Value* data = X.data();
  const std::int64_t n = static_cast<std::int64_t>(X.shape(0));
  const int d = static_cast<int>(X.shape(1));
  return without_gil([&]() -> Session* {
    return new TypedSession<Value>(data, n, d, Measure{halved_square}, n_threads, tick, set, tuning);
  });
}

// rows, weights and, unless they are known, core are written, one for each row of X_new.
template <class Value>
nb::dict nearest_rows(const Input<Value>& X, const Input<Value>& X_new, const Input<double>& fitted_core,
                      const nb::object& candidates, double alpha, std::int64_t min_samples, bool core_known,
                      const InOut<double>& core, const InOut<std::int64_t>& rows, const InOut<double>& weights,
                      int n_threads, nb::object poll, bool halved_square, const std::string& kernels, bool prune,
                      int min_list_length, double whole_share, int group_blocks, std::int64_t few_rows) {
  if (X.ndim() != 2 || X_new.ndim() != 2) throw std::invalid_argument("X and X_new must have two dimensions");
  if (X.shape(0) + X_new.shape(0) > MAX_ROWS) throw std::invalid_argument("more than 2**31 - 16 rows");
  const Kernels& set = named_kernels(kernels);
  Tuning tuning;
  tuning.prune = prune;
  tuning.min_list_length = min_list_length > 0 ? min_list_length : NEW_ROW_LIST_LENGTH;
  if (whole_share >= 0) tuning.whole_share = whole_share;
  tuning.group_blocks = group_blocks;
  const std::function<bool(double)> tick = poll_of(std::move(poll));
  const std::uint8_t* allowed = candidates.is_none() ? nullptr : nb::cast<Input<std::uint8_t>>(candidates).data();
  const NewRows<Value> task{X.data(), X_new.data(), static_cast<std::int64_t>(X.shape(0)),
                            static_cast<std::int64_t>(X_new.shape(0)), static_cast<int>(X.shape(1)),
                            Measure{halved_square}, alpha, min_samples, fitted_core.data(), allowed, core_known,
                            core.data(), rows.data(), weights.data()};
  const ScanCounts counts = without_gil([&] {
    Workers workers(n_threads, tick);
    return find_nearest_rows(task, tuning, few_rows, set, workers);
  });
  return to_dict(counts);
}

Output<std::int64_t> forest_of(std::int64_t n, const Input<std::int64_t>& source, const Input<std::int64_t>& target,
                               const Input<double>& weight) {
  if (n > static_cast<std::int64_t>(MAX_ROWS)) throw std::invalid_argument("more than 2**31 - 16 rows");
  auto* kept = new std::vector<EdgeRecord>(without_gil([&] {
    return spanning_forest(n, static_cast<std::int64_t>(weight.size()), source.data(), target.data(), weight.data());
  }));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<EdgeRecord>*>(p); });
  return Output<std::int64_t>(reinterpret_cast<std::int64_t*>(kept->data()), {3 * kept->size()}, owner);
}

void linkage(const Input<std::int64_t>& edges, const InOut<double>& out) {
  without_gil([&] { write_linkage(edge_records(edges), n_points(edges), reinterpret_cast<MergeRecord*>(out.data())); });
}

class CondensedHierarchy {
 public:
  CondensedHierarchy(const Input<std::int64_t>& edges, std::int64_t min_cluster_size) {
    const std::int32_t n = n_points(edges);
    without_gil([&] {
      tree_ = n > 1 ? condense(HierarchyBuilder(edge_records(edges), n, min_cluster_size).build()) : tree_of_one_point();
    });
  }
  std::int64_t n_records() const { return n_condensed_records(tree_); }
  void write_records(const InOut<std::int64_t>& out) const {
    without_gil([&] { write_condensed_records(tree_, reinterpret_cast<CondensedRecord*>(out.data())); });
  }
  Output<double> stabilities() const { return to_numpy(std::vector<double>(tree_.stability)); }
  Output<double> birth_heights() const { return to_numpy(std::vector<double>(tree_.birth_height)); }
  nb::tuple select(bool leaf, double epsilon, double epsilon_max, std::int64_t max_cluster_size, bool allow_single_cluster) const {
    Selected selected;
    without_gil([&] { selected = select_clusters(tree_, {leaf, epsilon, epsilon_max, max_cluster_size, allow_single_cluster}); });
    return nb::make_tuple(to_numpy(std::move(selected.clusters)), to_numpy(std::move(selected.label)),
                          to_numpy(std::move(selected.probability)), to_numpy(std::move(selected.persistence)));
  }

 private:
  CondensedTree tree_;
};

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Compiled core of mreach: filter, exact neighbours, Boruvka rounds and the canonical hierarchy.";
  m.def("kernel_names", &kernel_names, "Names of the kernel sets that can run on this processor, best first.");
  nb::class_<FloatEnvironment>(m, "FloatEnvironment", "Round to nearest and keep subnormals in the calling thread.")
      .def(nb::init<>())
      .def("__enter__", &FloatEnvironment::enter)
      .def("__exit__", [](FloatEnvironment& e, nb::args) { e.exit(); });
  nb::class_<Session>(m, "Session")
      .def("core_distances", [](Session& s, std::int64_t min_samples) { return to_numpy(without_gil([&] { return s.core_distances(min_samples); })); })
      .def("listed_neighbors", &Session::listed_neighbors)
      .def("start_tree", [](Session& s, double alpha) { without_gil([&] { s.start_tree(alpha); }); })
      .def("find_listed_edges", [](Session& s) { without_gil([&] { s.find_listed_edges(); }); })
      .def("scan_active_rows", [](Session& s) { return without_gil([&] { return s.scan_active_rows(); }); })
      .def("contract", [](Session& s) { return without_gil([&] { return s.contract(); }); })
      .def("take_edges", [](Session& s, const InOut<std::int64_t>& out) {
        without_gil([&] { s.take_edges(reinterpret_cast<EdgeRecord*>(out.data())); });
      }, nb::arg("out").noconvert())
      .def("statistics", &Session::statistics);
  auto bind_open = [&](auto zero) {
    using Value = decltype(zero);
    m.def("open_session", &open_session<Value>, nb::rv_policy::take_ownership, nb::arg("X").noconvert(), nb::arg("n_threads"), nb::arg("poll") = nb::none(),
          nb::arg("halved_square") = false, nb::arg("kernels") = "", nb::arg("prune") = true, nb::arg("min_list_length") = 0,
          nb::arg("max_list_length") = 0, nb::arg("whole_share") = -1.0, nb::arg("group_blocks") = 0, nb::arg("symmetric") = -1, nb::arg("near_panels") = -1);
    m.def("nearest_rows", &nearest_rows<Value>, nb::arg("X").noconvert(), nb::arg("X_new").noconvert(),
          nb::arg("fitted_core").noconvert(), nb::arg("candidates").none(), nb::arg("alpha"), nb::arg("min_samples"),
          nb::arg("core_known"), nb::arg("core").noconvert(), nb::arg("rows").noconvert(), nb::arg("weights").noconvert(),
          nb::arg("n_threads"), nb::arg("poll") = nb::none(), nb::arg("halved_square") = false, nb::arg("kernels") = "",
          nb::arg("prune") = true, nb::arg("min_list_length") = 0, nb::arg("whole_share") = -1.0,
          nb::arg("group_blocks") = 0, nb::arg("few_rows") = -1);
  };
  bind_open(float{});
  bind_open(double{});
  m.def("spanning_forest", &forest_of, nb::arg("n_rows"), nb::arg("source").noconvert(), nb::arg("target").noconvert(),
        nb::arg("weight").noconvert());
  m.def("linkage", &linkage, nb::arg("edges"), nb::arg("out").noconvert());
  nb::class_<CondensedHierarchy>(m, "CondensedHierarchy")
      .def(nb::init<const Input<std::int64_t>&, std::int64_t>(), nb::arg("edges"), nb::arg("min_cluster_size"))
      .def("n_records", &CondensedHierarchy::n_records)
      .def("write_records", &CondensedHierarchy::write_records, nb::arg("out").noconvert())
      .def("stabilities", &CondensedHierarchy::stabilities)
      .def("birth_heights", &CondensedHierarchy::birth_heights)
      .def("select", &CondensedHierarchy::select, nb::arg("leaf"), nb::arg("epsilon"), nb::arg("epsilon_max"), nb::arg("max_cluster_size"),
           nb::arg("allow_single_cluster"));
}
