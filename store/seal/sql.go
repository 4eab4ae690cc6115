package seal

// The statements about sealed bodies, the same on both engines.

// lockRevision is the lock of every write of the store.
const lockRevision = `SELECT 1 FROM revision FOR UPDATE`

const (
	readSealKeys  = `SELECT name, check_value, sealing FROM seal_keys ORDER BY name`
	insertSealKey = `INSERT INTO seal_keys (name, check_value) VALUES ($1, $2)`
	deleteSealKey = `DELETE FROM seal_keys WHERE name = $1`

	// readSealingKey is read under the lock on the revision by every transaction
	// that may seal, so all replicas seal with the same key.
	readSealingKey = `SELECT name FROM seal_keys WHERE sealing`
	endSealing     = `UPDATE seal_keys SET sealing = (1 = 0) WHERE sealing`
	beginSealing   = `UPDATE seal_keys SET sealing = (1 = 1) WHERE name = $1`

	readSealedKinds  = `SELECT kind FROM sealed_kinds ORDER BY kind`
	insertSealedKind = `INSERT INTO sealed_kinds (kind) VALUES ($1) ON CONFLICT (kind) DO NOTHING`
	deleteSealedKind = `DELETE FROM sealed_kinds WHERE kind = $1`
)

// countSealed counts the bodies of a kind that begin with $2. Indexes:
// changes_kind_revision_idx, history_key_idx.
const countSealed = `
SELECT (SELECT count(*) FROM changes WHERE kind = $1 AND body IS NOT NULL AND substr(body, 1, $3) = $2)
    + (SELECT count(*) FROM history WHERE kind = $1 AND substr(body, 1, $3) = $2)`

// table has the statements about one table with bodies. unsealed reads those of a kind after a key that do not begin
// with $3, whose length is $4; sealed those that do.
type table struct {
	unsealed, sealed, replace string
	last                      bool
}

// The history comes first: a body that leaves changes meanwhile is sealed again on its way there.
var tables = [...]table{
	{
		unsealed: `
SELECT id, uid, namespace, name, body FROM history
WHERE kind = $1 AND id > $2 AND substr(body, 1, $4) <> $3 ORDER BY id LIMIT $5`,
		sealed: `
SELECT id, uid, namespace, name, body FROM history
WHERE kind = $1 AND id > $2 AND substr(body, 1, $4) = $3 ORDER BY id LIMIT $5`,
		replace: `UPDATE history SET body = $2 WHERE id = $1`,
	}, {
		unsealed: `
SELECT revision, uid, namespace, name, body FROM changes
WHERE kind = $1 AND revision > $2 AND body IS NOT NULL AND substr(body, 1, $4) <> $3
ORDER BY revision LIMIT $5`,
		sealed: `
SELECT revision, uid, namespace, name, body FROM changes
WHERE kind = $1 AND revision > $2 AND body IS NOT NULL AND substr(body, 1, $4) = $3
ORDER BY revision LIMIT $5`,
		replace: replaceBody,
		last:    true,
	},
}

const replaceBody = `UPDATE changes SET body = $2 WHERE revision = $1`

// forgetHistory gives up what a lost key has sealed: earlier versions leave, and states from before are refused.
const (
	forgetHistory = `DELETE FROM history WHERE kind = $1 AND substr(body, 1, $3) = $2`
	boundHistory  = `
INSERT INTO history_bounds AS b (kind, namespace, revision) SELECT CAST($1 AS text), '*', current FROM revision WHERE TRUE
ON CONFLICT (kind, namespace) DO UPDATE SET revision = excluded.revision`
	countHistory = `
UPDATE history_bounds SET bytes = (SELECT coalesce(sum(h.size), 0) FROM history h WHERE h.namespace = history_bounds.namespace)
WHERE kind = '' AND namespace <> '*'`
)

// readSealedWith reads the rows of a kind whose body begins with $2, and the head
// of those that are the current state of an object.
const readSealedWith = `
SELECT c.revision, c.uid, c.namespace, c.name, coalesce(o.id, 0), coalesce(o.deletion_time, 0), coalesce(o.grace_seconds, 0)
FROM changes c LEFT JOIN objects o ON o.uid = c.uid AND o.revision = c.revision
WHERE c.kind = $1 AND c.body IS NOT NULL AND substr(c.body, 1, $3) = $2
ORDER BY c.revision`

const readOwnersOf = `SELECT owner_uid, blocking, controller, owner_group, owner_kind, owner_name FROM owners WHERE dependent = $1 ORDER BY owner_uid`

// endFinalizing clears the bits of finalizers that the body no longer has.
const endFinalizing = `UPDATE objects SET finalizing = 0 WHERE id = $1 AND finalizing <> 0`
