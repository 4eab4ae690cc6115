package collect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
)

// The rows of many images, each with a config and three layers, in a few
// statements. $1 is the prefix of their blobs' paths, $2 their number. Digests
// are random, as real ones are: neighbours in one index are far apart in
// another.
const (
	fillImages = `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < CAST($2 AS bigint)) `
	fillLayers = `(SELECT 1 AS j UNION ALL SELECT 2 UNION ALL SELECT 3) AS j`

	fillBlobs = `
INSERT INTO blobs (digest, path, size, media_type_id, created_at) ` + fillImages + `
SELECT {digest}, $1 || i || '-' || j, 1, 1, 0 FROM n, (SELECT 0 AS j UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) AS j ORDER BY i, j`
	fillManifests = `
INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, configuration_blob_id, total_size, payload, created_at) ` + fillImages + `
SELECT 1, (SELECT min(id) FROM repositories), {digest}, 2, c.id, 0, $3, 0 FROM n JOIN blobs c ON c.path = $1 || i || '-0'`
	fillManifestLayers = `
INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size) ` + fillImages + `
SELECT 1, m.repository_id, m.id, b.id, 8, 1
FROM n JOIN blobs c ON c.path = $1 || i || '-0' JOIN gc_blobs_configurations g ON g.blob_id = c.id JOIN manifests m ON m.id = g.manifest_id
CROSS JOIN ` + fillLayers + ` JOIN blobs b ON b.path = $1 || i || '-' || j`
	fillLinks = `
INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
SELECT 1, (SELECT min(id) FROM repositories), b.id, 0 FROM blobs b WHERE b.path >= $1 AND b.path < $1 || 'a'`
	fillTags = `
INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at) ` + fillImages + `
SELECT 1, m.repository_id, $1 || i, m.id, 0, 0
FROM n JOIN blobs c ON c.path = $1 || i || '-0' JOIN gc_blobs_configurations g ON g.blob_id = c.id JOIN manifests m ON m.id = g.manifest_id`
)

// The rows of images in use only: a list for every eight images.
const (
	fillLists = `
INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, artifact_type, total_size, payload, created_at) ` + fillImages + `
SELECT 1, (SELECT min(id) FROM repositories), {digest}, 2, $1 || i, 0, $3, 0 FROM n WHERE i % 8 = 0`
	fillReferences = `
INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id) ` + fillImages + `
SELECT 1, m.repository_id, p.id, m.id
FROM n JOIN blobs c ON c.path = $1 || i || '-0' JOIN gc_blobs_configurations g ON g.blob_id = c.id JOIN manifests m ON m.id = g.manifest_id
JOIN manifests p ON p.artifact_type = $1 || (i - i % 8)`
	fillListTags = `
INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at)
SELECT 1, p.repository_id, 'list-' || p.artifact_type, p.id, 0, 0 FROM manifests p WHERE p.artifact_type >= $1 AND p.artifact_type < $1 || 'a'`
)

// fillRows adds statements about images to a batch.
func fillRows(engine sqldb.Engine, b *sqldb.Batch, prefix string, images int, statements ...string) {
	digest := `'sha256:' || lower(hex(randomblob(32)))`
	if engine == sqldb.Postgres {
		digest = `'sha256:' || encode(sha256(random()::text::bytea), 'hex')`
	}
	for _, s := range statements {
		args := []any{prefix, images, []byte("{}")}
		for n := len(args); n > 0 && !strings.Contains(s, fmt.Sprint("$", n)); n-- {
			args = args[:n-1]
		}
		b.Exec(strings.ReplaceAll(s, "{digest}", digest), args...)
	}
}

// addImages adds images that nothing references and that were never linked.
func addImages(b *testing.B, c *Collector, prefix string, images int, more ...string) {
	b.Helper()
	send(b, c, func(batch *sqldb.Batch) {
		fillRows(c.db.Engine(), batch, prefix, images, fillBlobs, fillManifests, fillManifestLayers)
		fillRows(c.db.Engine(), batch, prefix, images, more...)
	})
}

// addImagesInUse adds a repository with images that have tags and lists, and no
// reviews: the last push was long ago.
func addImagesInUse(b *testing.B, c *Collector, images int) {
	b.Helper()
	registrytest.WithoutTriggers(b, c.db, func(batch *sqldb.Batch) {
		batch.Exec(statement.InsertNamespace, "r", 0)
		batch.Exec(statement.InsertRepository, "r", "r", 0)
		fillRows(c.db.Engine(), batch, "1-", images,
			fillBlobs, fillManifests, registrytest.FillConfigurations, fillManifestLayers, registrytest.FillBlobsLayers,
			fillLinks, fillTags, fillLists, fillReferences, fillListTags)
	})
}

func send(b *testing.B, c *Collector, fill func(*sqldb.Batch)) {
	b.Helper()
	_, err := c.transactNow(b.Context(), func(tx *countingTx) error {
		var batch sqldb.Batch
		fill(&batch)
		return tx.Send(b.Context(), &batch)
	})
	if err != nil {
		b.Fatal(err)
	}
}
