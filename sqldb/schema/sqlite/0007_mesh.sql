-- The mesh: tokens that admit a node, the nodes, and the reviews that end them. A
-- node is also an object (meshnodes.mesh.exeunt.dev): one transaction writes both.

CREATE TABLE bootstrap_tokens (
    -- A token admits one node to one project, once. Ended tokens are deleted when
    -- a later one is made in their project, and with their namespace.
    id         TEXT PRIMARY KEY,              -- public; part of the token's text
    project    TEXT NOT NULL,                 -- a namespace
    resource   TEXT NOT NULL,                 -- the provisioned resource it was made for; empty: made for a person
    hash       TEXT NOT NULL,                 -- SHA-256 of the secret part
    state      TEXT NOT NULL CONSTRAINT bootstrap_tokens_state_check CHECK (state IN ('issued', 'consumed', 'expired', 'revoked')),
    created_at INTEGER NOT NULL,              -- Unix milliseconds, as all times here
    created_by TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL DEFAULT 0,    -- when its state stopped being issued; 0: it is issued
    nonce      TEXT CONSTRAINT bootstrap_tokens_nonce_key UNIQUE, -- of the enrolment that consumed it
    node       TEXT NOT NULL DEFAULT '',      -- name of the node that it admitted
    left_at    INTEGER NOT NULL DEFAULT 0,    -- when that node left; 0: it has not
    left_how   TEXT NOT NULL DEFAULT ''       -- how it left, for people
) STRICT;

CREATE INDEX bootstrap_tokens_project_idx ON bootstrap_tokens (project, created_at, id);
CREATE INDEX bootstrap_tokens_resource_idx ON bootstrap_tokens (resource) WHERE resource <> '';

CREATE TABLE mesh_nodes (
    -- The nodes of the mesh. A node is registered while it has a row.
    uid         TEXT PRIMARY KEY,             -- of its object
    project     TEXT NOT NULL,
    name        TEXT NOT NULL,
    token       TEXT NOT NULL CONSTRAINT mesh_nodes_token_key UNIQUE, -- bootstrap_tokens.id; unique: a token admits one node
    credential  BLOB NOT NULL,                -- SHA-256 of its secret
    enrolled_at INTEGER NOT NULL,
    last_seen   INTEGER NOT NULL,
    ready       INTEGER NOT NULL CONSTRAINT mesh_nodes_ready_check CHECK (ready IN (0, 1)) -- as in its object's status
) STRICT;

CREATE TABLE mesh_node_reviews (
    -- Nodes that are to be reviewed: see package review for the columns,
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

CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON objects
-- A node whose object is being deleted is drained.
WHEN NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'deleting', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = NEW.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_mesh_removed_track AFTER DELETE ON objects
-- A node whose object was removed by force is no longer a node.
WHEN OLD.kind = 'meshnodes.mesh.exeunt.dev'
BEGIN
    INSERT INTO mesh_node_reviews (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, 'removed', CAST(unixepoch('subsec') * 1000 AS INTEGER)
    FROM mesh_nodes n WHERE n.uid = OLD.uid
    ON CONFLICT (uid) DO UPDATE SET
        review_after = min(mesh_node_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;

CREATE TRIGGER objects_project_removed_track AFTER DELETE ON objects
-- Tokens are deleted with their project: a later one of the same name is another
-- project.
WHEN OLD.kind = 'namespaces'
BEGIN
    DELETE FROM bootstrap_tokens WHERE project = OLD.name;
END;
