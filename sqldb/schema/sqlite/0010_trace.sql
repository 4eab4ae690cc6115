CREATE TABLE trace_marks (
    -- Which trace the current transaction belongs to. A transaction adds rows and deletes
    -- them again, so other transactions never see one. The triggers below copy the
    -- trace to the rows that the transaction enqueues.
    subject     TEXT PRIMARY KEY, -- uid of an object that a client deletes; empty: all subjects
    traceparent TEXT NOT NULL     -- as in W3C Trace Context
) STRICT, WITHOUT ROWID;

ALTER TABLE gc_object_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_object_reviews_trace_insert AFTER INSERT ON gc_object_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_object_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_object_reviews_trace_update AFTER UPDATE OF event ON gc_object_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_object_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

ALTER TABLE gc_admission_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_admission_reviews_trace_insert AFTER INSERT ON gc_admission_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_admission_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_admission_reviews_trace_update AFTER UPDATE OF event ON gc_admission_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_admission_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

ALTER TABLE gc_repository_review_queue ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_repository_review_queue_trace_insert AFTER INSERT ON gc_repository_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_repository_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER gc_repository_review_queue_trace_update AFTER UPDATE OF event ON gc_repository_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_repository_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

ALTER TABLE gc_manifest_review_queue ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_manifest_review_queue_trace_insert AFTER INSERT ON gc_manifest_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_manifest_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.manifest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE manifest = NEW.manifest;
END;

CREATE TRIGGER gc_manifest_review_queue_trace_update AFTER UPDATE OF event ON gc_manifest_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_manifest_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.manifest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE manifest = NEW.manifest;
END;

ALTER TABLE gc_blob_review_queue ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_blob_review_queue_trace_insert AFTER INSERT ON gc_blob_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_blob_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.digest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE digest = NEW.digest;
END;

CREATE TRIGGER gc_blob_review_queue_trace_update AFTER UPDATE OF event ON gc_blob_review_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_blob_review_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.digest), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE digest = NEW.digest;
END;

ALTER TABLE gc_unlink_queue ADD COLUMN traceparent TEXT;

CREATE TRIGGER gc_unlink_queue_trace_insert AFTER INSERT ON gc_unlink_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_unlink_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.path), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE path = NEW.path;
END;

CREATE TRIGGER gc_unlink_queue_trace_update AFTER UPDATE OF event ON gc_unlink_queue
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE gc_unlink_queue SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.path), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE path = NEW.path;
END;

ALTER TABLE mesh_node_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER mesh_node_reviews_trace_insert AFTER INSERT ON mesh_node_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE mesh_node_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER mesh_node_reviews_trace_update AFTER UPDATE OF event ON mesh_node_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE mesh_node_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

ALTER TABLE provisioned_resource_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER provisioned_resource_reviews_trace_insert AFTER INSERT ON provisioned_resource_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE id = NEW.id;
END;

CREATE TRIGGER provisioned_resource_reviews_trace_update AFTER UPDATE OF event ON provisioned_resource_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE id = NEW.id;
END;

ALTER TABLE provisioned_resource_outbox_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER provisioned_resource_outbox_reviews_trace_insert AFTER INSERT ON provisioned_resource_outbox_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_outbox_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.resource_id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE resource_id = NEW.resource_id;
END;

CREATE TRIGGER provisioned_resource_outbox_reviews_trace_update AFTER UPDATE OF event ON provisioned_resource_outbox_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE provisioned_resource_outbox_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.resource_id), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE resource_id = NEW.resource_id;
END;

ALTER TABLE quota_reviews ADD COLUMN traceparent TEXT;

CREATE TRIGGER quota_reviews_trace_insert AFTER INSERT ON quota_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE quota_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;

CREATE TRIGGER quota_reviews_trace_update AFTER UPDATE OF event ON quota_reviews
WHEN EXISTS (SELECT 1 FROM trace_marks)
BEGIN
    UPDATE quota_reviews SET traceparent = coalesce(
        (SELECT traceparent FROM trace_marks WHERE subject = NEW.uid), (SELECT traceparent FROM trace_marks WHERE subject = ''), traceparent)
    WHERE uid = NEW.uid;
END;
