-- Provisioned resources, their events, and the queues of the two loops that work
-- on them: the reconcile loop and the publisher.

CREATE TABLE provisioned_resources (
    id                          text COLLATE "C" PRIMARY KEY,
    project                     text COLLATE "C" NOT NULL,
    name                        text COLLATE "C" NOT NULL,
    blueprint_name              text NOT NULL,
    blueprint_version           text NOT NULL,
    credential                  text NOT NULL,
    parameters                  text NOT NULL,
    xr_api_version              text NOT NULL,
    xr_kind                     text NOT NULL,
    provider_config_api_version text NOT NULL,
    provider_config_kind        text NOT NULL,
    deadline                    bigint NOT NULL,
    request_digest              text NOT NULL,
    phase                       text NOT NULL
        CONSTRAINT provisioned_resources_status_check
        CHECK (phase IN ('Pending', 'Provisioning', 'Enrolling', 'Ready', 'Failed', 'Deregistering', 'Deprovisioning', 'Deleted')),
    phase_since                 bigint NOT NULL,
    token_id                    text NOT NULL,
    created_at                  bigint NOT NULL,
    converge_started_at         bigint NOT NULL,
    deletion_requested_at       bigint,
    round_token                 text NOT NULL,
    round_until                 bigint NOT NULL,
    CONSTRAINT provisioned_resources_deletion_requested_at_check
        CHECK ((deletion_requested_at IS NOT NULL) = (phase IN ('Deregistering', 'Deprovisioning', 'Deleted')))
);
COMMENT ON TABLE provisioned_resources IS 'Provisioned resources. Times are Unix milliseconds.';
COMMENT ON COLUMN provisioned_resources.parameters IS 'JSON';
COMMENT ON COLUMN provisioned_resources.deadline IS 'milliseconds';
COMMENT ON COLUMN provisioned_resources.token_id IS 'empty: none bound yet';
COMMENT ON COLUMN provisioned_resources.deletion_requested_at IS 'null: never';
COMMENT ON COLUMN provisioned_resources.round_token IS 'of the replica whose round it is; empty: none';

CREATE UNIQUE INDEX provisioned_resources_project_name_idx ON provisioned_resources (project, name) WHERE phase <> 'Deleted';
COMMENT ON INDEX provisioned_resources_project_name_idx IS 'A name is free again when the resource that had it is Deleted.';

CREATE TABLE provisioned_resource_outbox (
    sequence    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token       text COLLATE "C" NOT NULL CONSTRAINT provisioned_resource_outbox_token_key UNIQUE,
    resource_id text COLLATE "C" NOT NULL,
    event_type  text NOT NULL CONSTRAINT provisioned_resource_outbox_token_event_type_check CHECK (event_type IN (
        'broker.ProvisionedResourceRequested', 'broker.ProvisionedResourceReady', 'broker.ProvisionedResourceFailed',
        'broker.ProvisionedResourceDeleting', 'broker.ProvisionedResourceDeleted')),
    payload     text NOT NULL,
    occurred_at bigint NOT NULL
);
COMMENT ON TABLE provisioned_resource_outbox IS 'Events, in order for each resource: a transaction that adds one has locked its resource.';
COMMENT ON COLUMN provisioned_resource_outbox.token IS 'at most one event of each type in a life';
COMMENT ON COLUMN provisioned_resource_outbox.payload IS 'JSON';

CREATE INDEX provisioned_resource_outbox_resource_id_idx ON provisioned_resource_outbox (resource_id, sequence);

CREATE TABLE provisioned_resource_published (
    token text COLLATE "C" NOT NULL CONSTRAINT provisioned_resource_published_token_fkey REFERENCES provisioned_resource_outbox (token) ON DELETE CASCADE,
    sink  text COLLATE "C" NOT NULL,
    PRIMARY KEY (token, sink)
);
COMMENT ON TABLE provisioned_resource_published IS 'Which events have reached which sink.';

CREATE TABLE provisioned_resource_reviews (
    id           text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE provisioned_resource_reviews IS 'Resources that the reconcile loop must look at: see package review for the columns.';

CREATE INDEX provisioned_resource_reviews_review_after_idx ON provisioned_resource_reviews (review_after);

CREATE TABLE provisioned_resource_outbox_reviews (
    resource_id  text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE provisioned_resource_outbox_reviews IS 'Resources that have events to be published: see package review for the columns.';

CREATE INDEX provisioned_resource_outbox_reviews_review_after_idx ON provisioned_resource_outbox_reviews (review_after);

CREATE FUNCTION broker_enqueue(subject text, cause text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO provisioned_resource_reviews AS q (id, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (id) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;
COMMENT ON FUNCTION broker_enqueue IS 'Puts a resource under review by the reconcile loop; a review that has begun is repeated.';

CREATE FUNCTION broker_track_declaration() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM broker_enqueue(OLD.uid, 'declaration_removed');
    ELSIF TG_OP = 'INSERT' THEN
        PERFORM broker_enqueue(NEW.uid, 'declared');
    ELSE
        PERFORM broker_enqueue(NEW.uid, 'deletion_requested');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION broker_track_declaration IS 'The reconcile loop looks at a resource that is declared, is to be deleted, or whose object was removed without its finalizer. The loop itself writes the status of the object, so a status does not bring it back.';
CREATE TRIGGER objects_declared_track AFTER INSERT ON objects
    FOR EACH ROW WHEN (NEW.kind = 'provisionedresources.provisioning.exeunt.dev')
    EXECUTE FUNCTION broker_track_declaration();
CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'provisionedresources.provisioning.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION broker_track_declaration();
CREATE TRIGGER objects_declaration_removed_track AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'provisionedresources.provisioning.exeunt.dev')
    EXECUTE FUNCTION broker_track_declaration();

CREATE FUNCTION broker_track_resource() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM broker_enqueue(NEW.id, CASE TG_OP WHEN 'INSERT' THEN 'created' ELSE 'phase_changed' END);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION broker_track_resource IS 'The reconcile loop looks at once at a resource that is new or has reached another phase.';
CREATE TRIGGER provisioned_resources_created_track AFTER INSERT ON provisioned_resources
    FOR EACH ROW EXECUTE FUNCTION broker_track_resource();
CREATE TRIGGER provisioned_resources_phase_track AFTER UPDATE ON provisioned_resources
    FOR EACH ROW WHEN (NEW.phase <> OLD.phase) EXECUTE FUNCTION broker_track_resource();

CREATE FUNCTION broker_track_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO provisioned_resource_outbox_reviews AS q (resource_id, review_after, review_count, event, created_at)
    VALUES (NEW.resource_id, 0, 0, 'emitted', (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (resource_id) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION broker_track_outbox IS 'An event is published as soon as it is committed.';
CREATE TRIGGER provisioned_resource_outbox_track AFTER INSERT ON provisioned_resource_outbox
    FOR EACH ROW EXECUTE FUNCTION broker_track_outbox();
