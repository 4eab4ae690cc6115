-- The mesh: tokens that admit a node, the nodes, and the reviews that end them. A
-- node is also an object (meshnodes.mesh.exeunt.dev): one transaction writes both.

CREATE TABLE bootstrap_tokens (
    id         text COLLATE "C" PRIMARY KEY,
    project    text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    hash       text NOT NULL,
    state      text COLLATE "C" NOT NULL CONSTRAINT bootstrap_tokens_state_check CHECK (state IN ('issued', 'consumed', 'expired', 'revoked')),
    created_at bigint NOT NULL,
    created_by text NOT NULL,
    expires_at bigint NOT NULL,
    ended_at   bigint NOT NULL DEFAULT 0,
    nonce      text COLLATE "C" CONSTRAINT bootstrap_tokens_nonce_key UNIQUE,
    node       text NOT NULL DEFAULT '',
    left_at    bigint NOT NULL DEFAULT 0,
    left_how   text NOT NULL DEFAULT ''
);
COMMENT ON TABLE bootstrap_tokens IS 'A token admits one node to one project, once. Ended tokens are deleted when a later one is made in their project, and with their namespace.';
COMMENT ON COLUMN bootstrap_tokens.id IS 'public; part of the token''s text';
COMMENT ON COLUMN bootstrap_tokens.project IS 'a namespace';
COMMENT ON COLUMN bootstrap_tokens.resource IS 'the provisioned resource it was made for; empty: made for a person';
COMMENT ON COLUMN bootstrap_tokens.hash IS 'SHA-256 of the secret part';
COMMENT ON COLUMN bootstrap_tokens.created_at IS 'Unix milliseconds, as all times here';
COMMENT ON COLUMN bootstrap_tokens.ended_at IS 'when its state stopped being issued; 0: it is issued';
COMMENT ON COLUMN bootstrap_tokens.nonce IS 'of the enrolment that consumed it';
COMMENT ON COLUMN bootstrap_tokens.node IS 'name of the node that it admitted';
COMMENT ON COLUMN bootstrap_tokens.left_at IS 'when that node left; 0: it has not';
COMMENT ON COLUMN bootstrap_tokens.left_how IS 'how it left, for people';

CREATE INDEX bootstrap_tokens_project_idx ON bootstrap_tokens (project, created_at, id);
CREATE INDEX bootstrap_tokens_resource_idx ON bootstrap_tokens (resource) WHERE resource <> '';

CREATE TABLE mesh_nodes (
    uid         text COLLATE "C" PRIMARY KEY,
    project     text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    token       text COLLATE "C" NOT NULL CONSTRAINT mesh_nodes_token_key UNIQUE,
    credential  bytea NOT NULL,
    enrolled_at bigint NOT NULL,
    last_seen   bigint NOT NULL,
    ready       boolean NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE mesh_nodes IS 'The nodes of the mesh. A node is registered while it has a row.';
COMMENT ON COLUMN mesh_nodes.uid IS 'of its object';
COMMENT ON COLUMN mesh_nodes.token IS 'bootstrap_tokens.id; unique: a token admits one node';
COMMENT ON COLUMN mesh_nodes.credential IS 'SHA-256 of its secret';
COMMENT ON COLUMN mesh_nodes.ready IS 'as in its object''s status';

CREATE TABLE mesh_node_reviews (
    uid          text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint
) WITH (fillfactor = 50);
COMMENT ON TABLE mesh_node_reviews IS 'Nodes that are to be reviewed: see package review for the columns, package mesh for the events.';

CREATE INDEX mesh_node_reviews_review_after_idx ON mesh_node_reviews (review_after);

CREATE FUNCTION mesh_enqueue_node(subject text, cause text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO mesh_node_reviews AS q (uid, review_after, review_count, event, created_at)
    SELECT n.uid, 0, 0, cause, (extract(epoch FROM now()) * 1000)::bigint
    FROM mesh_nodes n WHERE n.uid = subject
    ON CONFLICT (uid) DO UPDATE SET
        review_after = least(q.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END
$$;
COMMENT ON FUNCTION mesh_enqueue_node IS 'Puts a node under review; a review that has begun is repeated.';

CREATE FUNCTION mesh_track_object_deleting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mesh_enqueue_node(NEW.uid, 'deleting');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION mesh_track_object_deleting IS 'A node whose object is being deleted is drained.';
CREATE TRIGGER objects_mesh_deleting_track AFTER UPDATE OF deletion_time ON objects
    FOR EACH ROW WHEN (NEW.kind = 'meshnodes.mesh.exeunt.dev' AND NEW.deletion_time IS NOT NULL)
    EXECUTE FUNCTION mesh_track_object_deleting();

CREATE FUNCTION mesh_track_object_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM mesh_enqueue_node(OLD.uid, 'removed');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION mesh_track_object_removed IS 'A node whose object was removed by force is no longer a node.';
CREATE TRIGGER objects_mesh_removed_track AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'meshnodes.mesh.exeunt.dev')
    EXECUTE FUNCTION mesh_track_object_removed();

CREATE FUNCTION mesh_track_project_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM bootstrap_tokens WHERE project = OLD.name;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION mesh_track_project_removed IS 'Tokens are deleted with their project: a later one of the same name is another project.';
CREATE TRIGGER objects_project_removed_track AFTER DELETE ON objects
    FOR EACH ROW WHEN (OLD.kind = 'namespaces')
    EXECUTE FUNCTION mesh_track_project_removed();
