package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/admission/service"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a store with the kinds of a server that gives addresses of a range.
type world struct {
	t         *testing.T
	store     *store.Store
	kinds     *kind.Registry
	addresses *service.Addresses
}

func newWorld(t *testing.T, cidr string) *world {
	t.Helper()
	return newWorldIn(t, dbtest.OpenDB(t, sqldb.SQLite), cidr)
}

func newWorldIn(t *testing.T, db *sqldb.DB, cidr string) *world {
	t.Helper()
	ctx, st := t.Context(), storetest.Run(t, store.Options{DB: db})
	w := &world{t: t, store: st, kinds: kind.NewRegistry(builtin.Kinds())}
	w.addresses = &service.Addresses{Store: st, Kinds: w.kinds, Range: netip.MustParsePrefix(cidr), Log: slog.New(slog.DiscardHandler)}
	ports, err := service.NodePortKind()
	if err != nil {
		t.Fatal(err)
	}
	w.kinds.Put(builtin.Services(w.addresses.Attach), ports)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	v, _ := w.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("namespaces"))
	made, _, err := v.Prepare(ctx, v.Strategy, ns, lifecycle.Creation{Now: time.Now(), UID: types.UID(uuid.NewString())}, nil)
	if err == nil {
		_, err = st.Create(ctx, store.RequestFor(made))
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// create stores a Service as the API does.
func (w *world) create(ctx context.Context, name string, spec corev1.ServiceSpec) (svc *corev1.Service, warnings []string, err error) {
	v, _ := w.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("services"))
	for {
		svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: *spec.DeepCopy()}
		if svc.Spec.Ports == nil {
			svc.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		}
		builtin.Scheme().Default(svc)
		made, warnings, err := v.Prepare(ctx, v.Strategy, svc, lifecycle.Creation{Namespace: "shop", Now: time.Now(), UID: types.UID(uuid.NewString())}, nil)
		if err != nil {
			return nil, warnings, err
		}
		if _, err = w.store.Create(ctx, store.RequestFor(made)); !errors.Is(err, object.ErrAgain) {
			return svc, warnings, err
		}
	}
}

func (w *world) reserved() int { return len(w.names("ipaddresses.networking.k8s.io")) }

func (w *world) names(kind string) (out []string) {
	w.t.Helper()
	listing, err := w.store.List(context.Background(), store.ListRequest{Kind: kind})
	if err != nil {
		w.t.Fatal(err)
	}
	for listing.Next() {
		out = append(out, listing.Object().Name)
	}
	if err := listing.Err(); err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) remove(name string) {
	w.t.Helper()
	if _, err := w.store.Delete(context.Background(), store.DeleteRequest{Key: object.Key{Kind: "services", Namespace: "shop", Name: name}}); err != nil {
		w.t.Fatal(err)
	}
}

// TestAddressesAreUnique creates more Services at once than a range has addresses: each
// address is given once, and the others are refused. What a removed Service had is given again.
func TestAddressesAreUnique(t *testing.T) {
	w := newWorld(t, "10.0.0.0/28") // 14 addresses
	ctx := t.Context()
	var mu sync.Mutex
	given, full := map[string]string{}, 0
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			svc, _, err := w.create(ctx, fmt.Sprintf("s-%d", i), corev1.ServiceSpec{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && given[svc.Spec.ClusterIP] == "":
				given[svc.Spec.ClusterIP] = svc.Name
			case err == nil:
				t.Errorf("%s was given twice", svc.Spec.ClusterIP)
			case object.Is(err, object.Forbidden) && strings.Contains(err.Error(), "full"):
				full++
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(given) != 14 || full != 6 || w.reserved() != 14 {
		t.Fatalf("%d addresses were given, %d Services refused, %d are reserved", len(given), full, w.reserved())
	}
	w.remove(given["10.0.0.3"])
	if err := w.addresses.Scan(ctx); err != nil {
		t.Fatal(err)
	}
	if svc, _, err := w.create(ctx, "late", corev1.ServiceSpec{}); err != nil || svc.Spec.ClusterIP != "10.0.0.3" {
		t.Errorf("the next Service: %v", err)
	}
}

// TestNoReservationWithoutItsService: a create that is refused leaves no reservation.
func TestNoReservationWithoutItsService(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx := t.Context()
	if _, _, err := w.create(ctx, "web", corev1.ServiceSpec{ClusterIP: "10.0.0.9"}); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]corev1.ServiceSpec{"web": {}, "other": {ClusterIP: "10.0.0.9"}, "outside": {ClusterIP: "10.1.0.1"}} {
		_, _, err := w.create(ctx, name, spec)
		want := object.Invalid
		if name == "web" {
			want = object.AlreadyExists
		}
		if !object.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spec := range map[string]corev1.ServiceSpec{
		"headless": {ClusterIP: corev1.ClusterIPNone}, "elsewhere": {Type: corev1.ServiceTypeExternalName, ExternalName: "a.b"},
	} {
		if svc, _, err := w.create(ctx, name, spec); err != nil || svc.Spec.ClusterIP != spec.ClusterIP {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.reserved(); n != 1 {
		t.Errorf("%d addresses are reserved", n)
	}
}

// TestRemovedServicesGiveTheirAddressBack follows the store, as every replica does.
func TestRemovedServicesGiveTheirAddressBack(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.addresses.Run(ctx) }()
	for i := range 3 {
		if _, _, err := w.create(ctx, fmt.Sprintf("s-%d", i), corev1.ServiceSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	w.remove("s-0")
	w.remove("s-2")
	dbtest.Await(t, "one address is left", func() bool { return w.reserved() == 1 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRestoredServiceKeepsItsAddressIfFree: otherwise it gets another, and a warning.
func TestRestoredServiceKeepsItsAddressIfFree(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx := kind.Restoring(t.Context())
	if svc, warnings, err := w.create(ctx, "free", corev1.ServiceSpec{ClusterIP: "10.0.0.5"}); err != nil || svc.Spec.ClusterIP != "10.0.0.5" || len(warnings) > 0 {
		t.Errorf("free: %v, %v", warnings, err)
	}
	svc, warnings, err := w.create(ctx, "taken", corev1.ServiceSpec{ClusterIP: "10.0.0.5"})
	if err != nil || svc.Spec.ClusterIP == "10.0.0.5" || len(warnings) != 1 {
		t.Fatalf("taken: %v, %v", warnings, err)
	}
	if want := "the clusterIP 10.0.0.5 is not free any more: the Service has " + svc.Spec.ClusterIP + " now"; warnings[0] != want {
		t.Errorf("the warning is %q", warnings[0])
	}
}

// TestRestoredAtOnce: a Service that is restored, or created again, right after its removal
// has its address and its port, although its own reservations may still stand. Of a Service
// that exists nothing is taken.
func TestRestoredAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWorldIn(t, db, "10.0.0.0/24")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.addresses.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		spec := nodePortSpec(30123)
		spec.ClusterIP = "10.0.0.5"
		if _, _, err := w.create(ctx, "web", spec); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			again := kind.Restoring(ctx)
			if i%2 == 1 {
				again = ctx
			}
			if svc, _, err := w.create(again, "thief", spec); err == nil && (svc.Spec.ClusterIP == "10.0.0.5" || svc.Spec.Ports[0].NodePort == 30123) {
				t.Fatalf("another Service took %s and %d", svc.Spec.ClusterIP, svc.Spec.Ports[0].NodePort)
			} else if err == nil {
				w.remove("thief")
			}
			w.remove("web")
			svc, warnings, err := w.create(again, "web", spec)
			if err != nil || len(warnings) > 0 || svc.Spec.ClusterIP != "10.0.0.5" || svc.Spec.Ports[0].NodePort != 30123 {
				t.Fatalf("%d: %v, %v", i, warnings, err)
			}
		}
	})
}

// TestUpdateReservesAnAddress: a Service that stops being external gets an address in the
// transaction of the update.
func TestUpdateReservesAnAddress(t *testing.T) {
	w := newWorld(t, "10.0.0.0/24")
	ctx := t.Context()
	if _, _, err := w.create(ctx, "web", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.b"}); err != nil {
		t.Fatal(err)
	}
	key := object.Key{Kind: "services", Namespace: "shop", Name: "web"}
	current, err := w.store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := w.kinds.Snapshot().Lookup(corev1.SchemeGroupVersion.WithResource("services"))
	old, err := v.Decode(current.Body, current.ResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	next := old.DeepCopyObject().(*corev1.Service)
	next.Spec.Type, next.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	attached, err := w.addresses.Attach(ctx, next, old)
	if err != nil || len(attached.Objects) != 1 {
		t.Fatalf("%v, %v", attached, err)
	}
	body, err := v.Encode(next)
	if err != nil {
		t.Fatal(err)
	}
	request := store.UpdateRequest{
		Key: key, IfRevision: current.Revision - 1, Meta: object.MetaOf(next), Body: body, With: []store.CreateRequest{store.RequestFor(attached.Objects[0])},
	}
	if _, err := w.store.Update(ctx, request); !object.Is(err, object.Conflict) || w.reserved() != 0 {
		t.Errorf("an update that lost: %v, %d reserved", err, w.reserved())
	}
	request.IfRevision = current.Revision
	if updated, err := w.store.Update(ctx, request); err != nil || updated.Revision <= current.Revision || w.reserved() != 1 {
		t.Errorf("update: %v, %d reserved", err, w.reserved())
	}
}

func TestParseRange(t *testing.T) {
	for text, want := range map[string]bool{
		"10.96.0.0/12": true, "10.0.0.0/8": true, "10.0.0.0/30": true,
		"8.0.0.0/7": false, "10.0.0.0/31": false, "10.96.0.1/12": false, "fd00::/16": false, "10.96.0.0": false, "": false,
	} {
		if _, err := service.ParseRange(text); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
