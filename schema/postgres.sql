-- The current schema. Written by `go generate ./schema`: do not edit.

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
    CONSTRAINT objects_kind_namespace_name_key UNIQUE (kind, namespace, name),
    CONSTRAINT objects_pkey PRIMARY KEY (id),
    CONSTRAINT objects_uid_key UNIQUE (uid)
);

COMMENT ON TABLE objects IS 'The objects that exist: a narrow head each. The body is in changes, at the head''s revision.';

COMMENT ON COLUMN objects.id IS 'the revision of its creation';

COMMENT ON COLUMN objects.kind IS 'storage name: deployments.apps';

COMMENT ON COLUMN objects.namespace IS 'empty: cluster-scoped';

COMMENT ON COLUMN objects.deletion_time IS 'Unix seconds; null: not being deleted';

CREATE TABLE owners (
    dependent bigint NOT NULL,
    owner_uid text COLLATE "C" NOT NULL,
    blocking boolean NOT NULL,
    controller boolean NOT NULL,
    CONSTRAINT owners_dependent_fkey FOREIGN KEY (dependent) REFERENCES objects(id) ON DELETE CASCADE,
    CONSTRAINT owners_pkey PRIMARY KEY (dependent, owner_uid)
);

CREATE INDEX owners_owner_uid_idx ON public.owners USING btree (owner_uid);

COMMENT ON TABLE owners IS 'metadata.ownerReferences of the objects that exist. The owner may not.';

COMMENT ON COLUMN owners.blocking IS 'blockOwnerDeletion';

CREATE TABLE revision (
    one integer NOT NULL,
    current bigint NOT NULL,
    compacted bigint NOT NULL,
    CONSTRAINT revision_one_check CHECK ((one = 1)),
    CONSTRAINT revision_pkey PRIMARY KEY (one)
) WITH (fillfactor=10);

COMMENT ON TABLE revision IS 'The counter of the object log: one row. Its lock is the lock for writing objects.';

COMMENT ON COLUMN revision.current IS 'the newest revision';

COMMENT ON COLUMN revision.compacted IS 'states before this revision are gone';
