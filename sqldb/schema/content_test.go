package schema_test

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// content is a migrated database with rows.
type content struct {
	*testing.T
	dbtest.SQL
}

// fill runs statements on a migrated database.
func fill(t *testing.T, db *sqldb.DB, statements ...string) *content {
	t.Helper()
	c := &content{t, dbtest.NewSQL(t, db)}
	for _, s := range statements {
		c.Exec(s)
	}
	return c
}

// want expects the rows of one text column, in order.
func (c *content) want(want, statement string) {
	c.Helper()
	if text := strings.Join(c.Strings(statement), "; "); text != want {
		c.Errorf("got %q, not %q\n%s", text, want, statement)
	}
}

// TestReferencesOfARemovedObject: they are deleted with it, without a foreign key.
func TestReferencesOfARemovedObject(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		c := fill(t, db,
			`INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (1, 'o', 'k', '', 'o', 1), (2, 'd', 'k', '', 'd', 2)`,
			`INSERT INTO owners (dependent, owner_uid, blocking, controller) VALUES (2, 'o', 1 = 1, 1 = 0), (2, 'gone', 1 = 0, 1 = 1)`)
		const list = `SELECT owner_uid || CASE WHEN blocking THEN ' blocks' ELSE '' END || CASE WHEN controller THEN ' controls' ELSE '' END
			FROM owners WHERE dependent = 2 ORDER BY owner_uid`
		c.want("gone controls; o blocks", list)
		c.Exec(`DELETE FROM objects WHERE id = 2`)
		c.want("", list)
	})
}

// TestContentOfTheRegistry: what refers to what, and what is deleted with what.
func TestContentOfTheRegistry(t *testing.T) { dbtest.Each(t, testContent) }

func testContent(t *testing.T, db *sqldb.DB) {
	payload := `CAST('{}' AS blob)`
	if db.Engine() == sqldb.Postgres {
		payload = `CAST('{}' AS bytea)`
	}
	c := fill(t, db,
		`INSERT INTO top_level_namespaces (name, created_at) VALUES ('n', 0)`,
		`INSERT INTO repositories (top_level_namespace_id, path, created_at) VALUES (1, 'n/a', 0), (1, 'n/b', 0)`,
		`INSERT INTO blobs (digest, path, size, media_type_id, created_at, small) VALUES ('z', 'p1', 1, 1, 10, 1 = 0),
			('y', 'p2', 2, 1, 20, 1 = 1), ('x', 'p3', 3, 1, 30, 1 = 0), ('unused', 'p4', 4, 1, 40, 1 = 0)`,
		`INSERT INTO small_blobs (blob_id, content) VALUES (2, `+payload+`)`,
		`INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
			VALUES (1, 1, 1, 1), (1, 1, 2, 2), (1, 1, 3, 3), (1, 2, 2, 4)`,
		`INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, configuration_blob_id, total_size, payload, created_at)
			VALUES (1, 1, 'image', 2, 1, 6, `+payload+`, 0), (1, 1, 'list', 3, NULL, 0, `+payload+`, 0)`,
		`INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size) VALUES (1, 1, 1, 3, 8, 3), (1, 1, 1, 2, 8, 2)`,
		`INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id) VALUES (1, 1, 2, 1)`,
		`INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at) VALUES (1, 1, 'v1', 2, 0, 0)`,
		`UPDATE gc_blob_review_queue SET event = 'seen'`,
		`UPDATE gc_manifest_review_queue SET event = 'seen'`)

	// In upload order, which is not the order of the digests.
	c.want("z p1 1 10; y p2 2 20; x p3 3 30; unused p4 4 40",
		`SELECT digest || ' ' || path || ' ' || size || ' ' || created_at FROM blobs ORDER BY id`)
	c.want("unused 4; x 3; y 2; z 1", `SELECT digest || ' ' || id FROM blobs ORDER BY 1`)
	c.want("y", `SELECT b.digest FROM blobs b JOIN small_blobs s ON s.blob_id = b.id WHERE b.small`)
	c.want("1 x 3; 1 y 2; 1 z 1; 2 y 4",
		`SELECT l.repository_id || ' ' || b.digest || ' ' || l.created_at FROM repository_blobs l JOIN blobs b ON b.id = l.blob_id ORDER BY 1`)
	c.want("image z", `SELECT m.digest || ' ' || b.digest FROM manifests m JOIN blobs b ON b.id = m.configuration_blob_id`)
	c.want("image x 3; image y 2", `SELECT m.digest || ' ' || b.digest || ' ' || l.size
		FROM layers l JOIN manifests m ON m.id = l.manifest_id JOIN blobs b ON b.id = l.blob_id ORDER BY 1`)
	c.want("z 1 1", `SELECT b.digest || ' ' || g.manifest_id || ' ' || g.repository_id FROM gc_blobs_configurations g JOIN blobs b ON b.id = g.blob_id`)
	c.want("x 1; y 1", `SELECT b.digest || ' ' || g.repository_id FROM gc_blobs_layers g JOIN blobs b ON b.id = g.blob_id
		JOIN layers l ON l.id = g.layer_id AND l.blob_id = g.blob_id ORDER BY 1`)
	c.want("v1 2", `SELECT name || ' ' || manifest_id FROM tags`)
	c.want("2 1", `SELECT parent_id || ' ' || child_id FROM manifest_references`)
	const queue = `SELECT digest || ' ' || event FROM gc_blob_review_queue ORDER BY 1`
	c.want("unused seen; x seen; y seen; z seen", queue)
	c.want("seen; seen", `SELECT event FROM gc_manifest_review_queue`)

	for _, used := range []string{"x", "y", "z"} {
		if err := c.Try(func(b *sqldb.Batch) { b.Exec(`DELETE FROM blobs WHERE digest = $1`, used) }); err == nil {
			t.Errorf("%s is used, and was deleted", used)
		}
	}
	c.Exec(`DELETE FROM manifests WHERE digest = 'list'`)
	c.Exec(`DELETE FROM manifests`)
	c.want("unused seen; x layer_delete; y layer_delete; z manifest_delete", queue)
	c.Exec(`DELETE FROM blobs`)
	for _, table := range []string{"small_blobs", "repository_blobs", "layers", "gc_blobs_layers", "gc_blobs_configurations", "tags"} {
		c.want("0", `SELECT CAST(count(*) AS text) FROM `+table)
	}
	c.want("p1; p3; p4", `SELECT path FROM gc_unlink_queue ORDER BY path`)
}

// TestFinishedJobsOfBefore: an upgrade looks at the Jobs that a server without expiry has stored.
func TestFinishedJobsOfBefore(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *sqldb.DB, _ string) {
		if err := db.Up(t.Context(), 14); err != nil {
			t.Fatal(err)
		}
		c := fill(t, db, `INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (1, 'j', 'jobs.batch', 'n', 'j', 1), (2, 'c', 'configmaps', 'n', 'j', 2)`)
		if err := db.Up(t.Context(), 15); err != nil {
			t.Fatal(err)
		}
		c.want("j", `SELECT uid FROM expiry_reviews WHERE review_after = 0`)
	})
}
