// docs/status-json.md names every field that `salius status --json` prints, with its type, and no
// other.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/health.h"
#include "client/cli/status_text.h"

namespace salius::cli {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using Fields = std::map<std::string, std::string>;  // name: type

// Returns the tables of the page that have the columns field and type, in their order.
std::vector<Fields> TablesOfThePage() {
  std::ifstream page("docs/status-json.md");
  EXPECT_TRUE(page.good());
  std::vector<Fields> tables;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| field | type |", 0) == 0) {
      tables.emplace_back();
      inside = true;
    } else if (line.empty() || line[0] != '|') {
      inside = false;
    } else if (inside && line.rfind("|---", 0) != 0) {
      std::vector<std::string> cells;
      std::istringstream row(line.substr(2));
      for (std::string cell; std::getline(row, cell, '|');) {
        const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
        cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
      }
      tables.back()[cells[0].substr(1, cells[0].size() - 2)] = cells[1];
    }
  }
  return tables;
}

Struct Parse(const std::string& json) {
  Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &object);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return object;
}

std::string TypeOf(const Value& value) {
  switch (value.kind_case()) {
    case Value::kBoolValue:
      return "bool";
    case Value::kNumberValue:
      return "number";
    case Value::kStringValue:
      return "text";
    case Value::kListValue:
      return value.list_value().values_size() > 0 &&
                     value.list_value().values(0).kind_case() == Value::kStringValue
                 ? "list of text"
                 : "list";
    case Value::kStructValue:
      return "object";
    default:
      return "?";
  }
}

Fields FieldsOf(const Struct& object) {
  Fields fields;
  for (const auto& [name, value] : object.fields()) fields[name] = TypeOf(value);
  return fields;
}

Struct FirstOf(const Struct& object, const std::string& list) {
  return object.fields().at(list).list_value().values(0).struct_value();
}

control::VolumeStatusResponse Mounted() {
  control::VolumeStatusResponse status;
  status.set_serving(true);
  status.set_mode("replicated");
  status.add_replicas()->set_address("a:7400");
  status.add_recoveries();
  status.add_warnings("replica a:7400 is on this host");
  status.mutable_direct()->set_processes(1);
  status.mutable_gate()->set_processes(1);
  status.mutable_patches()->set_bytes(1);
  status.mutable_sealing()->set_key_changes(1);
  return status;
}

OfflineStatus Offline() {
  OfflineStatus status;
  status.config.replicas = {"a:7400"};
  status.state.members = {{"a:7400", 0x17, 5}};
  RecoveryNote note;
  note.epoch = 3;
  status.recoveries.Put(note);
  return status;
}

TEST(StatusJsonTest, ThePageAndTheProgramNameTheSameFields) {
  const std::vector<Fields> page = TablesOfThePage();
  ASSERT_EQ(page.size(), 11u);
  const Struct mounted = Parse(MountedJson(Mounted()));
  EXPECT_EQ(FieldsOf(mounted), page[0]);
  EXPECT_EQ(FieldsOf(FirstOf(mounted, "recoveries")), page[1]);
  EXPECT_EQ(FieldsOf(FirstOf(mounted, "replicas")), page[2]);
  EXPECT_EQ(FieldsOf(mounted.fields().at("direct").struct_value()), page[3]);
  EXPECT_EQ(FieldsOf(mounted.fields().at("gate").struct_value()), page[4]);
  EXPECT_EQ(FieldsOf(mounted.fields().at("patches").struct_value()), page[5]);
  const Struct offline = Parse(OfflineJson(Offline()));
  EXPECT_EQ(FieldsOf(offline), page[6]);
  EXPECT_EQ(FieldsOf(FirstOf(offline, "recoveries")), page[1]);
  EXPECT_EQ(FieldsOf(Parse(ErrorJson("hung", 7, "why"))), page[7]);
  control::ReplicaStatusResponse replica;
  replica.add_volumes();
  replica.add_calls();
  const Struct shown = Parse(ReplicaJson("a:7400", replica));
  EXPECT_EQ(FieldsOf(shown), page[8]);
  EXPECT_EQ(FieldsOf(FirstOf(shown, "volumes")), page[9]);
  EXPECT_EQ(FieldsOf(FirstOf(shown, "calls")), page[10]);
}

TEST(StatusJsonTest, ReasonsOfRealSyncsAreByName) {
  control::VolumeStatusResponse status = Mounted();
  control::VolumeStatusResponse::DirectUse::Reason* const reason =
      status.mutable_direct()->add_reasons();
  reason->set_name("map");
  reason->set_syncs(3);
  const Struct direct = Parse(MountedJson(status)).fields().at("direct").struct_value();
  EXPECT_EQ(direct.fields().at("reasons").struct_value().fields().at("map").number_value(), 3);
  EXPECT_NE(MountedText(status).find("by fsync(2): 3 map\n"), std::string::npos);
  status.clear_direct();
  status.clear_gate();
  status.clear_patches();
  status.clear_sealing();
  for (const char* const object : {"direct", "gate", "patches", "sealing"}) {
    EXPECT_EQ(Parse(MountedJson(status)).fields().at(object).kind_case(), Value::kNullValue);
  }
}

TEST(StatusJsonTest, ThePageNamesEachWordWithItsCode) {
  std::ifstream page("docs/status-json.md");
  const std::string text((std::istreambuf_iterator<char>(page)), std::istreambuf_iterator<char>());
  for (int i = 0; i <= static_cast<int>(HealthLevel::kFailed); ++i) {
    const auto health = static_cast<HealthLevel>(i);
    const std::string row = "| `" + std::string(HealthName(health)) + "` | " +
                            std::to_string(ExitCodeOf(health)) + " |";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace salius::cli
