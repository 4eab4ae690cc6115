package apiservice

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// replica is a Keeper with its own set of kinds, on a store that others may share.
func replica(t *testing.T, st *store.Store, more ...*kind.Kind) *Keeper {
	t.Helper()
	own, err := Kind()
	if err != nil {
		t.Fatal(err)
	}
	kinds := kind.NewRegistry(append(append(builtin.Kinds(), custom.Definition(), own), more...))
	return &Keeper{Writer: objects.Writer{Store: st, Kinds: kinds, Actor: "test"}, Log: slog.New(slog.DiscardHandler)}
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	return storetest.Run(t, store.Options{DB: dbtest.OpenDB(t, sqldb.SQLite)})
}

// widgets is a custom kind and its stored definition.
func widgets(t *testing.T) (*kind.Kind, store.CreateRequest) {
	t.Helper()
	k, err := custom.BuiltIn([]byte(`{spec: {group: test.dev, scope: Cluster, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}, {name: v2, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	k.Definition = "widgets.test.dev"
	return k, storetest.Object(t, object.Key{Kind: object.Definitions, Name: "widgets.test.dev"}, `,"spec":{"group":"test.dev","versions":[{"name":"v1","served":true},{"name":"v2"}]}`)
}

func names(t *testing.T, k *Keeper) []string {
	t.Helper()
	have, err := k.stored(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name := range have {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func synced(t *testing.T, k *Keeper, starting bool) {
	t.Helper()
	if err := k.sync(t.Context(), k.Writer.Kinds.Snapshot(), starting); err != nil {
		t.Fatal(err)
	}
}

func TestOneForEachVersion(t *testing.T) {
	k := replica(t, newStore(t))
	synced(t, k, true)
	var want []string
	kinds := k.Writer.Kinds.Snapshot()
	for _, group := range kinds.Groups() {
		for _, version := range kinds.GroupVersions(group) {
			want = append(want, version+"."+group)
		}
	}
	slices.Sort(want)
	if got := names(t, k); !slices.Equal(got, want) || !slices.Contains(got, "v1.") || !slices.Contains(got, "v2.autoscaling") {
		t.Errorf("got %v, want %v", got, want)
	}
	before := k.Writer.Store.Revision()
	synced(t, k, false)
	if after := k.Writer.Store.Revision(); after != before {
		t.Errorf("a second comparison wrote %d times", after-before)
	}
	obj, err := k.Writer.Get(t.Context(), resource, "", "v1.apps")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(obj)
	if err != nil || !strings.Contains(string(text), `"reason":"Local"`) || !strings.Contains(string(text), `"spec":{"group":"apps","groupPriorityMinimum":17000,"version":"v1","versionPriority":15}`) {
		t.Errorf("v1.apps is %s, %v", text, err)
	}
}

// TestLaggingReplica: a replica that has not served a definition yet does not delete the
// APIService that another one wrote; when the definition is gone, either deletes it.
func TestLaggingReplica(t *testing.T) {
	st := newStore(t)
	k, stored := widgets(t)
	definition := storetest.Create(t, st, stored)
	ahead, behind := replica(t, st, k), replica(t, st)
	synced(t, ahead, true)
	synced(t, behind, true)
	if got := names(t, behind); !slices.Contains(got, "v1.test.dev") {
		t.Fatalf("the replica that is behind left %v", got)
	}
	if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: definition.Key}); err != nil {
		t.Fatal(err)
	}
	synced(t, behind, false)
	if got := names(t, behind); slices.Contains(got, "v1.test.dev") {
		t.Errorf("without a definition there are %v", got)
	}
}

// TestMissingReturns: an APIService that another replica removed too early is written again.
func TestMissingReturns(t *testing.T) {
	k := replica(t, newStore(t))
	synced(t, k, true)
	if _, err := k.Writer.Store.Delete(t.Context(), store.DeleteRequest{Key: object.Key{Kind: object.APIServices, Name: "v1.apps"}}); err != nil {
		t.Fatal(err)
	}
	synced(t, k, false)
	if got := names(t, k); !slices.Contains(got, "v1.apps") {
		t.Errorf("there are only %v", got)
	}
}

// TestTwoReleases: while a newer release runs beside an older one, the older one deletes what
// it does not know only when it starts.
func TestTwoReleases(t *testing.T) {
	st := newStore(t)
	k, _ := widgets(t)
	k.Definition = "" // built into the newer release
	newer, older := replica(t, st, k), replica(t, st)
	synced(t, newer, true)
	synced(t, older, false)
	if got := names(t, older); !slices.Contains(got, "v1.test.dev") {
		t.Errorf("the older release left %v", got)
	}
	synced(t, older, true)
	if got := names(t, older); slices.Contains(got, "v1.test.dev") {
		t.Errorf("after its start there are %v", got)
	}
}

// TestRun: replicas that compare at once agree, and a kind that comes has its APIService soon.
func TestRun(t *testing.T) {
	st := newStore(t)
	k, stored := widgets(t)
	storetest.Create(t, st, stored)
	ctx, cancel := context.WithCancel(t.Context())
	one, other := replica(t, st), replica(t, st)
	done := make(chan error, 2)
	for _, keeper := range []*Keeper{one, other} {
		go func() { done <- keeper.Run(ctx) }()
	}
	one.Writer.Kinds.Put(k)
	dbtest.Until(t, "the new kind has an APIService", func() error {
		if have := names(t, one); !slices.Contains(have, "v1.test.dev") || !slices.Contains(have, "v1.storage.k8s.io") {
			return fmt.Errorf("only %v", have)
		}
		return nil
	})
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
