-- The current schema. Written by `go generate ./schema`: do not edit.

CREATE OR REPLACE FUNCTION public.gc_enqueue_object(subject text, cause text)
 RETURNS void
 LANGUAGE sql
AS $function$
    INSERT INTO gc_object_reviews AS q (uid, review_after, review_count, event, created_at)
    VALUES (subject, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint)
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL
$function$;

CREATE OR REPLACE FUNCTION public.gc_track_object_deleting()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NEW.finalizing <> 0 THEN
        PERFORM gc_enqueue_object(NEW.uid, 'deleting');
    END IF;
    IF NEW.namespace <> '' THEN
        PERFORM gc_enqueue_object(n.uid, 'content_changed') FROM objects n
        WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = NEW.namespace AND n.deletion_time IS NOT NULL;
    END IF;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION public.gc_track_object_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF EXISTS (SELECT 1 FROM owners WHERE owner_uid = OLD.uid) THEN
        PERFORM gc_enqueue_object(OLD.uid, 'owner_removed');
    END IF;
    IF OLD.namespace <> '' THEN
        PERFORM gc_enqueue_object(n.uid, 'content_removed') FROM objects n
        WHERE n.kind = 'namespaces' AND n.namespace = '' AND n.name = OLD.namespace AND n.deletion_time IS NOT NULL;
    END IF;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION public.gc_track_owner_added()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
DECLARE
    owner objects%ROWTYPE;
BEGIN
    SELECT * INTO owner FROM objects WHERE uid = NEW.owner_uid;
    IF NOT FOUND OR owner.deletion_time IS NOT NULL AND owner.finalizing & 2 <> 0 THEN
        PERFORM gc_enqueue_object(NEW.owner_uid, 'owner_absent');
    ELSIF owner.namespace <> '' THEN
        PERFORM gc_enqueue_object(d.uid, 'owner_foreign') FROM objects d
        WHERE d.id = NEW.dependent AND d.namespace <> owner.namespace;
    END IF;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION public.gc_track_owner_removed()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    PERFORM gc_enqueue_object(o.uid, 'dependent_removed') FROM objects o
    WHERE o.uid = OLD.owner_uid AND o.deletion_time IS NOT NULL AND o.finalizing & 2 <> 0;
    RETURN NULL;
END
$function$;

CREATE TABLE archive (
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    body_revision bigint,
    removed_at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    cascade text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    CONSTRAINT archive_pkey PRIMARY KEY (id)
);

CREATE INDEX archive_cascade_idx ON public.archive USING btree (cascade) WHERE (cascade <> uid);

CREATE INDEX archive_namespace_removed_at_idx ON public.archive USING btree (namespace, removed_at);

CREATE INDEX archive_namespaces_idx ON public.archive USING btree (name) WHERE (kind = 'namespaces'::text);

CREATE INDEX archive_uid_idx ON public.archive USING btree (uid);

COMMENT ON TABLE archive IS 'The objects that were removed, until they expire. The body stays where it was, in changes: compaction leaves it while a row here points at it.';

COMMENT ON COLUMN archive.id IS 'the revision of the removal';

COMMENT ON COLUMN archive.namespace IS 'empty: cluster-scoped; a Namespace is in itself';

COMMENT ON COLUMN archive.body_revision IS 'changes.revision of the last body; null: not kept (Secrets)';

COMMENT ON COLUMN archive.removed_at IS 'Unix milliseconds';

COMMENT ON COLUMN archive.actor IS 'who asked for the deletion';

COMMENT ON COLUMN archive.cascade IS 'uid of the object whose deletion was the cause, or an id of a request''s own';

COMMENT ON COLUMN archive.size IS 'bytes of the body';

CREATE TABLE changes (
    revision bigint NOT NULL,
    object bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    type integer NOT NULL,
    previous bigint,
    body bytea,
    CONSTRAINT changes_pkey PRIMARY KEY (revision),
    CONSTRAINT changes_type_check CHECK ((type = ANY (ARRAY[1, 2, 3])))
);

CREATE INDEX changes_kind_revision_idx ON public.changes USING btree (kind, revision);

COMMENT ON TABLE changes IS 'The log: every change to every object, until compaction.';

COMMENT ON COLUMN changes.object IS 'objects.id, also after the object is gone';

COMMENT ON COLUMN changes.type IS '1 created, 2 updated, 3 removed';

COMMENT ON COLUMN changes.previous IS 'revision of the state before; null: created';

COMMENT ON COLUMN changes.body IS 'null: removed; the last body is at previous';

CREATE TABLE gc_object_reviews (
    uid text COLLATE "C" NOT NULL,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event text NOT NULL,
    created_at bigint NOT NULL,
    last_error text,
    claim_token text,
    claim_until bigint,
    CONSTRAINT gc_object_reviews_pkey PRIMARY KEY (uid)
);

CREATE INDEX gc_object_reviews_review_after_idx ON public.gc_object_reviews USING btree (review_after);

COMMENT ON TABLE gc_object_reviews IS 'Objects, and uids of objects that are gone, that the collector must look at: see package review for the columns, package gc for the events.';

CREATE TABLE gc_state (
    one integer NOT NULL,
    paused boolean NOT NULL,
    reason text NOT NULL,
    CONSTRAINT gc_state_one_check CHECK ((one = 1)),
    CONSTRAINT gc_state_pkey PRIMARY KEY (one)
);

COMMENT ON TABLE gc_state IS 'The collector''s persisted switch: one row.';

CREATE TABLE migrations (
    number integer NOT NULL,
    name text NOT NULL,
    CONSTRAINT migrations_pkey PRIMARY KEY (number)
);

CREATE TABLE objects (
    id bigint NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    deletion_time bigint,
    grace_seconds bigint,
    finalizing integer DEFAULT 0 NOT NULL,
    deletion_actor text COLLATE "C",
    deletion_cascade text COLLATE "C",
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name),
    CONSTRAINT objects_pkey PRIMARY KEY (id),
    CONSTRAINT objects_uid_key UNIQUE (uid)
);

CREATE TRIGGER objects_deleting_track AFTER UPDATE ON public.objects FOR EACH ROW WHEN ((new.deletion_time IS NOT NULL)) EXECUTE FUNCTION gc_track_object_deleting();

CREATE TRIGGER objects_removed_track AFTER DELETE ON public.objects FOR EACH ROW EXECUTE FUNCTION gc_track_object_removed();

COMMENT ON TABLE objects IS 'The objects that exist: a narrow head each. The body is in changes, at the head''s revision.';

COMMENT ON COLUMN objects.id IS 'the revision of its creation';

COMMENT ON COLUMN objects.kind IS 'storage name: deployments.apps';

COMMENT ON COLUMN objects.namespace IS 'empty: cluster-scoped';

COMMENT ON COLUMN objects.deletion_time IS 'Unix seconds; null: not being deleted';

COMMENT ON COLUMN objects.finalizing IS 'what of the collector a DELETING object waits for: 1 orphan its dependents, 2 delete them first, 4 empty the namespace';

COMMENT ON COLUMN objects.deletion_actor IS 'who asked for the deletion of a DELETING object';

COMMENT ON COLUMN objects.deletion_cascade IS 'the cascade that a DELETING object goes with; null: its own, named by its uid';

CREATE TABLE owners (
    dependent bigint NOT NULL,
    owner_uid text COLLATE "C" NOT NULL,
    blocking boolean NOT NULL,
    controller boolean NOT NULL,
    CONSTRAINT owners_dependent_fkey FOREIGN KEY (dependent) REFERENCES objects(id) ON DELETE CASCADE,
    CONSTRAINT owners_pkey PRIMARY KEY (dependent, owner_uid)
);

CREATE INDEX owners_owner_uid_dependent_idx ON public.owners USING btree (owner_uid, dependent);

CREATE TRIGGER owners_added_track AFTER INSERT ON public.owners FOR EACH ROW EXECUTE FUNCTION gc_track_owner_added();

CREATE TRIGGER owners_removed_track AFTER DELETE ON public.owners FOR EACH ROW WHEN (old.blocking) EXECUTE FUNCTION gc_track_owner_removed();

COMMENT ON TABLE owners IS 'metadata.ownerReferences of the objects that exist. The owner may not.';

COMMENT ON COLUMN owners.blocking IS 'blockOwnerDeletion';

CREATE TABLE revision (
    one integer NOT NULL,
    current bigint NOT NULL,
    compacted bigint NOT NULL,
    archived bigint DEFAULT 0 NOT NULL,
    CONSTRAINT revision_one_check CHECK ((one = 1)),
    CONSTRAINT revision_pkey PRIMARY KEY (one)
) WITH (fillfactor=10);

COMMENT ON TABLE revision IS 'The counter of the object log: one row. Its lock is the lock for writing objects.';

COMMENT ON COLUMN revision.current IS 'the newest revision';

COMMENT ON COLUMN revision.compacted IS 'states before this revision are gone';

COMMENT ON COLUMN revision.archived IS 'bytes of the bodies that the archive holds: kept here because every write changes this row anyway';
