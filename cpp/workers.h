// The fit's own threads. The calling thread works too, and between two pieces of work it polls the host
// (Python's signals, the progress bar) about every POLL_SECONDS; nothing spins.
#pragma once
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace mreach {

constexpr double POLL_SECONDS = 0.1;
// Clock reads cost tens of nanoseconds: the calling thread looks at it once in so many checkpoints.
constexpr int CHECKPOINTS_PER_CLOCK_READ = 16;

struct Cancelled : std::exception {
  const char* what() const noexcept override { return "cancelled"; }
};

// Round to nearest, subnormals kept: the contract's arithmetic, whatever another library left behind.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

class Workers {
 public:
  // `poll` runs on the calling thread only and is told which share of the present run is handed out; it returns
  // false to cancel.
  Workers(int n_threads, std::function<bool(double)> poll) : poll_(std::move(poll)) {
    last_poll_ = std::chrono::steady_clock::now();
    for (int t = 1; t < n_threads; ++t) {
      try {
        threads_.emplace_back([this, t] { serve(t); });
      } catch (const std::system_error&) {
        break;  // fewer threads than asked for: slower, the same result
      }
    }
  }
  ~Workers() {
    {
      std::lock_guard<std::mutex> hold(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(begin, end, thread) for pieces of at most `grain` items of [0, n_items).
  template <class Work>
  void run(std::int64_t n_items, std::int64_t grain, Work&& work) {
    if (n_items <= 0) return;
    next_.store(0, std::memory_order_relaxed);
    n_items_ = n_items;
    grain_ = grain;
    work_ = std::ref(work);
    const bool alone = threads_.empty() || n_items <= grain;
    if (!alone) {
      {
        std::lock_guard<std::mutex> hold(mutex_);
        ++generation_;
        busy_ = static_cast<int>(threads_.size());
      }
      wake_.notify_all();
    }
    drain(0);
    if (!alone) {
      std::unique_lock<std::mutex> hold(mutex_);
      const auto nap = std::chrono::duration<double>(POLL_SECONDS);
      for (bool idle = busy_ == 0; !idle;) {
        idle = done_.wait_for(hold, nap, [this] { return busy_ == 0; });
        if (!idle) {
          hold.unlock();
          poll_now();
          hold.lock();
        }
      }
    }
    finish();
  }

  // The runs that follow are this part of what the host is shown: [begin, begin + width] of 1.
  void set_part(double begin, double width) { part_begin_ = begin, part_width_ = width; }

  // True when the work should be left. Cheap enough to be asked between any two tiles.
  bool checkpoint(int thread) {
    if (thread == 0 && ++checkpoints_ % CHECKPOINTS_PER_CLOCK_READ == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (std::chrono::duration<double>(now - last_poll_).count() > POLL_SECONDS) poll_now();
    }
    return cancelled_.load(std::memory_order_relaxed);
  }

 private:
  void poll_now() {
    last_poll_ = std::chrono::steady_clock::now();
    const double share = static_cast<double>(next_.load(std::memory_order_relaxed)) / static_cast<double>(n_items_ ? n_items_ : 1);
    if (!cancelled_.load(std::memory_order_relaxed) && !poll_(part_begin_ + part_width_ * (share < 1 ? share : 1)))
      cancelled_.store(true);
  }
  void drain(int thread) {
    DefaultFloatEnvironment environment;
    try {
      for (std::int64_t begin = next_.fetch_add(grain_); begin < n_items_; begin = next_.fetch_add(grain_)) {
        if (checkpoint(thread)) return;
        const std::int64_t end = begin + grain_ < n_items_ ? begin + grain_ : n_items_;
        work_(begin, end, thread);
      }
    } catch (...) {
      std::lock_guard<std::mutex> hold(mutex_);
      if (!failure_) failure_ = std::current_exception();
      cancelled_.store(true);
    }
  }
  void serve(int thread) {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> hold(mutex_);
    for (bool stop = false; !stop;) {
      wake_.wait(hold, [&] { return stopping_ || generation_ != seen; });
      stop = stopping_;
      if (!stop) {
        seen = generation_;
        hold.unlock();
        drain(thread);
        hold.lock();
        if (--busy_ == 0) done_.notify_all();
      }
    }
  }
  void finish() {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (cancelled_.load()) throw Cancelled();
  }

  std::vector<std::thread> threads_;
  std::function<bool(double)> poll_;
  std::function<void(std::int64_t, std::int64_t, int)> work_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> cancelled_{false};
  std::exception_ptr failure_;
  std::chrono::steady_clock::time_point last_poll_;
  std::int64_t n_items_ = 0, grain_ = 1;
  std::uint64_t generation_ = 0;
  double part_begin_ = 0, part_width_ = 1;
  int busy_ = 0, checkpoints_ = 0;
  bool stopping_ = false;
};

}  // namespace mreach
