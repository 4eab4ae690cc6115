package sqlbroker

// All statements of the package, the same on both engines.

// find and get use the primary key.
const (
	find = `SELECT id FROM provisioned_resources WHERE id = $1`
	get  = `
SELECT id, project, name, blueprint_name, blueprint_version, credential, parameters,
    xr_api_version, xr_kind, provider_config_api_version, provider_config_kind,
    deadline, request_digest, phase, phase_since, token_id, created_at, converge_started_at,
    coalesce(deletion_requested_at, 0)
FROM provisioned_resources WHERE id = $1`
)

// insert returns nothing if the id is stored or the name is taken.
const insert = `
INSERT INTO provisioned_resources (
    id, project, name, blueprint_name, blueprint_version, credential, parameters,
    xr_api_version, xr_kind, provider_config_api_version, provider_config_kind,
    deadline, request_digest, phase, phase_since, token_id, created_at, converge_started_at,
    round_token, round_until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, '', 0)
ON CONFLICT DO NOTHING
RETURNING id`

// updatePhase compares and writes. It cannot enter or leave teardown: the
// table's CHECK ties phase and deletion_requested_at together.
const updatePhase = `
UPDATE provisioned_resources SET phase = $3, converge_started_at = $4, phase_since = $5
WHERE id = $1 AND phase = $2
RETURNING id`

// bindToken compares and writes.
const bindToken = `
UPDATE provisioned_resources SET token_id = $3
WHERE id = $1 AND token_id = $2 AND deletion_requested_at IS NULL
RETURNING id`

// requestDeletion is the only statement that writes deletion_requested_at, once
// in a resource's life. If updatePhase wrote the column, every other move would
// have to carry its value along.
const requestDeletion = `
UPDATE provisioned_resources SET phase = $2, deletion_requested_at = $3, phase_since = $4
WHERE id = $1 AND deletion_requested_at IS NULL
RETURNING id`

// lockInPhase changes nothing; it locks the row if the resource is in the
// phase.
const lockInPhase = `
UPDATE provisioned_resources SET request_digest = request_digest
WHERE id = $1 AND phase = $2
RETURNING id`

// insertEvent stores an event at most once.
const insertEvent = `
INSERT INTO provisioned_resource_outbox (token, resource_id, event_type, payload, occurred_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (token) DO NOTHING`

// beginRound takes the lease if it is free or expired; endRound gives it back.
const (
	beginRound = `
UPDATE provisioned_resources SET round_token = $2, round_until = $3
WHERE id = $1 AND (round_token = '' OR round_until <= $4)
RETURNING id`
	endRound = `
UPDATE provisioned_resources SET round_token = '', round_until = 0
WHERE id = $1 AND round_token = $2`
)

// roundHolder reads the token of the process that holds the lease; empty means none.
const roundHolder = `SELECT round_token FROM provisioned_resources WHERE id = $1`

// pending lists the events that a sink does not have yet, in order, by the
// index on resource_id and sequence.
const pending = `
SELECT o.token, o.event_type, o.payload FROM provisioned_resource_outbox o
WHERE o.resource_id = $1 AND NOT EXISTS (
    SELECT 1 FROM provisioned_resource_published p WHERE p.token = o.token AND p.sink = $2)
ORDER BY o.sequence`

// markPublished is idempotent.
const markPublished = `
INSERT INTO provisioned_resource_published (token, sink) VALUES ($1, $2)
ON CONFLICT DO NOTHING`

// removeDeleted removes a Deleted resource if all its events are published;
// removeEvents then removes its events, and their marks by cascade.
const (
	removeDeleted = `
DELETE FROM provisioned_resources
WHERE id = $1 AND phase = 'Deleted' AND NOT EXISTS (
    SELECT 1 FROM provisioned_resource_outbox_reviews q WHERE q.resource_id = provisioned_resources.id)
RETURNING id`
	removeEvents = `DELETE FROM provisioned_resource_outbox WHERE resource_id = $1`
)

// kindsInUse reads all resources: there are few.
const kindsInUse = `
SELECT xr_api_version, xr_kind FROM provisioned_resources WHERE phase <> 'Deleted'
UNION
SELECT provider_config_api_version, provider_config_kind FROM provisioned_resources WHERE phase <> 'Deleted'`

// makeDue does what the triggers do when a resource changes: it takes the claim
// of a running round away, because that round may have observed before the
// change. A resource that is not under review stays so: it has failed, or is
// not ours.
const makeDue = `
UPDATE provisioned_resource_reviews SET
    review_after = CASE WHEN review_after < $2 THEN review_after ELSE $2 END,
    event = 'substrate_changed', claim_token = NULL, claim_until = NULL
WHERE id = $1 AND (claim_token IS NOT NULL OR review_after > $2)`
