// A lock held for a few instructions: no memory of its own to allocate, so that there can be one for every panel.
#pragma once
#include <atomic>
#include <thread>

namespace mreach {

class SpinLock {
 public:
  class Hold {
   public:
    explicit Hold(SpinLock& lock) : flag_(lock.flag_) {
      // The holder may have lost its core: give this one away rather than burn it.
      for (bool taken = flag_.test_and_set(std::memory_order_acquire); taken;) {
        std::this_thread::yield();
        taken = flag_.test_and_set(std::memory_order_acquire);
      }
    }
    ~Hold() { flag_.clear(std::memory_order_release); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    std::atomic_flag& flag_;
  };

 private:
  std::atomic_flag flag_ = ATOMIC_FLAG_INIT;
};

}  // namespace mreach
