// A function with a stack of its own, which can be left in the middle and continued later, or never.
//
// Threads: one.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace salius::sim {

class Fiber {
 public:
  // `body` begins with the first Resume.
  explicit Fiber(std::function<void()> body);
  // Abandons the stack if the body has not ended: nothing on it is destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the body until it yields or ends. Call it from outside of all fibers.
  void Resume();
  bool ended() const { return ended_; }
  // Leaves the running fiber; returns when it is resumed.
  static void Yield();
  // Returns the running fiber, or null.
  static Fiber* running();

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  static void Enter();
  void SwitchIn();

  std::function<void()> body_;
  std::unique_ptr<uint8_t[]> stack_;
  ucontext_t own_{}, outside_{};
  void* own_fake_ = nullptr;  // of the address sanitizer
  bool ended_ = false;
};

}  // namespace salius::sim
