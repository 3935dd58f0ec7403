"""Tests of cpp_source.py: which functions it finds, and which code in them."""
import pathlib
import tempfile
import unittest

from tests.mutations.cpp_source import Tree, functions

SOURCE = '''
// A comment with a { brace.
namespace salius {
namespace {
constexpr char kText[] = "a { brace";
constexpr Table kTable = {{1, 2}, {3, 4}};
template <typename T>
absl::StatusOr<std::vector<T>> Free(absl::Span<const T> all, uint64_t big = 1'000) {
  return Twice([&](T one) { return one; });
}
}  // namespace

#define BRACES(x) \\
  { x
class Log final : public Base {
 public:
  Log() : a_{1}, b_(2) { Start(); }
  bool operator<(const Log& other) const { return a_ < other.a_; }
  int a() const ABSL_LOCKS_EXCLUDED(mu_) { return a_; }

 private:
  struct Entry {
    bool empty() const { return true; }
  };
  int a_;
};

Log::Log(Log&& other) noexcept
    : a_(std::move(other.a_)),
      b_{2} {
  if (a_ > 0) return;  // why
  Call(one,
       two);
}
}  // namespace salius
'''


class CppSourceTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "log.cc").write_text(SOURCE)
        self.tree = Tree(self.root, ["log.cc"])

    def test_functions_have_the_names_of_their_classes(self):
        self.assertEqual(["Free", "Log::Log", "Log::operator<", "Log::a", "Log::Entry::empty", "Log::Log"],
                         [function.name for function in functions(self.root / "log.cc", SOURCE)])

    def test_leading_classes_may_be_left_out(self):
        self.assertEqual(["Log::Entry::empty"], [function.name for function in self.tree.named("Entry::empty")])
        self.assertEqual(["Log::Entry::empty"], [function.name for function in self.tree.named("empty")])
        self.assertEqual([], self.tree.named("try::empty"))

    def test_code_is_found_in_one_of_several_functions(self):
        places = self.tree.find(self.tree.named("Log::Log"), "Call(one, two);")
        self.assertEqual(["Call(one,\n       two);"], [SOURCE[begin:end] for _, begin, end in places])
        self.assertEqual([], self.tree.find(self.tree.named("Log::a"), "Call(one, two);"))

    def test_comments_do_not_count(self):
        self.assertEqual(1, len(self.tree.find(self.tree.named("log.cc"), "return; Call(")))
        self.assertEqual(0, len(self.tree.find(self.tree.named("log.cc"), "why")))

    def test_code_elsewhere_is_reported_with_its_function(self):
        self.assertEqual(["Log::a"], self.tree.everywhere("return a_;"))


if __name__ == "__main__":
    unittest.main()
