-- The mesh: tokens that let a node in, the nodes that came, and the reviews
-- that see them out. A node is also an object (meshnodes.mesh.exeunt.dev): the
-- two are written in one transaction.

CREATE TABLE bootstrap_tokens (
    -- What lets one node into one project, once. Tokens that are over leave
    -- when a later one is made in their project, and with their namespace.
    id         TEXT PRIMARY KEY,              -- public; part of the token's text
    project    TEXT NOT NULL,                 -- a namespace
    resource   TEXT NOT NULL,                 -- the provisioned resource it was made for; empty: a person's
    hash       TEXT NOT NULL,                 -- Argon2id of the secret part
    state      TEXT NOT NULL CHECK (state IN ('issued', 'consumed', 'expired', 'revoked')),
    created_at INTEGER NOT NULL,              -- Unix milliseconds, as all times here
    created_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL DEFAULT 0,    -- when it ceased to be issued; 0: it is
    nonce      TEXT UNIQUE,                   -- of the enrolment that consumed it
    node       TEXT NOT NULL DEFAULT '',      -- name of the node that came by it
    left_at    INTEGER NOT NULL DEFAULT 0,    -- when that node left; 0: it has not
    left_how   TEXT NOT NULL DEFAULT ''       -- and how, in words
) STRICT;

CREATE INDEX bootstrap_tokens_project_idx ON bootstrap_tokens (project, created_at, id);
CREATE INDEX bootstrap_tokens_resource_idx ON bootstrap_tokens (resource) WHERE resource <> '';

CREATE TABLE mesh_nodes (
    -- The nodes of the mesh. One that is here is registered.
    uid         TEXT PRIMARY KEY,             -- of its object
    project     TEXT NOT NULL,
    name        TEXT NOT NULL,
    token       TEXT NOT NULL UNIQUE,         -- bootstrap_tokens.id; unique: a token lets in one node
    credential  BLOB NOT NULL,                -- SHA-256 of its secret
    enrolled_at INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    ready       INTEGER NOT NULL CHECK (ready IN (0, 1)) -- what its object says
) STRICT;

CREATE TABLE mesh_node_reviews (
    -- Nodes that are to be looked at: see package review for the columns,
    -- package mesh for the events.
    uid          TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER
) STRICT;

CREATE INDEX mesh_node_reviews_review_after_idx ON mesh_node_reviews (review_after);

-- A node whose object is being deleted, by whomever, is drained.
CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE ON objects
WHEN NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'deleting', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = NEW.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- One whose object was removed by force is no node any more.
CREATE TRIGGER objects_mesh_removed_track AFTER DELETE ON objects
WHEN OLD.kind = 'meshnodes.mesh.exeunt.dev'
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'removed', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

-- Tokens go with their project: one of the same name is another project.
CREATE TRIGGER objects_project_removed_track AFTER DELETE ON objects
WHEN OLD.kind = 'namespaces'
BEGIN
    DELETE FROM bootstrap_tokens WHERE project = OLD.name;
END;
