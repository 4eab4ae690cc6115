package exeunt_test

import (
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/exeunt/exeunt/"

// layers says which of our packages each package may import: imports run one
// way, from the wire down to plain values. "x/*" stands for every package
// below x, "*" for all. A new package needs a line here.
//
// Tests may import more (a store's test opens a database), so only the code
// that ships is held to the table.
var layers = map[string][]string{
	"object":                           {},
	"lifecycle":                        {"object"},
	"kind":                             {"lifecycle", "object"},
	"kind/kindtest":                    {"kind", "object"},
	"kind/builtin":                     {"kind", "lifecycle", "object"},
	"kind/custom":                      {"kind", "lifecycle", "object"},
	"sqldb/schema":                     {},
	"sqldb":                            {"sqldb/schema", "sqldb/pagealloc"},
	"sqldb/pagealloc":                  {},
	"sqldb/dbtest":                     {"sqldb", "sqldb/schema"},
	"review/reviewtest":                {"review", "sqldb"},
	"store/seal":                       {"internal/pattern", "internal/durable", "internal/lockfile", "internal/task", "object", "sqldb"},
	"store/feed":                       {"internal/task", "object"},
	"store/due":                        {"object", "sqldb"},
	"store/imageuse":                   {"internal/pattern", "object", "sqldb"},
	"store/graph":                      {"object", "sqldb"},
	"store/cascades":                   {"object", "sqldb"},
	"store/expiry":                     {"store/cascades", "lifecycle", "object", "sqldb"},
	"store/history":                    {"internal/task", "lifecycle", "object", "sqldb", "store/cascades", "store/expiry", "store/feed", "store/seal"},
	"internal/testprogram":             {},
	"internal/tracing":                 {},
	"internal/tracing/otlp":            {},
	"internal/tracing/otlp/otlptest":   {},
	"store":                            {"internal/task", "store/*", "object", "lifecycle", "sqldb", "internal/tracing"},
	"store/storetest":                  {"store", "object", "lifecycle"},
	"review":                           {"sqldb", "internal/tracing"},
	"kind/event":                       {"store", "store/due", "kind", "object", "sqldb"},
	"gc":                               {"internal/task", "kind/event", "store", "store/graph", "store/cascades", "review", "kind", "lifecycle", "object", "sqldb"},
	"deletion/archive":                 {"internal/pattern", "internal/task", "deletion/v1", "gc", "kind/event", "store", "store/cascades", "store/history", "kind", "lifecycle", "review", "object", "sqldb"},
	"deletion/expiry":                  {"api/selector", "deletion", "deletion/v1", "internal/task", "kind", "kind/event", "kind/custom", "kind/objects", "lifecycle", "object", "review", "sqldb", "store", "store/due"},
	"deletion/v1":                      {},
	"deletion":                         {"deletion/v1", "store", "kind", "object"},
	"deletion/preview":                 {"deletion/v1", "deletion", "gc", "store", "kind", "lifecycle", "object"},
	"deletion/report":                  {"deletion/v1", "deletion", "deletion/expiry", "deletion/preview", "gc", "store", "store/graph", "store/cascades", "kind", "lifecycle", "object", "sqldb"},
	"deletion/deletiontest":            {"access/accesstest", "admission", "api", "gc", "store", "store/storetest", "kind", "kind/builtin", "kind/custom", "kind/definition", "lifecycle", "object", "sqldb", "sqldb/dbtest"},
	"deletion/finalizer":               {"deletion/v1", "kind/event", "store", "kind", "lifecycle", "object", "sqldb"},
	"registry":                         {"registry/blobstore", "registry/internal/statement", "registry/v1", "internal/inflight", "lifecycle", "object", "sqldb", "internal/tracing"},
	"registry/collect":                 {"store/imageuse", "internal/task", "registry", "registry/blobstore", "registry/internal/statement", "review", "sqldb"},
	"registry/verify":                  {"registry", "registry/blobstore", "registry/internal/statement", "sqldb"},
	"registry/underway":                {"internal/task", "sqldb"},
	"registry/internal/statement":      {},
	"registry/registrytest":            {"registry/blobstore", "registry/internal/statement", "sqldb", "sqldb/dbtest"},
	"registry/repository":              {"store/imageuse", "internal/task", "registry", "registry/v1", "store", "kind", "kind/custom", "kind/objects", "lifecycle", "object", "sqldb"},
	"registry/retain":                  {"internal/pattern", "internal/task", "kind", "kind/custom", "kind/objects", "lifecycle", "object", "registry", "registry/v1", "sqldb", "store", "store/imageuse"},
	"registry/cache":                   {"internal/task", "kind", "kind/custom", "kind/objects", "object", "registry", "registry/v1", "store"},
	"registry/importer":                {"internal/pattern", "internal/task", "registry/v1"},
	"registry/v1":                      {},
	"registry/blobstore":               {"internal/durable", "internal/lockfile"},
	"registry/blobstore/blobstoretest": {"registry/blobstore"},
	"registry/blobstore/s3test":        {},
	"backup":                           {"internal/durable", "internal/task", "object", "store", "store/seal", "registry", "registry/blobstore", "internal/lockfile", "sqldb"},
	"broker":                           {},
	"broker/brokertest":                {"broker"},
	"broker/sqlbroker":                 {"broker", "sqldb", "internal/tracing"},
	"broker/mesh":                      {"internal/pattern", "internal/task", "internal/inflight", "broker/mesh/v1alpha1", "deletion/v1", "broker", "store", "review", "kind/event", "kind", "kind/custom", "lifecycle", "object", "sqldb"},
	"broker/mesh/v1alpha1":             {},
	"internal/task":                    {},
	"internal/pattern":                 {},
	"internal/quickstart":              {},
	"internal/lockfile":                {},
	"internal/durable":                 {},
	"broker/mesh/agent":                {"internal/durable", "internal/task", "internal/lockfile", "broker/mesh/v1alpha1"},
	"broker/reconcile":                 {"internal/task", "broker", "broker/sqlbroker", "review"},
	"broker/publish":                   {"broker", "broker/sqlbroker", "review"},
	"broker/crossplane":                {"broker"},
	"broker/provisioning":              {"internal/task", "deletion/v1", "kind/event", "broker", "broker/reconcile", "broker/publish", "store", "kind", "kind/custom", "lifecycle", "object", "sqldb"},
	"api/health":                       {},
	"api/openapi":                      {"kind"},
	"api/discovery":                    {"kind", "kind/builtin", "object"},
	"api/fieldowner":                   {"kind"},
	"api/selector":                     {"kind", "object"},
	"api/bodycost":                     {"object"},
	"api/versions":                     {"deletion/v1", "object", "store", "store/history"},
	"api/record":                       {"access", "access/auditlog", "kind", "lifecycle", "object", "store"},
	"access/rbac":                      {},
	"access/v1":                        {},
	"access/directory":                 {"internal/task", "access/rbac", "access/v1", "store", "object"},
	"kind/objects":                     {"store", "kind", "lifecycle", "object"},
	"access/policy":                    {"access/directory", "kind/objects", "access/rbac", "object"},
	"access/serviceaccount":            {"internal/task", "kind/objects", "store", "object"},
	"access/registrytoken":             {"registry/v1"},
	"access/signing":                   {"kind/objects", "kind/builtin", "store", "object"},
	"access":                           {"internal/durable", "internal/task", "access/*", "internal/inflight", "kind", "kind/custom", "internal/lockfile", "object"},
	"access/auditlog":                  {},
	"access/accesstest":                {"access", "access/directory", "access/policy", "access/rbac"},
	"admission":                        {"internal/inflight", "kind", "kind/builtin", "object"},
	"console":                          {"internal/task", "access", "sqldb"},
	"api":                              {"api/health", "internal/inflight", "store", "kind", "kind/*", "lifecycle", "object", "access", "access/serviceaccount", "api/*", "access/auditlog", "store/history"},
	"internal/inflight":                {},
	"admission/quota":                  {"store", "review", "kind", "object", "sqldb"},
	"admission/service":                {"store", "kind", "kind/custom", "lifecycle", "object"},
	"kind/apiservice":                  {"internal/task", "kind/objects", "store", "kind", "kind/custom", "lifecycle", "object"},
	"kind/earlier":                     {"store", "kind", "kind/custom", "object"},
	"kind/definition":                  {"internal/task", "store", "kind", "kind/custom", "lifecycle", "object"},
	"kind/migration":                   {"internal/task", "store", "kind", "object"},
	"server":                           {"*"},
	"server/manifests":                 {"internal/task"},
	"cmd/exeunt":                       {"cmd/exeunt/settings", "cmd/exeunt/explain", "cmd/exeunt/past", "cmd/exeunt/expire", "lifecycle", "internal/durable", "internal/task", "internal/testprogram", "access", "backup", "access/v1", "server", "server/manifests", "registry/verify", "bench", "deletion", "deletion/v1", "broker/mesh/agent", "broker/mesh/v1alpha1", "gc", "object", "registry", "registry/collect", "registry/importer", "registry/retain", "registry/v1", "review", "sqldb/schema", "store/seal", "sqldb"},
	"cmd/exeunt/past":                  {"deletion", "deletion/v1"},
	"cmd/exeunt/expire":                {"cmd/exeunt/past", "deletion", "deletion/v1", "lifecycle"},
	"cmd/exeunt/explain":               {},
	"cmd/exeunt/settings":              {"lifecycle", "server"},
	"bench":                            {},
}

// pure packages decide; they touch no disk, no network and no database.
var pure = []string{"object", "lifecycle", "broker"}

// effects is what pure packages must not import, with everything below it.
var effects = []string{"database/sql", "net", "os", "syscall"}

// modules below the root are programs of their own: nothing of ours imports
// them, and their dependencies stay out of the server.
var modules = []string{"test", "exeunttest", "api/openapi/gen", "packaging/release"}

func TestLayers(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || ownModule(s.dir()) {
			continue
		}
		allowed, known := layers[s.dir()]
		if !known {
			t.Errorf("%s: package %s has no line in layers_test.go", s.path, s.dir())
			continue
		}
		for _, imported := range s.imports() {
			ours, ok := strings.CutPrefix(imported, module)
			if !ok {
				continue
			}
			if !permits(allowed, ours) {
				t.Errorf("%s imports %s; package %s may import only %v", s.path, ours, s.dir(), allowed)
			}
			// Helpers for tests must not slip into the binary.
			if strings.HasSuffix(ours, "test") && !strings.HasSuffix(s.dir(), "test") {
				t.Errorf("%s imports the test package %s", s.path, ours)
			}
		}
	}
}

func TestPurePackagesDoNoIO(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, imported := range s.imports() {
			for _, banned := range effects {
				if within(imported, banned) {
					t.Errorf("%s imports %s: package %s is pure", s.path, imported, s.dir())
				}
			}
		}
	}
}

// plain packages import the standard library and nothing else: the domain of the
// broker knows no driver and no Kubernetes.
var plain = []string{"broker"}

func TestPlainPackagesImportTheStandardLibrary(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || !slices.Contains(plain, s.dir()) {
			continue
		}
		for _, imported := range s.imports() {
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s: package %s stands on the standard library alone", s.path, imported, s.dir())
			}
		}
	}
}

// permits reports whether one of the patterns covers a package.
func permits(patterns []string, pkg string) bool {
	for _, pattern := range patterns {
		if pattern == "*" || pattern == pkg {
			return true
		}
		if dir, ok := strings.CutSuffix(pattern, "/*"); ok && path.Dir(pkg) == dir {
			return true
		}
	}
	return false
}

func ownModule(dir string) bool {
	return dir == "." || slices.ContainsFunc(modules, func(m string) bool { return within(dir, m) })
}

func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

// TestPermits holds the table's own language, so that a mistake here does not
// switch the rule off.
func TestPermits(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		pkg      string
		want     bool
	}{
		{nil, "object", false},
		{[]string{"object"}, "object", true},
		{[]string{"object"}, "objects", false},
		{[]string{"kind"}, "kind/custom", false},
		{[]string{"kind/*"}, "kind/custom", true},
		{[]string{"kind/*"}, "kind", false},
		{[]string{"*"}, "anything/at/all", true},
	} {
		if got := permits(c.patterns, c.pkg); got != c.want {
			t.Errorf("permits(%v, %q) = %v, want %v", c.patterns, c.pkg, got, c.want)
		}
	}
}
