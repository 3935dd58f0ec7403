// The window against a simple model, and its limits.
#include "client/session/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "common/random.h"

namespace salius {
namespace {

// The window as a map, with all records of the session.
struct Model {
  Seq checkpoint = 0, issued = 0;
  std::map<Seq, uint64_t> bytes;
  std::map<Seq, int64_t> issued_ns;
  std::map<Seq, ReplicaMask> held;

  uint64_t BytesUpTo(Seq seq) const {
    uint64_t sum = 0;
    for (Seq s = 1; s <= std::min(std::max(seq, checkpoint), issued); ++s) sum += bytes.at(s);
    return sum;
  }
};

void Compare(const Window& window, const Model& model) {
  ASSERT_EQ(window.checkpoint(), model.checkpoint);
  ASSERT_EQ(window.issued(), model.issued);
  ASSERT_EQ(window.size(), model.issued - model.checkpoint);
  ASSERT_EQ(window.bytes(), model.BytesUpTo(model.issued) - model.BytesUpTo(model.checkpoint));
  for (Seq seq = model.checkpoint + 1; seq <= model.issued; ++seq) {
    ASSERT_EQ(window.At(seq).bytes_upto, model.BytesUpTo(seq)) << seq;
    ASSERT_EQ(window.At(seq).issued_ns, model.issued_ns.at(seq)) << seq;
    ASSERT_EQ(window.At(seq).held, model.held.at(seq)) << seq;
    ASSERT_FALSE(window.At(seq).stable);
  }
}

TEST(WindowTest, RandomOperationsMatchTheModel) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    const OwnedWindow window = NewWindow(2u << random.Below(5));
    Model model;
    for (int step = 0; step < 300; ++step) {
      const Seq any = random.Below(model.issued + 3);
      switch (random.Below(5)) {
        case 0:
        case 1:
          if (window->full()) break;
          ++model.issued;
          model.bytes[model.issued] = 1 + random.Below(5000);
          model.issued_ns[model.issued] = step;
          model.held[model.issued] = 0;
          ASSERT_EQ(window->Add(model.bytes[model.issued], step), model.issued);
          break;
        case 2: {
          const auto replicas = static_cast<ReplicaMask>(random.Below(256));
          const Seq last = any + random.Below(4);
          window->Hold(any, last, replicas);
          for (Seq seq = any; seq <= last; ++seq) {
            if (seq > model.checkpoint && seq <= model.issued) model.held[seq] |= replicas;
          }
          break;
        }
        case 3: {
          const auto replica = static_cast<ReplicaMask>(1u << random.Below(8));
          window->Forget(replica);
          for (auto& [seq, held] : model.held) held &= static_cast<ReplicaMask>(~replica);
          break;
        }
        case 4:
          model.checkpoint += random.Below(model.issued - model.checkpoint + 1);
          window->CutTo(model.checkpoint);
      }
      Compare(*window, model);
      ASSERT_EQ(window->BytesUpTo(any), model.BytesUpTo(any));
    }
  }
}

TEST(WindowTest, TakesOneRecordLessThanItHasSlots) {
  const OwnedWindow window = NewWindow(4);
  EXPECT_TRUE(window->empty());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(window->full());
    window->Add(10, 0);
  }
  EXPECT_TRUE(window->full());
  EXPECT_DEATH(window->Add(10, 0), "full");
  window->CutTo(1);
  EXPECT_FALSE(window->full());
}

TEST(WindowTest, ReusedSlotIsNew) {
  const OwnedWindow window = NewWindow(2);
  window->Add(10, 0);
  window->At(1).stable = window->At(1).stable_in_flight = true;
  window->At(1).held = 7;
  window->CutTo(1);
  window->Add(10, 0);
  window->CutTo(2);
  window->Add(10, 0);  // in the slot of seq 1
  EXPECT_FALSE(window->At(3).stable || window->At(3).stable_in_flight);
  EXPECT_EQ(window->At(3).held, 0);
  EXPECT_EQ(window->At(3).bytes_upto, 30u);
}

TEST(WindowTest, CopyAtAnotherAddressIsTheSameWindow) {
  const OwnedWindow window = NewWindow(4);
  window->Add(10, 5);
  window->Add(20, 6);
  window->Hold(1, 2, 3);
  void* const memory = ::operator new(Window::BytesFor(4), Window::kAlignment);
  std::memcpy(memory, static_cast<const void*>(window.get()), Window::BytesFor(4));
  const OwnedWindow copy(static_cast<Window*>(memory));
  EXPECT_EQ(copy->issued(), 2u);
  EXPECT_EQ(copy->bytes(), 30u);
  EXPECT_EQ(copy->At(2).held, 3);
}

}  // namespace
}  // namespace salius
