#include "tests/unit/engine_volume/fake_pipeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "log/stable_log.h"

namespace salius {
namespace {

// Which fake is behind a pipeline; pipelines are few and live on one thread in these tests.
absl::Mutex g_mu;
std::map<Pipeline*, FakeControl*>& Fakes() {
  static auto* const fakes = new std::map<Pipeline*, FakeControl*>();
  return *fakes;
}

}  // namespace

struct Pipeline::Impl : public FakeControl {
  explicit Impl(ApplySink& apply_sink) : sink(apply_sink) {}

  absl::Status ApplyTo(Seq seq) override {
    absl::MutexLock one_at_a_time(&apply_mu);
    while (true) {
      std::vector<RecordRef> next;
      {
        absl::MutexLock lock(&mu);
        if (!failure.ok()) return failure;
        if (applied >= seq || applied >= records.size()) return absl::OkStatus();
        const Seq last = before_apply ? applied + 1 : std::min<Seq>(seq, records.size());
        next.assign(records.begin() + applied, records.begin() + last);
      }
      if (before_apply) before_apply(next[0]);
      const absl::StatusOr<size_t> together = sink.Apply(next);
      absl::MutexLock lock(&mu);
      if (!together.ok()) return failure = together.status();
      ++applies;
      applied += *together;
      durable = std::max(durable, applied);
    }
  }

  ApplySink& sink;
  absl::Mutex apply_mu;
  FileId next_id = 0;
};

std::vector<RecordRef> FakeControl::Issued() {
  absl::MutexLock lock(&mu);
  return records;
}

std::vector<RecordRef> FakeControl::Issued(Op op) {
  std::vector<RecordRef> found;
  for (const RecordRef& record : Issued()) {
    if (record->header().op == op) found.push_back(record);
  }
  return found;
}

void FakeControl::ApplySome(size_t count) {
  Seq to = 0;
  {
    absl::MutexLock lock(&mu);
    to = applied + std::min<Seq>(count, records.size() - applied);
  }
  SALIUS_CHECK_OK(ApplyTo(to));
}

void FakeControl::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu);
  failure = status;
}

FakeControl& FakeOf(Pipeline& pipeline) {
  absl::MutexLock lock(&g_mu);
  return *Fakes().at(&pipeline);
}

Pipeline::Pipeline(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipeline::~Pipeline() {
  absl::MutexLock lock(&g_mu);
  Fakes().erase(this);
}

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Start(const VolumeDir&, StateFile state,
                                                          StableLog, ApplySink& sink,
                                                          PipelineOptions) {
  auto impl = std::make_unique<Impl>(sink);
  impl->next_id = state.state().file_id_limit;
  FakeControl* const fake = impl.get();
  std::unique_ptr<Pipeline> pipeline(new Pipeline(std::move(impl)));
  absl::MutexLock lock(&g_mu);
  Fakes()[pipeline.get()] = fake;
  return pipeline;
}

absl::StatusOr<RecordRef> Pipeline::Issue(RecordDraft draft) {
  SALIUS_RETURN_IF_ERROR(health());
  SALIUS_CHECK(draft.body.size() <= kMaxRecordBody);
  if (impl_->before_issue) impl_->before_issue(draft.op);
  auto record = std::make_shared<Record>();
  record->body_ = std::move(draft.body);
  record->context_ = std::move(draft.context);
  RecordHeader& header = record->header_;
  header.op = draft.op;
  header.body_bytes = static_cast<uint32_t>(record->body_.size());
  header.file_id = draft.file_id;
  header.arg0 = draft.arg0;
  header.arg1 = draft.arg1;
  header.arg2 = draft.arg2;
  bool apply = false;
  {
    absl::MutexLock lock(&impl_->mu);
    header.seq = impl_->records.size() + 1;
    impl_->records.push_back(record);
    apply = impl_->apply_at_once;
  }
  if (apply) SALIUS_RETURN_IF_ERROR(impl_->ApplyTo(header.seq));
  return RecordRef(std::move(record));
}

absl::Status Pipeline::WaitDurable(Seq seq) {
  if (impl_->on_wait_durable) impl_->on_wait_durable(seq);
  absl::MutexLock lock(&impl_->mu);
  if (impl_->durable >= seq) return absl::OkStatus();
  if (!impl_->failure.ok()) return impl_->failure;
  impl_->durable = seq;
  return absl::OkStatus();
}

void Pipeline::WhenDurable(Seq seq, DurableCallback done) { std::move(done)(WaitDurable(seq)); }

absl::Status Pipeline::WaitApplied(Seq seq) {
  SALIUS_RETURN_IF_ERROR(WaitDurable(seq));
  return impl_->ApplyTo(seq);
}

absl::Status Pipeline::WaitAppliedFor(Seq seq, int64_t) {
  {
    absl::MutexLock lock(&impl_->mu);
    if (impl_->disk_hangs && impl_->applied < seq) return absl::DeadlineExceededError("test");
  }
  return WaitApplied(seq);
}

// Only those who need it applied apply: patches stay as long as possible.
void Pipeline::TryApply() {}
bool Pipeline::ManyWait() const { return false; }

absl::Status Pipeline::Checkpoint() {
  const Seq target = watermarks().issued;
  SALIUS_RETURN_IF_ERROR(WaitApplied(target));
  const absl::Status synced = impl_->sink.SyncApplied();
  absl::MutexLock lock(&impl_->mu);
  ++impl_->syncs;
  if (!synced.ok()) return impl_->failure = synced;
  impl_->checkpoint = target;
  return absl::OkStatus();
}

absl::Status Pipeline::SyncNow() {
  const absl::Status synced = impl_->sink.SyncApplied();
  absl::MutexLock lock(&impl_->mu);
  ++impl_->syncs;
  if (!synced.ok()) impl_->failure = synced;
  return synced;
}

absl::StatusOr<FileId> Pipeline::NewFileId() {
  SALIUS_RETURN_IF_ERROR(health());
  absl::MutexLock lock(&impl_->mu);
  return impl_->next_id++;
}

Watermarks Pipeline::watermarks() const {
  absl::MutexLock lock(&impl_->mu);
  return {impl_->checkpoint, impl_->applied, impl_->durable, impl_->records.size()};
}

absl::Status Pipeline::health() const {
  absl::MutexLock lock(&impl_->mu);
  return impl_->failure;
}

PipelineStatus Pipeline::status() const {
  PipelineStatus status;
  status.marks = watermarks();
  return status;
}

absl::Status Pipeline::Stop() { return Checkpoint(); }

}  // namespace salius
