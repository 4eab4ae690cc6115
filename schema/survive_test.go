package schema_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/exeunt/exeunt/schema"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// Steps that make tables again leave what was in them. Each test fills a
// database just before a step, and looks at it after the last.

// old is a database on its way through the steps.
type old struct {
	*testing.T
	db *sql.DB
}

// fill runs the steps on an empty database, and the statements before one.
func fill(t *testing.T, engine sqldb.Engine, before string, statements ...string) *old {
	t.Helper()
	driver, database := "pgx", dbtest.Open(t, engine)
	if engine == sqldb.SQLite {
		driver, database = "sqlite", database+"?_pragma=foreign_keys(1)"
	}
	db, err := sql.Open(driver, database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := &old{t, db}
	steps, err := schema.Migrations(string(engine))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, step := range steps {
		if step.Name == before {
			found = true
			for _, s := range statements {
				o.exec(s)
			}
		}
		o.exec(step.SQL)
	}
	if !found {
		t.Fatalf("there is no step %s", before)
	}
	return o
}

// exec is one transaction, as a step is.
func (o *old) exec(statement string) {
	o.Helper()
	tx, err := o.db.Begin()
	if err == nil {
		_, err = tx.Exec(statement)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		o.Fatalf("%v\n%s", err, statement)
	}
}

// want expects the rows of one text column, in order.
func (o *old) want(want, statement string) {
	o.Helper()
	rows, err := o.db.Query(statement)
	if err != nil {
		o.Fatalf("%v\n%s", err, statement)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			o.Fatal(err)
		}
		got = append(got, text)
	}
	if text := strings.Join(got, "; "); text != want || rows.Err() != nil {
		o.Errorf("got %q, not %q: %v\n%s", text, want, rows.Err(), statement)
	}
}

// TestReferencesSurvive: the owners of objects, which SQLite makes again.
func TestReferencesSurvive(t *testing.T) {
	o := fill(t, sqldb.SQLite, "lighter_triggers",
		`INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (1, 'o', 'k', '', 'o', 1), (2, 'd', 'k', '', 'd', 2)`,
		`INSERT INTO owners VALUES (2, 'o', 1, 0), (2, 'gone', 0, 1)`)
	const list = `SELECT dependent || owner_uid || blocking || controller FROM owners ORDER BY owner_uid`
	o.want("2gone01; 2o10", list)
	o.exec(`DELETE FROM objects WHERE id = 2`)
	o.want("", list)
}

// TestContentSurvives: what the registry has, when blobs get numbers.
func TestContentSurvives(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) { testContentSurvives(t, engine) })
	}
}

func testContentSurvives(t *testing.T, engine sqldb.Engine) {
	payload := `CAST('{}' AS blob)`
	if engine == sqldb.Postgres {
		payload = `CAST('{}' AS bytea)`
	}
	o := fill(t, engine, "blob_ids",
		`INSERT INTO top_level_namespaces (name, created_at) VALUES ('n', 0)`,
		`INSERT INTO repositories (top_level_namespace_id, path, created_at) VALUES (1, 'n/a', 0), (1, 'n/b', 0)`,
		`INSERT INTO blobs (digest, path, size, media_type_id, created_at, small) VALUES ('z', 'p1', 1, 1, 10, 1 = 0),
			('y', 'p2', 2, 1, 20, 1 = 1), ('x', 'p3', 3, 1, 30, 1 = 0), ('unused', 'p4', 4, 1, 40, 1 = 0)`,
		`INSERT INTO small_blobs (digest, content) VALUES ('y', `+payload+`)`,
		`INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_digest, created_at)
			VALUES (1, 1, 'z', 1), (1, 1, 'y', 2), (1, 1, 'x', 3), (1, 2, 'y', 4)`,
		`INSERT INTO manifests (top_level_namespace_id, repository_id, digest, media_type_id, configuration_blob_digest, total_size, payload, created_at)
			VALUES (1, 1, 'image', 2, 'z', 6, `+payload+`, 0), (1, 1, 'list', 3, NULL, 0, `+payload+`, 0)`,
		`INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, digest, media_type_id, size) VALUES (1, 1, 1, 'x', 8, 3), (1, 1, 1, 'y', 8, 2)`,
		`INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id) VALUES (1, 1, 2, 1)`,
		`INSERT INTO tags (top_level_namespace_id, repository_id, name, manifest_id, created_at, updated_at) VALUES (1, 1, 'v1', 2, 0, 0)`,
		`UPDATE gc_blob_review_queue SET event = 'seen'`,
		`UPDATE gc_manifest_review_queue SET event = 'seen'`)

	// In the order of their coming, which is not that of their digests.
	o.want("z p1 1 10; y p2 2 20; x p3 3 30; unused p4 4 40",
		`SELECT digest || ' ' || path || ' ' || size || ' ' || created_at FROM blobs ORDER BY id`)
	o.want("unused 4; x 3; y 2; z 1", `SELECT digest || ' ' || id FROM blobs_by_digest ORDER BY 1`)
	o.want("y", `SELECT b.digest FROM blobs b JOIN small_blobs s ON s.blob_id = b.id WHERE b.small`)
	o.want("1 x 3; 1 y 2; 1 z 1; 2 y 4",
		`SELECT l.repository_id || ' ' || b.digest || ' ' || l.created_at FROM repository_blobs l JOIN blobs b ON b.id = l.blob_id ORDER BY 1`)
	o.want("image z", `SELECT m.digest || ' ' || b.digest FROM manifests m JOIN blobs b ON b.id = m.configuration_blob_id`)
	o.want("image x 3; image y 2", `SELECT m.digest || ' ' || b.digest || ' ' || l.size
		FROM layers l JOIN manifests m ON m.id = l.manifest_id JOIN blobs b ON b.id = l.blob_id ORDER BY 1`)
	o.want("z 1 1", `SELECT b.digest || ' ' || g.manifest_id || ' ' || g.repository_id FROM gc_blobs_configurations g JOIN blobs b ON b.id = g.blob_id`)
	o.want("x 1; y 1", `SELECT b.digest || ' ' || g.repository_id FROM gc_blobs_layers g JOIN blobs b ON b.id = g.blob_id
		JOIN layers l ON l.id = g.layer_id AND l.blob_id = g.blob_id ORDER BY 1`)
	o.want("v1 2", `SELECT name || ' ' || manifest_id FROM tags`)
	o.want("2 1", `SELECT parent_id || ' ' || child_id FROM manifest_references`)
	const queue = `SELECT digest || ' ' || event FROM gc_blob_review_queue ORDER BY 1`
	o.want("unused seen; x seen; y seen; z seen", queue)
	o.want("seen; seen", `SELECT event FROM gc_manifest_review_queue`)

	for _, used := range []string{"x", "y", "z"} {
		if _, err := o.db.Exec(`DELETE FROM blobs WHERE digest = '` + used + `'`); err == nil {
			t.Errorf("%s is used, and was deleted", used)
		}
	}
	o.exec(`DELETE FROM manifests WHERE digest = 'list'`)
	o.exec(`DELETE FROM manifests`)
	o.want("unused seen; x layer_delete; y layer_delete; z manifest_delete", queue)
	o.exec(`DELETE FROM blobs`)
	for _, table := range []string{"small_blobs", "repository_blobs", "layers", "gc_blobs_layers", "gc_blobs_configurations", "tags"} {
		o.want("0", `SELECT CAST(count(*) AS text) FROM `+table)
	}
	o.want("p1; p3; p4", `SELECT path FROM gc_unlink_queue ORDER BY path`)
}

// TestReferencesSayWhomTheyName: rows from before have the group, kind and name of
// their references afterwards.
func TestReferencesSayWhomTheyName(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			binary := "blob"
			if engine == sqldb.Postgres {
				binary = "bytea"
			}
			const body = `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"o"},
				{"apiVersion":"v1","kind":"Pod","name":"p","uid":"gone"}]}}`
			o := fill(t, engine, "owner_identity",
				`INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (1, 'o', 'deployments.apps', 'n', 'web', 1), (2, 'd', 'k', 'n', 'd', 2)`,
				`INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body) VALUES (1, 1, 'o', 'deployments.apps', 'n', 'web', 1, CAST('{}' AS `+binary+`)),
					(2, 2, 'd', 'k', 'n', 'd', 1, CAST('`+body+`' AS `+binary+`))`,
				`INSERT INTO owners (dependent, owner_uid, blocking, controller) VALUES (2, 'o', 1 = 1, 1 = 0), (2, 'gone', 1 = 0, 1 = 1), (2, 'lost', 1 = 0, 1 = 1)`)
			o.want("gone//Pod/p; lost///; o/apps/Deployment/web",
				`SELECT owner_uid || '/' || owner_group || '/' || owner_kind || '/' || owner_name FROM owners ORDER BY owner_uid`)
		})
	}
}
