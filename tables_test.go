package exeunt_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tableOwners says which package, with those below it, may have SQL on a table.
// Others ask that package. Tests may read any table.
var tableOwners = map[string][]string{
	"store": {
		"image_uses", "expiry_groups", "objects", "changes", "owners", "revision", "object_expiries", "archive", "archive_cascades", "archive_counted", "archive_kinds", "archive_spans", "dropped_references", "history", "history_bounds", "history_times", "seal_keys", "sealed_kinds",
	},
	"gc":              {"gc_object_reviews", "gc_admission_reviews", "gc_state"},
	"admission/quota": {"quota_reviews"},
	"broker/mesh":     {"bootstrap_tokens", "mesh_nodes", "mesh_node_reviews"},
	"broker": {
		"provisioned_resources", "provisioned_resource_reviews", "provisioned_resource_published",
		"provisioned_resource_outbox", "provisioned_resource_outbox_reviews",
	},
	"registry": {
		"registry_quotas",
		"blobs", "blob_uploads", "data_id", "deleted_manifests", "deleted_tags", "gc_blob_review_queue", "gc_blobs_configurations",
		"gc_blobs_layers", "gc_given_back", "gc_manifest_review_queue", "gc_repository_review_queue", "gc_review_after_defaults", "gc_settings",
		"gc_unlink_queue", "layers", "manifest_references", "manifests", "media_types", "missing_content", "repositories", "pull_days", "repository_blobs", "small_blobs",
		"tag_days", "tags", "top_level_namespaces", "works",
	},
	"console":  {"console_sessions"},
	"deletion": {"restores", "restore_reviews", "expiry_reviews", "expiry_policies", "expiry_policy_reviews"},
	"backup":   {"backups"},
	"sqldb":    {"migrations", "trace_marks"},
}

// jointStatements are the constants with SQL on a table of another package, and
// why (decision 15).
var jointStatements = map[string]string{
	"store openOwners":                 "what a cascade has to remove is read with the archive, in one statement; store does not import gc",
	"store queuedCascades":             "a cascade that the collector has work of does not leave the archive; store does not import gc",
	"store enqueueExpiry":              "when an object expires is written with the object; store does not import deletion/expiry",
	"store enqueueRestored":            "as enqueueExpiry",
	"store enqueuePolicy":              "a policy of expiry that is written is reviewed",
	"store enqueueOlder":               "as enqueueExpiry: the write of an object may let another one expire",
	"registry isArchived":              "the registry knows no objects and does not import store; the review must see the archive in its own transaction",
	"registry planRemoved":             "a dry run reads what the review reads, in one snapshot",
	"admission findRegistryBytes":      "the status of a ResourceQuota shows what the registry counts",
	"registry listNamespaces":          "a run of policies reads them in the transaction that deletes, and does not follow their kind",
	"registry listPolicies":            "as listNamespaces",
	"registry listVersions":            "as listNamespaces",
	"registry listSelectable":          "which repositories a policy selects is read with them, in one snapshot",
	"registry selectTags":              "what is in use is read in the transaction that deletes",
	"registry inUse":                   "a review must see what workloads name in its own transaction",
	"registry listHolds":               "what keeps an image is tags and lists of the registry and workloads of the store, in one snapshot",
	"registry findTagRules":            "what tags are immutable is read in the transaction that moves one; the registry does not import store",
	"registry removeNamespaceSQLite":   "the row goes only if no Namespace exists, checked by the statement that deletes it",
	"registry removeNamespacePostgres": "as removeNamespaceSQLite, under the row's lock",
}

var (
	created  = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(?:public\.)?(\w+)`)
	accessed = regexp.MustCompile(`\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:ONLY\s+)?(\w+)`)
)

// jointTriggers are the triggers on a table of one package that write a table of another, and why: what a change makes
// reviewable must be in a queue when the change is committed, and the package of the table does not know who waits.
var jointTriggers = map[string]string{
	"archive gc_repository_review_queue":   "a repository whose object leaves the archive is garbage",
	"changes registry_quotas":              "the limit that a ResourceQuota or Repository sets",
	"objects registry_quotas":              "the limit of an object that is removed",
	"registry_quotas quota_reviews":        "the ResourceQuota whose usage changes",
	"changes repositories":                 "the repository of a Repository that is created or changed",
	"changes top_level_namespaces":         "the registry's namespace of a Repository that is created",
	"objects bootstrap_tokens":             "the tokens of a Namespace that is removed",
	"objects gc_object_reviews":            "owners that are gone or wait, and terminating namespaces",
	"objects gc_repository_review_queue":   "the repository of a Repository that is removed",
	"objects mesh_node_reviews":            "a MeshNode that is deleted",
	"objects provisioned_resource_reviews": "a ProvisionedResource that is created, changed or deleted",
	"objects repositories":                 "the repository of a Repository that is removed or restored",
	"objects top_level_namespaces":         "whether the Namespace is being deleted",
	"owners gc_object_reviews":             "a dependent whose owner is gone, or in another namespace",
}

var (
	liteTrigger = regexp.MustCompile(`(?s)CREATE TRIGGER \w+.*?\bON (\w+)\b(.*?)\nEND;`)
	pgTrigger   = regexp.MustCompile(`CREATE TRIGGER \w+ .*? ON (?:\w+\.)?(\w+) .*?EXECUTE FUNCTION (?:\w+\.)?(\w+)\(`)
	pgFunction  = regexp.MustCompile(`(?s)CREATE OR REPLACE FUNCTION (?:\w+\.)?(\w+)\(.*?AS \$function\$(.*?)\$function\$`)
	written     = regexp.MustCompile(`\b(?:INTO|UPDATE|DELETE FROM)\s+(\w+)`)
	called      = regexp.MustCompile(`\b(\w+)\(`)
)

// TestTriggersHaveOneOwner: a trigger writes tables of the package that owns its table, and those that are declared.
func TestTriggersHaveOneOwner(t *testing.T) {
	owners := map[string]string{}
	for owner, tables := range tableOwners {
		for _, table := range tables {
			owners[table] = owner
		}
	}
	// found has what triggers on a table or view write; a view's triggers write for those who insert into it.
	found := map[string]map[string]bool{}
	add := func(table, body string) {
		for _, m := range written.FindAllStringSubmatch(body, -1) {
			if found[table] == nil {
				found[table] = map[string]bool{}
			}
			found[table][m[1]] = true
		}
	}
	lite := liteTrigger.FindAllStringSubmatch(read(t, "sqldb/schema/sqlite.sql"), -1)
	for _, m := range lite {
		add(m[1], m[2])
	}
	postgres := read(t, "sqldb/schema/postgres.sql")
	functions := map[string]string{}
	for _, m := range pgFunction.FindAllStringSubmatch(postgres, -1) {
		functions[m[1]] = m[2]
	}
	triggers := pgTrigger.FindAllStringSubmatch(postgres, -1)
	for _, m := range triggers {
		add(m[1], functions[m[2]])
		for _, call := range called.FindAllStringSubmatch(functions[m[2]], -1) {
			add(m[1], functions[call[1]])
		}
	}
	if len(lite) == 0 || len(triggers) == 0 || len(functions) == 0 {
		t.Fatalf("%d triggers of SQLite, %d of PostgreSQL with %d functions found in schema/", len(lite), len(triggers), len(functions))
	}
	joint := map[string]bool{}
	for table, writes := range found {
		for to := range writes {
			targets := map[string]bool{to: true}
			if owners[to] == "" {
				targets = found[to] // a view
			}
			for target := range targets {
				if owners[table] == "" || owners[target] == "" || owners[target] == owners[table] {
					continue
				}
				if name := table + " " + target; jointTriggers[name] != "" {
					joint[name] = true
				} else {
					t.Errorf("a trigger on %s, of package %s, writes %s, of package %s: declare it in tables_test.go", table, owners[table], target, owners[target])
				}
			}
		}
	}
	for name := range jointTriggers {
		if !joint[name] {
			t.Errorf("tables_test.go declares the trigger %s, and there is none", name)
		}
	}
}

// schemaTables reads the names of all tables from the snapshots of both engines.
func schemaTables(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range []string{"sqldb/schema/sqlite.sql", "sqldb/schema/postgres.sql"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range created.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = true
		}
	}
	if len(all) == 0 {
		t.Fatal("no tables found in schema/")
	}
	return all
}

// TestTablesHaveOneOwner: SQL on a table stands in the package that owns it.
func TestTablesHaveOneOwner(t *testing.T) {
	owners := map[string]string{}
	for owner, tables := range tableOwners {
		for _, table := range tables {
			owners[table] = owner
		}
	}
	tables := schemaTables(t)
	for table := range tables {
		if owners[table] == "" {
			t.Errorf("table %s has no owner in tables_test.go", table)
		}
	}
	for table := range owners {
		if !tables[table] {
			t.Errorf("tables_test.go gives %s to %s, and the schema has no such table", table, owners[table])
		}
	}
	joint := map[string]bool{}
	for _, s := range sources(t) {
		if s.test() || ownModule(s.dir()) || strings.HasSuffix(s.dir(), "test") {
			continue
		}
		for _, use := range tablesIn(t, s.path) {
			owner := owners[use.table]
			if owner == "" || within(s.dir(), owner) {
				continue
			}
			first, _, _ := strings.Cut(s.dir(), "/")
			if name := first + " " + use.constant; jointStatements[name] != "" {
				joint[name] = true
				continue
			}
			t.Errorf("%s: %s has SQL on %s, which package %s owns: ask that package", s.path, use.constant, use.table, owner)
		}
	}
	for name := range jointStatements {
		if !joint[name] {
			t.Errorf("tables_test.go excepts %s, and no such statement exists", name)
		}
	}
}

// TestSQLMeetsBothEngines: where SQL on a table stands, tests run on both engines with -short too, as in make test: those
// of the package, or of one above it.
func TestSQLMeetsBothEngines(t *testing.T) {
	tables := schemaTables(t)
	both, speaks := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if ownModule(s.dir()) {
			continue
		}
		if s.test() {
			text, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			both[s.dir()] = both[s.dir()] || onBoth.Match(text)
			continue
		}
		for _, use := range tablesIn(t, s.path) {
			speaks[s.dir()] = speaks[s.dir()] || tables[use.table]
		}
	}
	for dir := range speaks {
		above := dir
		for !both[above] && above != "." {
			above = path.Dir(above)
		}
		if speaks[dir] && !both[above] {
			t.Errorf("package %s has SQL, and no test of it calls dbtest.MainBoth or dbtest.Both", dir)
		}
	}
}

var onBoth = regexp.MustCompile(`\bdbtest\.(?:MainBoth|Both)\(`)

// tableUse is a table that a string literal names, and the constant or variable
// that the literal belongs to; empty inside a function.
type tableUse struct{ constant, table string }

// tablesIn finds the tables that the SQL in a file names: the words behind FROM,
// JOIN, INTO and UPDATE in its string literals.
func tablesIn(t *testing.T, path string) []tableUse {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var uses []tableUse
	for _, decl := range file.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for _, value := range spec.Values {
					uses = append(uses, tablesBelow(spec.Names[0].Name, value)...)
				}
				return false
			}
			if lit, ok := n.(*ast.BasicLit); ok {
				uses = append(uses, tablesBelow("", lit)...)
			}
			return true
		})
	}
	return uses
}

func tablesBelow(constant string, n ast.Node) (uses []tableUse) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		for _, m := range accessed.FindAllStringSubmatch(text, -1) {
			uses = append(uses, tableUse{constant, m[1]})
		}
		return true
	})
	return uses
}

// TestTablesIn holds the rule's own reading of SQL, so that a mistake there does
// not switch it off.
func TestTablesIn(t *testing.T) {
	file := t.TempDir() + "/x.go"
	source := "package x\nconst a = `SELECT 1 FROM one o\n JOIN two ON true` + `, x FROM (SELECT * FROM three)`\n" +
		"func f() { g(`UPDATE four SET x = 1`, \"DELETE FROM five\", `INSERT INTO six VALUES (1)`, \"text from seven\") }\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []tableUse{{"a", "one"}, {"a", "two"}, {"a", "three"}, {"", "four"}, {"", "five"}, {"", "six"}}
	if got := tablesIn(t, file); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
