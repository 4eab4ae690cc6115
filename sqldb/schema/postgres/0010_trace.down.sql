-- loses the traces of work that waits in the queues: SELECT (SELECT count(traceparent) FROM gc_object_reviews) + (SELECT count(traceparent) FROM gc_admission_reviews) + (SELECT count(traceparent) FROM gc_repository_review_queue) + (SELECT count(traceparent) FROM gc_manifest_review_queue) + (SELECT count(traceparent) FROM gc_blob_review_queue) + (SELECT count(traceparent) FROM gc_unlink_queue) + (SELECT count(traceparent) FROM mesh_node_reviews) + (SELECT count(traceparent) FROM provisioned_resource_reviews) + (SELECT count(traceparent) FROM provisioned_resource_outbox_reviews) + (SELECT count(traceparent) FROM quota_reviews)

DROP TRIGGER gc_object_reviews_trace ON gc_object_reviews;
ALTER TABLE gc_object_reviews DROP COLUMN traceparent;
DROP TRIGGER gc_admission_reviews_trace ON gc_admission_reviews;
ALTER TABLE gc_admission_reviews DROP COLUMN traceparent;
DROP TRIGGER gc_repository_review_queue_trace ON gc_repository_review_queue;
ALTER TABLE gc_repository_review_queue DROP COLUMN traceparent;
DROP TRIGGER gc_manifest_review_queue_trace ON gc_manifest_review_queue;
ALTER TABLE gc_manifest_review_queue DROP COLUMN traceparent;
DROP TRIGGER gc_blob_review_queue_trace ON gc_blob_review_queue;
ALTER TABLE gc_blob_review_queue DROP COLUMN traceparent;
DROP TRIGGER gc_unlink_queue_trace ON gc_unlink_queue;
ALTER TABLE gc_unlink_queue DROP COLUMN traceparent;
DROP TRIGGER mesh_node_reviews_trace ON mesh_node_reviews;
ALTER TABLE mesh_node_reviews DROP COLUMN traceparent;
DROP TRIGGER provisioned_resource_reviews_trace ON provisioned_resource_reviews;
ALTER TABLE provisioned_resource_reviews DROP COLUMN traceparent;
DROP TRIGGER provisioned_resource_outbox_reviews_trace ON provisioned_resource_outbox_reviews;
ALTER TABLE provisioned_resource_outbox_reviews DROP COLUMN traceparent;
DROP TRIGGER quota_reviews_trace ON quota_reviews;
ALTER TABLE quota_reviews DROP COLUMN traceparent;
DROP FUNCTION gc_trace;
