#include "client/preload/coverage.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "client/preload/program.h"
#include "tests/unit/preload/subjects.h"

namespace salius::preload {
namespace {

std::string ImageOf(const std::string& name) {
  std::ifstream file(SubjectRun::PathOf(name), std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

TEST(CoverageTest, ImportsAreJudged) {
  const auto coverage = ReadCoverage(ImageOf("subject"), false);
  ASSERT_TRUE(coverage.ok()) << coverage.status();
  EXPECT_EQ(coverage->refusal, "");
  std::map<std::string, Cover> calls;
  for (const CoveredCall& call : coverage->calls) calls[call.name] = call.cover;
  EXPECT_EQ(calls.at("pwritev2"), Cover::kLogged);
  EXPECT_EQ(calls.at("fsync"), Cover::kLogged);
  EXPECT_EQ(calls.at("fopen"), Cover::kUncovered);
  EXPECT_EQ(calls.at("dprintf"), Cover::kUncovered);
  EXPECT_EQ(calls.at("__vdprintf_chk"), Cover::kUncovered);
  EXPECT_EQ(calls.at("io_submit"), Cover::kRefused);
  EXPECT_EQ(calls.count("getenv"), 0u);
  ASSERT_FALSE(coverage->libraries.empty());
  EXPECT_EQ(coverage->libraries.back(), "libc.so.6");
}

TEST(CoverageTest, ProgramsThatAreRefused) {
  EXPECT_EQ(ReadCoverage(ImageOf("static_subject"), false)->refusal, VerdictText(Verdict::kStatic));
  EXPECT_EQ(ReadCoverage(ImageOf("go_subject"), false)->refusal, VerdictText(Verdict::kGo));
  EXPECT_EQ(ReadCoverage(ImageOf("subject"), true)->refusal, VerdictText(Verdict::kSetId));
}

TEST(CoverageTest, OtherFilesAreInvalid) {
  EXPECT_FALSE(ReadCoverage("", false).ok());
  EXPECT_FALSE(ReadCoverage("#!/bin/sh\n", false).ok());
  std::string other = ImageOf("go_subject");
  other[18] = '\xB7';  // e_machine
  EXPECT_FALSE(ReadCoverage(other, false).ok());
}

// Each cut of a file, and each byte of its headers changed, gives an answer or an error.
TEST(CoverageTest, DamagedFilesAreRead) {
  const std::string image = ImageOf("go_subject");
  for (size_t size = 0; size < image.size(); size += 7) {
    (void)ReadCoverage(std::string_view(image).substr(0, size), false);
  }
  const size_t sections = image.size() > 4096 ? image.size() - 4096 : 0;
  for (size_t at = 0; at < image.size(); at = at == 64 ? sections : at + 1) {
    std::string damaged = image;
    damaged[at] = static_cast<char>(damaged[at] ^ 0xFF);
    (void)ReadCoverage(damaged, false);
  }
}

}  // namespace
}  // namespace salius::preload
