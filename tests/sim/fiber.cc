#include "tests/sim/fiber.h"

#include <utility>
#include <vector>

#include "common/check.h"

// Functions of the address sanitizer's runtime, in builds that have one.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void**, const void*, size_t);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
}

namespace salius::sim {
namespace {

Fiber* g_running = nullptr;
const void* g_outside_stack = nullptr;
size_t g_outside_bytes = 0;

std::vector<std::unique_ptr<uint8_t[]>>& FreeStacks() {
  static auto* const stacks = new std::vector<std::unique_ptr<uint8_t[]>>;
  return *stacks;
}

void StartSwitch(void** save, const void* stack, size_t bytes) {
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(save, stack, bytes);
}

void FinishSwitch(void* saved, const void** stack, size_t* bytes) {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(saved, stack, bytes);
  }
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  if (FreeStacks().empty()) {
    stack_.reset(new uint8_t[kStackBytes]);
  } else {
    stack_ = std::move(FreeStacks().back());
    FreeStacks().pop_back();
  }
  if (__asan_unpoison_memory_region != nullptr) {
    __asan_unpoison_memory_region(stack_.get(), kStackBytes);
  }
  SALIUS_CHECK(getcontext(&own_) == 0);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  makecontext(&own_, &Fiber::Enter, 0);
}

Fiber::~Fiber() {
  SALIUS_CHECK(g_running != this);
  FreeStacks().push_back(std::move(stack_));
}

Fiber* Fiber::running() { return g_running; }

void Fiber::Enter() {
  FinishSwitch(nullptr, &g_outside_stack, &g_outside_bytes);
  Fiber* const self = g_running;
  self->body_();
  self->ended_ = true;
  StartSwitch(nullptr, g_outside_stack, g_outside_bytes);
  swapcontext(&self->own_, &self->outside_);
}

void Fiber::Resume() {
  SALIUS_CHECK(g_running == nullptr && !ended_);
  g_running = this;
  void* fake = nullptr;
  StartSwitch(&fake, stack_.get(), kStackBytes);
  SALIUS_CHECK(swapcontext(&outside_, &own_) == 0);
  FinishSwitch(fake, nullptr, nullptr);
  g_running = nullptr;
}

void Fiber::Yield() {
  Fiber* const self = g_running;
  SALIUS_CHECK(self != nullptr);
  StartSwitch(&self->own_fake_, g_outside_stack, g_outside_bytes);
  SALIUS_CHECK(swapcontext(&self->own_, &self->outside_) == 0);
  FinishSwitch(self->own_fake_, &g_outside_stack, &g_outside_bytes);
}

}  // namespace salius::sim
