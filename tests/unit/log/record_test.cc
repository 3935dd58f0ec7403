// Records of docs/log-format.md: golden bytes of every operation, and every refusal of the
// decoders.
#include "log/record.h"

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "tests/unit/log/golden.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

std::string Hex(const char* hex) { return absl::HexStringToBytes(hex); }
uint8_t* Data(std::string& bytes) { return reinterpret_cast<uint8_t*>(bytes.data()); }

RecordHeader GoldenHeader(Op op, FileId file_id, uint64_t arg0 = 0, uint64_t arg1 = 0,
                          uint64_t arg2 = 0) {
  RecordHeader header;
  header.op = op;
  for (int i = 0; i < 16; ++i) header.volume.bytes[i] = static_cast<uint8_t>(0x10 + i);
  header.epoch = 3;
  header.seq = 7;
  header.timestamp_ns = 0x1122334455667788;
  header.durable_mark = 6;
  header.checkpoint_mark = 5;
  header.file_id = file_id;
  header.arg0 = arg0;
  header.arg1 = arg1;
  header.arg2 = arg2;
  return header;
}

AttrBody GoldenAttr() {
  AttrBody attr;
  attr.mask = kAttrMode | kAttrUid | kAttrGid | kAttrAtime | kAttrMtime;
  attr.mode = 04755;
  attr.uid = 1000;
  attr.gid = 100;
  attr.atime_sec = -1;
  attr.atime_nsec = 5;
  attr.mtime_sec = 1700000000;
  attr.mtime_nsec = 999999999;
  return attr;
}

CreateBody GoldenCreate() {
  CreateBody create;
  create.dir = 5;
  create.name = "new";
  create.mode = S_IFREG | 0640;
  create.uid = 1000;
  create.gid = 100;
  create.xattrs = {{"user.a", "b"}};
  return create;
}

CreateBody GoldenSymlink() {
  CreateBody create;
  create.dir = kRootFileId;
  create.name = "ln";
  create.mode = S_IFLNK | 0777;
  create.symlink_target = "/t";
  return create;
}

RenameBody GoldenRename() {
  RenameBody rename;
  rename.from_dir = 5;
  rename.from_name = "a";
  rename.to_dir = 6;
  rename.to_name = "bc";
  rename.other = 9;
  return rename;
}

RenameBody GoldenWhiteout() {
  RenameBody rename = GoldenRename();
  rename.flags = 4;
  rename.whiteout = 46;
  rename.whiteout_uid = 1000;
  rename.whiteout_gid = 100;
  return rename;
}

AdoptBody GoldenAdopt() {
  AdoptBody adopt;
  adopt.path = "d/f";
  adopt.handle_type = 0x81;
  adopt.handle = "\x01\x02\x03";
  return adopt;
}

struct GoldenRecord {
  const char* hex;
  RecordHeader header;
  std::string body;
};

std::vector<GoldenRecord> GoldenRecords() {
  const std::string value("v\0w", 3);
  return {
      {golden::kRecordWrite, GoldenHeader(Op::kWrite, 42, 4096), "hello"},
      {golden::kRecordTruncate, GoldenHeader(Op::kTruncate, 42, 100), ""},
      {golden::kRecordFallocate, GoldenHeader(Op::kFallocate, 42, 8, 16, 3), ""},
      {golden::kRecordSetAttr, GoldenHeader(Op::kSetAttr, 42), GoldenAttr().Encode()},
      {golden::kRecordSetXattr, GoldenHeader(Op::kSetXattr, 42),
       XattrBody{"user.k", value}.Encode()},
      {golden::kRecordRemoveXattr, GoldenHeader(Op::kRemoveXattr, 42),
       XattrBody{"user.k", ""}.Encode()},
      {golden::kRecordCreate, GoldenHeader(Op::kCreate, 43), GoldenCreate().Encode()},
      {golden::kRecordCreateSymlink, GoldenHeader(Op::kCreate, 44), GoldenSymlink().Encode()},
      {golden::kRecordLink, GoldenHeader(Op::kLink, 42), NameBody{5, "f"}.Encode()},
      {golden::kRecordUnlink, GoldenHeader(Op::kUnlink, 42, 1), NameBody{5, "f"}.Encode()},
      {golden::kRecordRename, GoldenHeader(Op::kRename, 42), GoldenRename().Encode()},
      {golden::kRecordRenameWhiteout, GoldenHeader(Op::kRename, 42), GoldenWhiteout().Encode()},
      {golden::kRecordCancel, GoldenHeader(Op::kCancel, 0, 6), ""},
      {golden::kRecordOnDisk, GoldenHeader(Op::kOnDisk, 42, 5), ""},
      {golden::kRecordAdopt, GoldenHeader(Op::kAdopt, 45), GoldenAdopt().Encode()},
  };
}

TEST(RecordTest, GoldenBytesOfEveryOperation) {
  for (const GoldenRecord& golden : GoldenRecords()) {
    SCOPED_TRACE(OpName(golden.header.op));
    EXPECT_EQ(absl::BytesToHexString(EncodeRecord(golden.header, golden.body)),
              absl::BytesToHexString(Hex(golden.hex)));
    const auto decoded = DecodeRecord(AsBytes(Hex(golden.hex)));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    RecordHeader expected = golden.header;
    expected.body_bytes = static_cast<uint32_t>(golden.body.size());
    expected.body_crc = Crc32c(AsBytes(golden.body));
    EXPECT_EQ(*decoded, expected);
  }
}

TEST(RecordTest, GoldenBodiesDecode) {
  EXPECT_EQ(*AttrBody::Decode(GoldenAttr().Encode()), GoldenAttr());
  EXPECT_EQ(*CreateBody::Decode(GoldenCreate().Encode()), GoldenCreate());
  EXPECT_EQ(*CreateBody::Decode(GoldenSymlink().Encode()), GoldenSymlink());
  EXPECT_EQ(*RenameBody::Decode(GoldenRename().Encode()), GoldenRename());
  EXPECT_EQ(*RenameBody::Decode(GoldenWhiteout().Encode()), GoldenWhiteout());
  EXPECT_EQ(*AdoptBody::Decode(GoldenAdopt().Encode()), GoldenAdopt());
  EXPECT_EQ(*NameBody::Decode(NameBody{5, "f"}.Encode()), (NameBody{5, "f"}));
  EXPECT_EQ(*XattrBody::Decode(XattrBody{"user.k", "v"}.Encode()), (XattrBody{"user.k", "v"}));
}

TEST(RecordTest, EveryFlippedBitIsDataLoss) {
  const std::string record = Hex(golden::kRecordWrite);
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    std::string bad = record;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(DecodeRecord(AsBytes(bad)).status().code(), Code::kDataLoss) << "bit " << bit;
  }
}

TEST(RecordTest, CutOffAnywhereIsOutOfRange) {
  const std::string record = Hex(golden::kRecordWrite);
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_EQ(DecodeRecord(AsBytes(record).first(size)).status().code(), Code::kOutOfRange) << size;
  }
}

TEST(RecordTest, BytesBehindTheRecordAreNotItsBusiness) {
  EXPECT_TRUE(DecodeRecord(AsBytes(Hex(golden::kRecordWrite) + "more")).ok());
}

TEST(RecordTest, HeaderThatNoEncoderWritesIsRefused) {
  const auto code = [](const std::function<void(uint8_t*)>& change) {
    std::string record = Hex(golden::kRecordTruncate);
    change(Data(record));
    StoreU32(Data(record) + 108, Crc32c(AsBytes(record).first(108)));
    return DecodeRecordHeader(AsBytes(record)).status().code();
  };
  EXPECT_EQ(code([](uint8_t*) {}), Code::kOk);
  EXPECT_EQ(code([](uint8_t* b) { b[0] = 0; }), Code::kInvalidArgument);    // magic
  EXPECT_EQ(code([](uint8_t* b) { b[4] = 2; }), Code::kInvalidArgument);    // version
  EXPECT_EQ(code([](uint8_t* b) { b[6] = 0; }), Code::kInvalidArgument);    // op 0
  EXPECT_EQ(code([](uint8_t* b) { b[6] = 14; }), Code::kInvalidArgument);   // op 14
  EXPECT_EQ(code([](uint8_t* b) { b[107] = 1; }), Code::kInvalidArgument);  // reserved
  EXPECT_EQ(code([](uint8_t* b) { StoreU32(b + 8, kMaxRecordBody + 1); }), Code::kInvalidArgument);
}

TEST(RecordTest, NumbersNearTheEndOf64BitsAreRefused) {
  for (uint64_t RecordHeader::*field :
       {&RecordHeader::epoch, &RecordHeader::seq, &RecordHeader::durable_mark,
        &RecordHeader::checkpoint_mark}) {
    RecordHeader header;
    header.*field = kMaxCount;
    EXPECT_TRUE(DecodeRecord(AsBytes(EncodeRecord(header, ""))).ok());
    header.*field = kMaxCount + 1;
    EXPECT_EQ(DecodeRecord(AsBytes(EncodeRecord(header, ""))).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(RecordTest, LargestBodyRoundTrips) {
  const std::string body(kMaxRecordBody, 'b');
  EXPECT_TRUE(DecodeRecord(AsBytes(EncodeRecord(GoldenHeader(Op::kWrite, 1), body))).ok());
}

TEST(RecordTest, OperationsHaveNames) {
  EXPECT_FALSE(KnownOp(0));
  EXPECT_FALSE(KnownOp(14));
  for (uint16_t op = 1; op <= 13; ++op) {
    EXPECT_TRUE(KnownOp(op));
    EXPECT_NE(OpName(static_cast<Op>(op)), "unknown") << op;
  }
  EXPECT_EQ(OpName(static_cast<Op>(99)), "unknown");
}

// Checks that a body refuses to be cut anywhere and to be followed by anything.
template <typename Body>
void ExpectExactSize(const Body& body) {
  const std::string bytes = body.Encode();
  ASSERT_TRUE(Body::Decode(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Body::Decode(bytes.substr(0, size)).status().code(), Code::kInvalidArgument) << size;
  }
  EXPECT_EQ(Body::Decode(bytes + '\0').status().code(), Code::kInvalidArgument);
}

TEST(RecordBodyTest, CutOffOrFollowedByAnythingIsRefused) {
  ExpectExactSize(GoldenAttr());
  ExpectExactSize(XattrBody{"user.k", "v"});
  ExpectExactSize(NameBody{5, "f"});
  ExpectExactSize(GoldenCreate());
  ExpectExactSize(GoldenRename());
  ExpectExactSize(GoldenWhiteout());
  ExpectExactSize(GoldenAdopt());
}

TEST(RecordBodyTest, ImpossibleNamesAreRefused) {
  const std::vector<std::string> bad = {
      "", ".", "..", "a/b", "/", std::string("a\0b", 3), std::string(kMaxNameBytes + 1, 'n')};
  for (const std::string& name : bad) {
    EXPECT_EQ(NameBody::Decode(NameBody{5, name}.Encode()).status().code(), Code::kInvalidArgument);
    CreateBody create = GoldenCreate();
    create.name = name;
    EXPECT_EQ(CreateBody::Decode(create.Encode()).status().code(), Code::kInvalidArgument);
    RenameBody rename = GoldenRename();
    rename.from_name = name;
    EXPECT_EQ(RenameBody::Decode(rename.Encode()).status().code(), Code::kInvalidArgument);
    rename = GoldenRename();
    rename.to_name = name;
    EXPECT_EQ(RenameBody::Decode(rename.Encode()).status().code(), Code::kInvalidArgument);
  }
  for (const std::string& name : {std::string("..."), std::string(".a"), std::string("\xff\n"),
                                  std::string(kMaxNameBytes, 'n')}) {
    EXPECT_TRUE(NameBody::Decode(NameBody{5, name}.Encode()).ok());
  }
}

TEST(RecordBodyTest, NamesNeedADirectory) {
  EXPECT_FALSE(NameBody::Decode(NameBody{kNoFileId, "f"}.Encode()).ok());
  RenameBody rename = GoldenRename();
  rename.from_dir = kNoFileId;
  EXPECT_FALSE(RenameBody::Decode(rename.Encode()).ok());
  rename = GoldenRename();
  rename.to_dir = kNoFileId;
  EXPECT_FALSE(RenameBody::Decode(rename.Encode()).ok());
}

template <typename Body>
Code ChangedCode(Body body, const std::function<void(Body&)>& change) {
  change(body);
  return Body::Decode(body.Encode()).status().code();
}

TEST(RecordBodyTest, ImpossibleAttributesAreRefused) {
  const auto code = [](const std::function<void(AttrBody&)>& change) {
    return ChangedCode<AttrBody>(GoldenAttr(), change);
  };
  EXPECT_EQ(code([](AttrBody& a) { a.mask |= 1u << 5; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](AttrBody& a) { a.mode = 010000; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](AttrBody& a) { a.atime_nsec = 1'000'000'000; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](AttrBody& a) { a.mtime_nsec = 1'000'000'000; }), Code::kInvalidArgument);
}

TEST(RecordBodyTest, ImpossibleXattrsAreRefused) {
  const auto code = [](const std::string& name, size_t value) {
    return XattrBody::Decode(XattrBody{name, std::string(value, 'v')}.Encode()).status().code();
  };
  EXPECT_EQ(code("user.a", kMaxXattrValue), Code::kOk);
  EXPECT_EQ(code("user.a", kMaxXattrValue + 1), Code::kInvalidArgument);
  EXPECT_EQ(code("", 1), Code::kInvalidArgument);
  EXPECT_EQ(code(std::string(kMaxXattrNameBytes + 1, 'n'), 1), Code::kInvalidArgument);
  EXPECT_EQ(code(std::string("a\0b", 3), 1), Code::kInvalidArgument);
}

TEST(RecordBodyTest, ImpossibleCreatesAreRefused) {
  const auto code = [](const std::function<void(CreateBody&)>& change) {
    return ChangedCode<CreateBody>(GoldenCreate(), change);
  };
  EXPECT_EQ(code([](CreateBody& c) { c.dir = kNoFileId, c.name = ""; }), Code::kOk);  // nameless
  EXPECT_EQ(code([](CreateBody& c) { c.dir = kNoFileId; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.dir = kNoFileId, c.name = "", c.mode = S_IFDIR; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.mode = 0640; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.mode |= 0x10000; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.symlink_target = "t"; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.mode = S_IFLNK | 0777; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) {
              c.mode = S_IFLNK | 0777;
              c.symlink_target = std::string(kMaxSymlinkBytes + 1, 't');
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) {
              c.mode = S_IFLNK | 0777;
              c.symlink_target = std::string("a\0b", 3);
            }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.rdev = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) { c.mode = S_IFBLK | 0600, c.rdev = 1; }), Code::kOk);
  EXPECT_EQ(code([](CreateBody& c) { c.xattrs[0].first = ""; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](CreateBody& c) {
              c.xattrs.resize(65, {"user.a", ""});
            }),
            Code::kInvalidArgument);
}

TEST(RecordBodyTest, EveryTypeOfObjectCanBeCreated) {
  for (const uint32_t type : {S_IFREG, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK}) {
    CreateBody create = GoldenCreate();
    create.mode = type | 0600;
    EXPECT_TRUE(CreateBody::Decode(create.Encode()).ok()) << type;
  }
}

TEST(RecordBodyTest, ImpossibleRenamesAreRefused) {
  const auto code = [](const std::function<void(RenameBody&)>& change) {
    return ChangedCode<RenameBody>(GoldenRename(), change);
  };
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 2; }), Code::kOk);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 1, r.other = kNoFileId; }), Code::kOk);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 2, r.other = kNoFileId; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 4, r.whiteout = 12; }), Code::kOk);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 5, r.whiteout = 12; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 5, r.whiteout = 12, r.other = kNoFileId; }), Code::kOk);
  EXPECT_EQ(code([](RenameBody& r) { r.flags = 6, r.whiteout = 12; }), Code::kInvalidArgument);
}

TEST(RecordBodyTest, ImpossibleAdoptsAreRefused) {
  const auto path = [](const std::string& text) {
    AdoptBody adopt = GoldenAdopt();
    adopt.path = text;
    return AdoptBody::Decode(adopt.Encode()).status().code();
  };
  EXPECT_EQ(path("f"), Code::kOk);
  EXPECT_EQ(path("a/b/c"), Code::kOk);
  std::string longest = "a";
  while (longest.size() + 2 <= kMaxPathBytes) longest += "/a";
  EXPECT_EQ(path(longest), Code::kOk);
  for (const std::string& bad :
       {std::string("/a"), std::string("a/"), std::string("a//b"), std::string("a/../b"),
        std::string("./a"), longest + "/a/a", std::string("a\0b", 3)}) {
    EXPECT_EQ(path(bad), Code::kInvalidArgument) << bad;
  }
  AdoptBody adopt = GoldenAdopt();
  adopt.handle = std::string(kMaxFileHandleBytes + 1, 'h');
  EXPECT_FALSE(AdoptBody::Decode(adopt.Encode()).ok());
}

TEST(RecordBodyTest, AdoptNeedsAPathOrAHandle) {
  AdoptBody adopt = GoldenAdopt();
  adopt.path = "";
  EXPECT_EQ(*AdoptBody::Decode(adopt.Encode()), adopt);
  adopt.handle = "";
  EXPECT_EQ(AdoptBody::Decode(adopt.Encode()).status().code(), Code::kInvalidArgument);
}

TEST(RecordTest, RandomHeadersRoundTrip) {
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    RecordHeader header = GoldenHeader(static_cast<Op>(1 + random.Below(13)), random.Next(),
                                       random.Next(), random.Next(), random.Next());
    header.epoch = random.Below(kMaxCount + 1);
    header.seq = random.Below(kMaxCount + 1);
    header.timestamp_ns = random.Next();
    header.durable_mark = random.Below(kMaxCount + 1);
    header.checkpoint_mark = random.Below(kMaxCount + 1);
    const std::string body(random.Below(300), static_cast<char>(random.Next()));
    const std::string bytes = EncodeRecord(header, body);
    const auto decoded = DecodeRecord(AsBytes(bytes));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.body_crc = Crc32c(AsBytes(body));
    EXPECT_EQ(*decoded, header);
  }
}

}  // namespace
}  // namespace salius
