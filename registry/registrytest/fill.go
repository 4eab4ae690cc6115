package registrytest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// Filled is a registry with many images and without their bytes. Every image has a small config,
// nine layers of its own and one that all images share. Half of the images are in one repository.
type Filled struct{ blobs, repositories int }

// Fill fills an empty registry in a few statements. Ten blobs are one image, which has a tag.
func Fill(t testing.TB, db *sqldb.DB, blobs, repositories int) Filled {
	t.Helper()
	f := Filled{blobs, repositories}
	WithoutTriggers(t, db, func(b *sqldb.Batch) {
		b.Exec(statement.InsertNamespace, "r", 0)
		f.send(db.Engine(), b)
	})
	return f
}

// Images is the number of images.
func (f Filled) Images() int { return f.blobs / 10 }

// Large is the repository of the images with even numbers; Small is another one. Large has neither
// the lowest nor the highest id: the planner looks at the ends of indexes, where removed rows would
// cost it a random number of look-ups.
func (f Filled) Large() string { return fmt.Sprint("r/", f.repositories/2-1) }
func (f Filled) Small() string { return "r/0" }

// Image returns the number of an image in Large. It repeats when there are no more.
func (f Filled) Image(i int) int { return 2 * i % f.Images() }

// Tag returns the tag of an image.
func (f Filled) Tag(image int) string { return fmt.Sprint("t", image) }

// Config, Layer and Manifest return digests of an image. Layers count from 1.
func (f Filled) Config(image int) string       { return digestOf(10 * image) }
func (f Filled) Layer(image, layer int) string { return digestOf(10*image + layer) }
func (f Filled) Manifest(image int) string     { return digestOf(image + firstManifest) }

// Shared returns the digest of the layer that all images have.
func (f Filled) Shared() string { return digestOf(f.blobs) }

// Subject returns an image that every fourth image of Large refers to.
func (f Filled) Subject() int { return 0 }

// The digest of the i-th blob, or manifest, is as scattered as real ones are: neighbours in one
// index are far apart in another. {digest EXPRESSION} is the same in SQL.
const (
	firstManifest  = 1_000_000_000
	digestFormat   = `sha256:%08x%056x`
	scatter        = 2654435761 // odd, so no two digests are equal
	digestSQLite   = `printf('` + digestFormat + `', (${1}) * 2654435761 % 4294967296, ${1})`
	digestPostgres = `('sha256:' || lpad(to_hex((${1}) * 2654435761 % 4294967296), 8, '0') || lpad(to_hex(${1}), 56, '0'))`
)

func digestOf(i int) string { return fmt.Sprintf(digestFormat, i*scatter%(1<<32), i) }

var digestExpression = regexp.MustCompile(`\{digest ([^}]*)\}`)

// fillNumbers are the numbers i from 0 on; $1 is how many. fillRepository is the repository of the
// i-th image, fillBlobOwner that of the i-th blob; $2 is the number of repositories. In an empty
// table the i-th row gets the id i + 1.
const (
	fillNumbers    = ` WITH RECURSIVE n (i) AS (SELECT CAST(0 AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < CAST($1 AS bigint)) `
	fillRepository = `CASE WHEN i % 2 = 0 THEN CAST($2 AS bigint) / 2 ELSE 1 + i / 2 % CAST($2 AS bigint) END`
	fillBlobOwner  = `CASE WHEN i / 10 % 2 = 0 THEN CAST($2 AS bigint) / 2 ELSE 1 + i / 20 % CAST($2 AS bigint) END`
	farFuture      = `4102444800000` // the year 2100

	fillRepositories = `
INSERT INTO repositories (top_level_namespace_id, path, created_at)` + fillNumbers + `
SELECT 1, 'r/' || i, 0 FROM n ORDER BY i`
	fillBlobs = `
INSERT INTO blobs (digest, path, size, media_type_id, created_at, small)` + fillNumbers + `
SELECT {digest i}, 'filled-' || i, 2, 1, 0, i % 10 = 0 FROM n ORDER BY i`
	fillSmall = `
INSERT INTO small_blobs (blob_id, content)` + fillNumbers + `
SELECT i * 10 + 1, $2 FROM n ORDER BY i`
	// Of eight images in Large, one has the subject before it, one has Subject, and every second
	// time one is a list of an earlier one.
	fillManifests = `
INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, subject_digest,
    configuration_media_type_id, configuration_blob_id, total_size, payload, created_at)` + fillNumbers + `
SELECT 1, ` + fillRepository + `, {digest i + 1000000000}, 2,
    CASE i % 8 WHEN 2 THEN {digest i + 999999998} WHEN 6 THEN {digest 1000000000} END, 6, i * 10 + 1, 22, $3, 0
FROM n ORDER BY i`
	fillReferences = `
INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)` + fillNumbers + `
SELECT 1, CAST($2 AS bigint) / 2, i + 1, i - 7 FROM n WHERE i % 16 = 12 ORDER BY i`
	fillLayers = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)` + fillNumbers + `
SELECT 1, ` + fillBlobOwner + `, i / 10 + 1, i + 1, 8, 2 FROM n WHERE i % 10 > 0 ORDER BY i`
	fillSharedLayers = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
SELECT 1, m.repository_id, m.id, $1, 8, 2 FROM manifests m ORDER BY m.id`
	fillLinks = `
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)` + fillNumbers + `
SELECT 1, ` + fillBlobOwner + `, i + 1, 0 FROM n ORDER BY i`
	fillSharedLinks = `
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
SELECT 1, r.id, $1, 0 FROM repositories r ORDER BY r.id`
	fillTags = `
INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at)
SELECT 1, m.repository_id, 't' || (m.id - 1), m.id, 0, 0 FROM manifests m ORDER BY m.id`

	// What is there only for a while, some of each: reviews to come, uploads, deleted tags.
	fillBlobReviews = `
INSERT INTO gc_blob_review_queue (digest, review_after, review_count, event, created_at)
SELECT b.digest, ` + farFuture + `, 0, 'blob_upload', 0 FROM blobs b WHERE b.id % 10 = 5`
	fillManifestReviews = `
INSERT INTO gc_manifest_review_queue (manifest, repository_id, manifest_id, review_after, review_count, event, created_at)
SELECT m.repository_id || '@' || m.digest, m.repository_id, m.id, ` + farFuture + `, 0, 'manifest_upload', 0 FROM manifests m WHERE m.id % 2 = 0`
	fillUploads = `
INSERT INTO blob_uploads (id, repository_id, path, algorithm, size, created_at, updated_at)` + fillNumbers + `
SELECT 'upload-' || i, CASE WHEN i % 10 = 0 THEN CAST($2 AS bigint) / 2 ELSE i + 1 END, 'upload-' || i, 'sha256', 0, ` + farFuture + `, ` + farFuture + ` FROM n`
	fillDeletedTags = `
INSERT INTO deleted_tags (repository_id, name, digest, event, deleted_at)
SELECT m.repository_id, 'd' || m.id, m.digest, 'tag_delete', ` + farFuture + ` FROM manifests m`
)

// fillPayload is as long as real manifests are.
var fillPayload = []byte(`{"annotations":{"text":"` + strings.Repeat("manifest ", 100) + `"}}`)

// send adds the statements to a batch, in an order that satisfies the foreign keys.
func (f Filled) send(engine sqldb.Engine, b *sqldb.Batch) {
	form := digestSQLite
	if engine == sqldb.Postgres {
		form = digestPostgres
	}
	digest := func(s string) string { return digestExpression.ReplaceAllString(s, form) }
	images, repositories, shared := f.Images(), f.repositories, f.blobs+1
	b.Exec(fillRepositories, repositories)
	b.Exec(digest(fillBlobs), f.blobs+1)
	b.Exec(fillSmall, images, []byte("{}"))
	b.Exec(digest(fillManifests), images, repositories, fillPayload)
	b.Exec(fillReferences, images, repositories)
	b.Exec(fillLayers, f.blobs, repositories)
	b.Exec(fillSharedLayers, shared)
	b.Exec(fillLinks, f.blobs, repositories)
	b.Exec(fillSharedLinks, shared)
	b.Exec(fillUploads, repositories, repositories)
	for _, s := range []string{FillConfigurations, FillBlobsLayers, fillTags, fillBlobReviews, fillManifestReviews, fillDeletedTags} {
		b.Exec(s)
	}
}

// FillConfigurations and FillBlobsLayers say which blobs are in use, as triggers would do.
const (
	FillConfigurations = `
INSERT INTO gc_blobs_configurations (blob_id, manifest_id, top_level_namespace_id, repository_id)
SELECT m.configuration_blob_id, m.id, 1, m.repository_id FROM manifests m WHERE m.configuration_blob_id IS NOT NULL`
	FillBlobsLayers = `
INSERT INTO gc_blobs_layers (blob_id, layer_id, top_level_namespace_id, repository_id)
SELECT l.blob_id, l.id, 1, l.repository_id FROM layers l`
)

const (
	withoutTriggers = `SET LOCAL session_replication_role = replica`
	listTriggers    = `SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'`
)

// WithoutTriggers fills a registry in one transaction, without triggers: nothing is under review, as
// if the last push were long ago. On PostgreSQL the checks of foreign keys are off too: a million
// images would take half an hour.
func WithoutTriggers(t testing.TB, db *sqldb.DB, fill func(b *sqldb.Batch)) {
	t.Helper()
	drop, create := []string{withoutTriggers}, []string(nil)
	if db.Engine() == sqldb.SQLite {
		drop, create = triggers(t, db)
	}
	dbtest.NewSQL(t, db).Transact(func(b *sqldb.Batch) {
		for _, s := range drop {
			b.Exec(s)
		}
		fill(b)
		for _, s := range create {
			b.Exec(s)
		}
	})
	// As autovacuum, or the server, would do; but not during a measurement.
	err := db.Checkpoint(t.Context())
	if db.Engine() == sqldb.Postgres {
		_, err = db.Reader().ExecContext(t.Context(), `VACUUM (ANALYZE)`)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// triggers returns the statements that drop SQLite's triggers, and those that create them again.
func triggers(t testing.TB, db *sqldb.DB) (drop, create []string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), listTriggers)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	drop, create = []string{`PRAGMA cache_size = -4000000`}, []string{`PRAGMA cache_size = -4096`}
	for rows.Next() {
		var name, statement string
		if err := rows.Scan(&name, &statement); err != nil {
			t.Fatal(err)
		}
		drop, create = append(drop, `DROP TRIGGER `+name), append(create, statement)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return drop, create
}
