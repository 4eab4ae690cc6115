-- Provisioned resources, their events, and the queues of the two loops that work
-- on them: the reconcile loop and the publisher.

CREATE TABLE provisioned_resources (
    id                          TEXT PRIMARY KEY,
    project                     TEXT NOT NULL,
    name                        TEXT NOT NULL,
    blueprint_name              TEXT NOT NULL,
    blueprint_version           TEXT NOT NULL,
    credential                  TEXT NOT NULL,
    parameters                  TEXT NOT NULL, -- JSON
    xr_api_version              TEXT NOT NULL,
    xr_kind                     TEXT NOT NULL,
    provider_config_api_version TEXT NOT NULL,
    provider_config_kind        TEXT NOT NULL,
    deadline                    INTEGER NOT NULL, -- milliseconds
    request_digest              TEXT NOT NULL,
    phase                       TEXT NOT NULL
        CONSTRAINT provisioned_resources_status_check
        CHECK (phase IN ('Pending', 'Provisioning', 'Enrolling', 'Ready', 'Failed', 'Deregistering', 'Deprovisioning', 'Deleted')),
    phase_since                 INTEGER NOT NULL, -- Unix milliseconds
    token_id                    TEXT NOT NULL,    -- empty: none bound yet
    created_at                  INTEGER NOT NULL, -- Unix milliseconds
    converge_started_at         INTEGER NOT NULL, -- Unix milliseconds
    deletion_requested_at       INTEGER,          -- Unix milliseconds; null: never
    round_token                 TEXT NOT NULL,    -- of the replica whose round it is; empty: none
    round_until                 INTEGER NOT NULL, -- Unix milliseconds
    CONSTRAINT provisioned_resources_deletion_requested_at_check
        CHECK ((deletion_requested_at IS NOT NULL) = (phase IN ('Deregistering', 'Deprovisioning', 'Deleted')))
) STRICT;

CREATE UNIQUE INDEX provisioned_resources_project_name_idx
    -- A name is free again when the resource that had it is Deleted.
    ON provisioned_resources (project, name) WHERE phase <> 'Deleted';

CREATE TABLE provisioned_resource_outbox (
    -- Events, in order for each resource.
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,
    token       TEXT NOT NULL CONSTRAINT provisioned_resource_outbox_token_key UNIQUE, -- at most one event of each type in a life
    resource_id TEXT NOT NULL,
    event_type  TEXT NOT NULL CONSTRAINT provisioned_resource_outbox_token_event_type_check CHECK (event_type IN (
        'broker.ProvisionedResourceRequested', 'broker.ProvisionedResourceReady', 'broker.ProvisionedResourceFailed',
        'broker.ProvisionedResourceDeleting', 'broker.ProvisionedResourceDeleted')),
    payload     TEXT NOT NULL,    -- JSON
    occurred_at INTEGER NOT NULL  -- Unix milliseconds
) STRICT;

CREATE INDEX provisioned_resource_outbox_resource_id_idx ON provisioned_resource_outbox (resource_id, sequence);

CREATE TABLE provisioned_resource_published (
    -- Which events have reached which sink.
    token TEXT NOT NULL CONSTRAINT provisioned_resource_published_token_fkey REFERENCES provisioned_resource_outbox (token) ON DELETE CASCADE,
    sink  TEXT NOT NULL,
    PRIMARY KEY (token, sink)
) STRICT, WITHOUT ROWID;

CREATE TABLE provisioned_resource_reviews (
    -- Resources that the reconcile loop must look at: see package review for the columns.
    id           TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX provisioned_resource_reviews_review_after_idx ON provisioned_resource_reviews (review_after);

CREATE TABLE provisioned_resource_outbox_reviews (
    -- Resources that have events to be published: see package review.
    resource_id  TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL, -- Unix milliseconds
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL, -- Unix milliseconds
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER           -- Unix milliseconds
) STRICT;

CREATE INDEX provisioned_resource_outbox_reviews_review_after_idx ON provisioned_resource_outbox_reviews (review_after);

CREATE TRIGGER objects_declared_track AFTER INSERT ON objects
-- The reconcile loop looks at a resource that is declared, is to be deleted, or
-- whose object was removed without its finalizer. The loop itself writes the
-- status of the object, so a status does not bring it back.
WHEN NEW.kind = 'provisionedresources.provisioning.exeunt.dev'
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'declared', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_undeclared_track AFTER UPDATE OF deletion_time ON objects
-- As objects_declared_track.
WHEN NEW.kind = 'provisionedresources.provisioning.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.uid, 0, 0, 'deletion_requested', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_declaration_removed_track AFTER DELETE ON objects
-- As objects_declared_track.
WHEN OLD.kind = 'provisionedresources.provisioning.exeunt.dev'
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (OLD.uid, 0, 0, 'declaration_removed', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER provisioned_resources_created_track AFTER INSERT ON provisioned_resources
-- The loop looks at once at a resource that is new or has reached another phase.
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.id, 0, 0, 'created', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER provisioned_resources_phase_track AFTER UPDATE ON provisioned_resources
WHEN NEW.phase <> OLD.phase
BEGIN
    INSERT INTO provisioned_resource_reviews (id, review_after, review_count, event, created_at)
    VALUES (NEW.id, 0, 0, 'phase_changed', unixepoch() * 1000)
    ON CONFLICT (id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER provisioned_resource_outbox_track AFTER INSERT ON provisioned_resource_outbox
-- An event is published as soon as it is committed.
BEGIN
    INSERT INTO provisioned_resource_outbox_reviews (resource_id, review_after, review_count, event, created_at)
    VALUES (NEW.resource_id, 0, 0, 'emitted', unixepoch() * 1000)
    ON CONFLICT (resource_id) DO UPDATE SET
        review_after = min(review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;
