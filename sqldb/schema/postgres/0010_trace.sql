CREATE FUNCTION gc_trace() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    traces jsonb := current_setting('exeunt.traces', true);
BEGIN
    NEW.traceparent := coalesce(traces ->> (to_jsonb(NEW) ->> TG_ARGV[0]), traces ->> '', NEW.traceparent);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION gc_trace IS 'Copies the trace of the transaction to a row that it enqueues. The setting exeunt.traces is an object in JSON: from the uid of an object that a client deletes (empty: all subjects) to a traceparent as in W3C Trace Context.';

ALTER TABLE gc_object_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_object_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_object_reviews_trace BEFORE INSERT OR UPDATE OF event ON gc_object_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('uid');

ALTER TABLE gc_admission_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_admission_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_admission_reviews_trace BEFORE INSERT OR UPDATE OF event ON gc_admission_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('uid');

ALTER TABLE gc_repository_review_queue ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_repository_review_queue.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_repository_review_queue_trace BEFORE INSERT OR UPDATE OF event ON gc_repository_review_queue
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('uid');

ALTER TABLE gc_manifest_review_queue ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_manifest_review_queue.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_manifest_review_queue_trace BEFORE INSERT OR UPDATE OF event ON gc_manifest_review_queue
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('manifest');

ALTER TABLE gc_blob_review_queue ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_blob_review_queue.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_blob_review_queue_trace BEFORE INSERT OR UPDATE OF event ON gc_blob_review_queue
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('digest');

ALTER TABLE gc_unlink_queue ADD COLUMN traceparent text;
COMMENT ON COLUMN gc_unlink_queue.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER gc_unlink_queue_trace BEFORE INSERT OR UPDATE OF event ON gc_unlink_queue
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('path');

ALTER TABLE mesh_node_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN mesh_node_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER mesh_node_reviews_trace BEFORE INSERT OR UPDATE OF event ON mesh_node_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('uid');

ALTER TABLE provisioned_resource_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN provisioned_resource_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER provisioned_resource_reviews_trace BEFORE INSERT OR UPDATE OF event ON provisioned_resource_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('id');

ALTER TABLE provisioned_resource_outbox_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN provisioned_resource_outbox_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER provisioned_resource_outbox_reviews_trace BEFORE INSERT OR UPDATE OF event ON provisioned_resource_outbox_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('resource_id');

ALTER TABLE quota_reviews ADD COLUMN traceparent text;
COMMENT ON COLUMN quota_reviews.traceparent IS 'the trace that enqueued the row; null: none';
CREATE TRIGGER quota_reviews_trace BEFORE INSERT OR UPDATE OF event ON quota_reviews
    FOR EACH ROW WHEN (coalesce(current_setting('exeunt.traces', true), '') <> '') EXECUTE FUNCTION gc_trace('uid');
