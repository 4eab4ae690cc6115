package broker_test

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
)

// TestStandardLibraryOnly: the domain imports no driver, nothing of Kubernetes, and no
// package of the standard library that leaves the process.
func TestStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(path, "/")
			// Only import paths of the standard library have no dot in the first element.
			if strings.Contains(first, ".") || slices.Contains([]string{"os", "net", "database", "syscall", "io"}, first) {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d files were checked", checked)
	}
}

func TestSentinels(t *testing.T) {
	t.Parallel()
	if len(sentinels) != 9 {
		t.Fatalf("%d errors, want nine", len(sentinels))
	}
	for i, err := range sentinels {
		wantError(t, fmt.Errorf("somewhere: %w", &broker.FieldError{Field: "f", Detail: "d", Err: err}), err)
		wantError(t, broker.FieldErrors{{Field: "f", Detail: "d", Err: err}}, err)
		for _, other := range sentinels[i+1:] {
			if err.Error() == other.Error() {
				t.Errorf("two errors say %q", err)
			}
		}
	}
}

func TestNewServiceNeedsItsPorts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*broker.Config)
		want   string
	}{
		"repository":  {func(c *broker.Config) { c.Repository = nil }, "broker service: a Repository is required"},
		"blueprints":  {func(c *broker.Config) { c.Blueprints = nil }, "broker service: a BlueprintCatalog is required"},
		"credentials": {func(c *broker.Config) { c.Credentials = nil }, "broker service: a CredentialDirectory is required"},
		"namespaces":  {func(c *broker.Config) { c.Namespaces = nil }, "broker service: a NamespaceGate is required"},
		"tokens":      {func(c *broker.Config) { c.Tokens = nil }, "broker service: a TokenIssuer is required"},
		"emitter":     {func(c *broker.Config) { c.Emitter = nil }, "broker service: an Emitter is required"},
		"two":         {func(c *broker.Config) { c.Emitter, c.Tokens = nil, nil }, "broker service: a TokenIssuer is required\nbroker service: an Emitter is required"},
		"a short TTL": {func(c *broker.Config) { c.TokenTTL = time.Minute }, broker.ErrServiceTokenTTL.Error() + ": it is 1m0s"},
		"a long TTL":  {func(c *broker.Config) { c.TokenTTL = 25 * time.Hour }, broker.ErrServiceTokenTTL.Error() + ": it is 25h0m0s"},
	} {
		c := newHarness(t).config
		test.change(&c)
		if s, err := broker.NewService(c); err == nil || err.Error() != test.want || s != nil {
			t.Errorf("%s: got %v, %v", name, s, err)
		}
	}
	for _, life := range []time.Duration{0, 5 * time.Minute, 24 * time.Hour} { // the shortest and the longest are accepted
		c := newHarness(t).config
		c.TokenTTL = life
		if _, err := broker.NewService(c); err != nil {
			t.Errorf("tokens that live for %s: %v", life, err)
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	want := []broker.EventType{
		"broker.ProvisionedResourceRequested", "broker.ProvisionedResourceReady", "broker.ProvisionedResourceFailed",
		"broker.ProvisionedResourceDeleting", "broker.ProvisionedResourceDeleted",
	}
	seen := map[broker.OutboxToken]bool{}
	for _, e := range []broker.Event{
		broker.ProvisionedResourceRequested{}, broker.ProvisionedResourceReady{}, broker.ProvisionedResourceFailed{},
		broker.ProvisionedResourceDeleting{}, broker.ProvisionedResourceDeleted{},
	} {
		if e.EventType() != want[0] {
			t.Errorf("%T is %s, want %s", e, e.EventType(), want[0])
		}
		want = want[1:]
		for _, id := range []broker.ProvisionedResourceID{"a", "b"} {
			token := broker.NewOutboxToken(id, e.EventType())
			if seen[token] || token != broker.NewOutboxToken(id, e.EventType()) {
				t.Errorf("the token %s does not identify one event", token)
			}
			seen[token] = true
		}
	}
}

func TestParsePhase(t *testing.T) {
	t.Parallel()
	if n := len(broker.Phases()); n != 8 {
		t.Errorf("%d phases, want eight", n)
	}
	for _, p := range broker.Phases() {
		if got, err := broker.ParsePhase(string(p)); err != nil || got != p {
			t.Errorf("%s: got %s, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "pending", "Ready ", "Melting"} {
		if got, err := broker.ParsePhase(s); err == nil {
			t.Errorf("%q: got %s, want an error", s, got)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	good := newHarness(t).in(broker.PhaseReady, "t1").State()
	for name, change := range map[string]func(*broker.State){
		"no id":                           func(s *broker.State) { s.ID = "" },
		"no project":                      func(s *broker.State) { s.Project = "" },
		"no name":                         func(s *broker.State) { s.Name = "" },
		"no deadline":                     func(s *broker.State) { s.Deadline = 0 },
		"teardown without a request":      func(s *broker.State) { s.Phase = broker.PhaseDeprovisioning },
		"a request without teardown":      func(s *broker.State) { s.DeletionRequestedAt = start },
		"a request and a phase not known": func(s *broker.State) { s.Phase, s.DeletionRequestedAt = unknown, start },
		"Deleted without a request":       func(s *broker.State) { s.Phase = broker.PhaseDeleted },
	} {
		s := good
		change(&s)
		if r, err := broker.Restore(s); !errors.Is(err, broker.ErrInvalidRequest) {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
}

// TestResourceIsAValue: changes of arguments or results do not change the resource.
func TestResourceIsAValue(t *testing.T) {
	t.Parallel()
	s := newHarness(t).in(broker.PhaseReady, "t1").State()
	s.Parameters = broker.Parameters{"a": "1"}
	r, err := broker.Restore(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Parameters["a"] = "2"
	r.State().Parameters["a"] = "3"
	if got := r.State().Parameters["a"]; got != "1" {
		t.Errorf("the parameter is %v", got)
	}
	if _, requested := r.RequestDeletion(start); !requested || r.Phase() != broker.PhaseReady {
		t.Errorf("RequestDeletion changed the resource: %s, %t", r.Phase(), requested)
	}
}

func TestRequestDeletion(t *testing.T) {
	t.Parallel()
	later := start.Add(time.Hour)
	for _, phase := range phases() {
		r, requested := newHarness(t).in(phase, "t1").RequestDeletion(later)
		if slices.Contains(goingDown, phase) {
			if requested || r.Phase() != phase || !r.State().DeletionRequestedAt.Equal(start) {
				t.Errorf("%s: a second request changed it: %+v", phase, r.State())
			}
			continue
		}
		if !requested || r.Phase() != broker.PhaseDeregistering || !r.State().DeletionRequestedAt.Equal(later) || r.TokenID() != "t1" {
			t.Errorf("%s: got %+v, %t", phase, r.State(), requested)
		}
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	for _, phase := range phases() {
		r := newHarness(t).in(phase, "")
		if r.Overdue(start.Add(time.Hour - 1)) {
			t.Errorf("%s: overdue before its deadline", phase)
		}
		exempt := phase == broker.PhaseReady || slices.Contains(goingDown, phase)
		if got := r.Overdue(start.Add(time.Hour)); got == exempt {
			t.Errorf("%s: overdue %t", phase, got)
		}
	}
}

func TestXRName(t *testing.T) {
	t.Parallel()
	base := newHarness(t).in(broker.PhaseReady, "").State()
	seen := map[string]bool{}
	for _, name := range []string{"web", strings.Repeat("a", 63), strings.Repeat("a", 51) + "-bcdefghijkl"} {
		for _, id := range []broker.ProvisionedResourceID{"id-1", "id-2"} {
			s := base
			s.Name, s.ID = name, id
			r, err := broker.Restore(s)
			if err != nil {
				t.Fatal(err)
			}
			got := r.XRName()
			if len(got) > 63 || seen[got] || strings.Contains(got, "--") || got != r.XRName() {
				t.Errorf("%s, %s: %s", name, id, got)
			}
			seen[got] = true
		}
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	r := newHarness(t).in(broker.PhaseEnrolling, "t2")
	token := func(state broker.TokenState, delivered broker.BootstrapTokenID) broker.TokenState {
		return broker.Fold(r, broker.Reads{Token: state, Substrate: broker.ObservedSubstrate{DeliveredToken: delivered}}).Token
	}
	for _, test := range []struct {
		state     broker.TokenState
		delivered broker.BootstrapTokenID
		want      broker.TokenState
	}{
		{broker.TokenIssued, "t2", broker.TokenIssued},
		{broker.TokenIssued, "", broker.TokenUndelivered},
		{broker.TokenIssued, "t1", broker.TokenUndelivered},
		{broker.TokenConsumed, "t1", broker.TokenConsumed},
		{broker.TokenExpired, "", broker.TokenExpired},
		{broker.TokenNone, "", broker.TokenNone},
	} {
		if got := token(test.state, test.delivered); got != test.want {
			t.Errorf("%q, delivered %q: %q, want %q", test.state, test.delivered, got, test.want)
		}
	}
	o := broker.Fold(r, broker.Reads{
		Namespace: broker.NamespaceReady, NodeRegistered: true, Overdue: true,
		Reasons: []broker.Reason{{Holder: broker.HolderPeer}},
		Substrate: broker.ObservedSubstrate{ProviderConfigExists: true, SecretExists: true, XRExists: true, XRDeleting: true, XRReady: true, XRFailed: true,
			Reasons: []broker.Reason{{Holder: broker.HolderFinalizer}}},
	})
	if !o.NamespaceReady || !o.NodeRegistered || !o.Overdue || !o.ProviderConfigExists || !o.SecretExists || !o.XRExists || !o.XRDeleting || !o.XRReady || !o.XRFailed || len(o.Reasons) != 2 {
		t.Errorf("got %+v", o)
	}
	for _, s := range []broker.NamespaceState{broker.NamespaceMissing, broker.NamespacePending, broker.NamespaceTerminating, "", "ready"} {
		if broker.Fold(r, broker.Reads{Namespace: s}).NamespaceReady {
			t.Errorf("a namespace that is %q counts as ready", s)
		}
	}
}
