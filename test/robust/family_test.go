package robust_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// family is an owner with dependents and theirs. One dependent has a second owner, which
// stays, so that this dependent stays too.
type family struct {
	owner   string // uid
	keeper  string // uid
	policy  string
	members map[string]string // uids of the dependents by name
	shared  string            // the name of the dependent with two owners
	deleted bool              // the delete was acknowledged
}

// breeder creates families and deletes their owners, with each policy in turn.
type breeder struct {
	replicas []api
	rng      *rand.Rand

	mu       sync.Mutex
	families []*family // guarded by mu
}

func (b *breeder) run(ctx context.Context) {
	policies := []string{"Background", "Foreground", "Orphan"}
	for i := 0; ctx.Err() == nil; i++ {
		f := &family{policy: policies[i%len(policies)], members: map[string]string{}}
		if !b.create(ctx, f, fmt.Sprintf("f-%d", i)) {
			return
		}
		b.mu.Lock()
		b.families = append(b.families, f)
		b.mu.Unlock()
		body, _ := json.Marshal(map[string]any{"propagationPolicy": f.policy, "preconditions": map[string]string{"uid": f.owner}})
		a := b.must(ctx, "DELETE", collection+fmt.Sprintf("/f-%d", i), string(body))
		b.mu.Lock()
		f.deleted = a.code != 0
		b.mu.Unlock()
	}
}

// create makes the members, each through any replica.
func (b *breeder) create(ctx context.Context, f *family, name string) bool {
	f.owner, f.keeper = b.object(ctx, name), b.object(ctx, name+"-keeper")
	parents := []string{name, f.owner}
	for i := range 6 {
		child := fmt.Sprintf("%s-%d", name, i)
		owners := []string{parents[0], parents[1]}
		if i == 0 {
			f.shared, owners = child, append(owners, name+"-keeper", f.keeper)
		}
		uid := b.object(ctx, child, owners...)
		if uid == "" {
			return false
		}
		f.members[child] = uid
		if i == 3 {
			parents = []string{child, uid} // the rest are dependents of a dependent
		}
	}
	return true
}

// object creates a ConfigMap with owners, given by name and uid, and returns its uid.
func (b *breeder) object(ctx context.Context, name string, owners ...string) string {
	references := []string{}
	for i := 0; i < len(owners); i += 2 {
		references = append(references, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}`, owners[i], owners[i+1]))
	}
	b.must(ctx, "POST", collection, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[%s]}}`, name, strings.Join(references, ",")))
	return b.must(ctx, "GET", collection+"/"+name, "").object().Metadata.UID
}

// must repeats a request until a replica has done or refused it: 409 and 404 are the
// answers to a repetition.
func (b *breeder) must(ctx context.Context, method, path, body string) answer {
	for ctx.Err() == nil {
		a := b.replicas[b.rng.IntN(len(b.replicas))].do(ctx, method, path, body)
		if a.code >= 200 && a.code < 300 || a.code == 409 || a.code == 404 {
			return a
		}
		time.Sleep(20 * time.Millisecond)
	}
	return answer{}
}

// check waits until the cascades have ended, and compares. Uids count, not names: a create
// whose answer was lost may arrive late.
func (b *breeder) check(t *testing.T, h *harness.HTTP, events []event) {
	t.Helper()
	gone := map[string]bool{}
	for _, e := range events {
		if e.Type == "DELETED" {
			gone[e.UID] = true
		}
	}
	archived := archive(t, h)
	for _, f := range b.families {
		if !f.deleted {
			continue
		}
		if !gone[f.owner] {
			t.Errorf("the owner %s was deleted (%s) and is there", f.owner, f.policy)
		}
		for name, uid := range f.members {
			stays := f.policy == "Orphan" || name == f.shared
			if gone[uid] == stays {
				t.Errorf("%s (%s): gone: %v; it should stay: %v", name, f.policy, gone[uid], stays)
			}
		}
		if gone[f.keeper] {
			t.Errorf("the second owner %s is gone", f.keeper)
		}
	}
	for uid := range gone {
		if !archived[uid] {
			t.Errorf("%s was removed and is not in the archive", uid)
		}
		delete(archived, uid)
	}
	for uid := range archived {
		t.Errorf("%s is in the archive, and no watch saw it go", uid)
	}
}

// archive returns the uids of the namespace's archived ConfigMaps.
func archive(t *testing.T, h *harness.HTTP) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for next := ""; ; {
		var list struct {
			Metadata struct{ Continue string }
			Items    []struct{ Spec struct{ UID, Kind string } }
		}
		a := h.Get(t, "/apis/lifecycle.exeunt.dev/v1/namespaces/"+namespace+"/archivedobjects?limit=500&continue="+next)
		if err := json.Unmarshal(a.Body, &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.Spec.Kind == "ConfigMap" {
				found[o.Spec.UID] = true
			}
		}
		if next = list.Metadata.Continue; next == "" {
			return found
		}
	}
}
