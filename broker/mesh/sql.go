package mesh

// All statements of the package, on its tables, the same on both engines. A transaction that
// writes tokens, or inserts or deletes nodes, holds the lock on the revision
// (store.Transact); a heartbeat locks only its own row.

const tokenColumns = `id, project, resource, hash, state, created_at, created_by, expires_at, ended_at, coalesce(nonce, ''), node, left_at, left_how`

const (
	tokenByID    = `SELECT ` + tokenColumns + ` FROM bootstrap_tokens WHERE id = $1`
	stateOfToken = `SELECT state FROM bootstrap_tokens WHERE id = $1`
	tokenOfNonce = `SELECT id FROM bootstrap_tokens WHERE nonce = $1`

	// tokensOf reads the index on project backwards.
	tokensOf = `
SELECT ` + tokenColumns + ` FROM bootstrap_tokens WHERE $1 = '' OR project = $1
ORDER BY created_at DESC, id LIMIT $2`

	insertToken = `
INSERT INTO bootstrap_tokens (id, project, resource, hash, state, created_at, created_by, expires_at)
VALUES ($1, $2, $3, $4, 'issued', $5, $6, $7)`

	// endToken gives an issued token a final state. Final states never change.
	endToken = `UPDATE bootstrap_tokens SET state = $2, ended_at = $3 WHERE id = $1 AND state = 'issued'`

	// revokeOfResource revokes the tokens that a new one replaces, and also
	// issued tokens that have expired: both states are final.
	revokeOfResource = `
UPDATE bootstrap_tokens SET state = 'revoked', ended_at = $2
WHERE resource = $1 AND resource <> '' AND state = 'issued'`

	// consumeToken returns a row if it changed one: the token was still issued.
	consumeToken = `
UPDATE bootstrap_tokens SET state = 'consumed', ended_at = $2, nonce = $3, node = $4
WHERE id = $1 AND state = 'issued' RETURNING id`

	// leaveToken records on a token how its node left.
	leaveToken = `UPDATE bootstrap_tokens SET left_at = $2, left_how = $3 WHERE id = $1`

	// pruneTokens removes tokens that ended long ago. The last token of a
	// resource stays: the broker may read its state while the resource exists.
	// A token whose node is registered stays too.
	pruneTokens = `
DELETE FROM bootstrap_tokens
WHERE project = $1 AND created_at < $2 AND expires_at < $2 AND ended_at < $2 AND left_at < $2
    AND NOT EXISTS (SELECT 1 FROM mesh_nodes n WHERE n.token = bootstrap_tokens.id)
    AND (resource = '' OR EXISTS (
        SELECT 1 FROM bootstrap_tokens later
        WHERE later.resource = bootstrap_tokens.resource AND later.resource <> '' AND later.created_at > bootstrap_tokens.created_at))`
)

const nodeColumns = `uid, project, name, token, credential, enrolled_at, last_seen, ready`

const (
	nodeByUID   = `SELECT ` + nodeColumns + ` FROM mesh_nodes WHERE uid = $1`
	nodeByToken = `SELECT ` + nodeColumns + ` FROM mesh_nodes WHERE token = $1`

	// nodeOfResource finds a registered node that used any token of a resource.
	nodeOfResource = `
SELECT n.name FROM bootstrap_tokens t JOIN mesh_nodes n ON n.token = t.id
WHERE t.resource = $1 AND t.resource <> '' LIMIT 1`

	insertNode = `
INSERT INTO mesh_nodes (uid, project, name, token, credential, enrolled_at, last_seen, ready)
VALUES ($1, $2, $3, $4, $5, $6, $6, $7)`

	deleteNode = `DELETE FROM mesh_nodes WHERE uid = $1`

	// setReady waits for a concurrent heartbeat, then finds a newer last_seen
	// and changes nothing.
	setReady = `UPDATE mesh_nodes SET ready = $2 WHERE uid = $1 AND last_seen = $3 RETURNING uid`

	// seen records a heartbeat, if the node is registered. Clocks of replicas
	// differ: the newest time wins.
	seen = `
UPDATE mesh_nodes SET last_seen = CASE WHEN last_seen < $2 THEN $2 ELSE last_seen END
WHERE uid = $1 RETURNING ready`
)
