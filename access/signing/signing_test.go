package signing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// requestOf is a request for a certificate of jane.
func requestOf(t *testing.T) []byte { return requestFor(t, pkix.Name{CommonName: "jane"}) }

func requestFor(t *testing.T, subject pkix.Name) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// TestSweepRemovesWhatItRead: a request that changes between the look and the removal stays until the next sweep.
func TestSweepRemovesWhatItRead(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		key := object.Key{Kind: builtin.SigningRequests, Name: "a"}
		storetest.Create(t, st, storetest.Object(t, key, `,"spec":{}`))
		looks := 0
		s := &Signer{Writer: objects.Writer{Store: st}, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time {
			if looks++; looks == 1 {
				storetest.Update(t, st, key, lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} })
			}
			return time.Now().Add(25 * time.Hour)
		}}
		for _, want := range []bool{true, false} {
			if err := s.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := st.Get(t.Context(), key); (err == nil) != want || err != nil && !object.Is(err, object.NotFound) {
				t.Errorf("after %d looks: %v", looks, err)
			}
		}
	})
}

// TestIsOld: requests leave an hour after their end, and a day after their creation.
func TestIsOld(t *testing.T) {
	now := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		age, decided time.Duration
		condition    certificatesv1.RequestConditionType
		issued       bool
		want         bool
	}{
		"pending":                  {age: 23 * time.Hour},
		"pending for long":         {age: 25 * time.Hour, want: true},
		"issued":                   {age: 2 * time.Hour, decided: 59 * time.Minute, condition: certificatesv1.CertificateApproved, issued: true},
		"issued long ago":          {age: 2 * time.Hour, decided: 61 * time.Minute, condition: certificatesv1.CertificateApproved, issued: true, want: true},
		"approved, not issued":     {age: 2 * time.Hour, decided: 61 * time.Minute, condition: certificatesv1.CertificateApproved},
		"approved and never done":  {age: 25 * time.Hour, decided: 61 * time.Minute, condition: certificatesv1.CertificateApproved, want: true},
		"denied":                   {age: 30 * time.Hour, decided: 59 * time.Minute, condition: certificatesv1.CertificateDenied},
		"denied long ago":          {age: 2 * time.Hour, decided: 61 * time.Minute, condition: certificatesv1.CertificateDenied, want: true},
		"failed long ago":          {age: 2 * time.Hour, decided: 61 * time.Minute, condition: certificatesv1.CertificateFailed, want: true},
		"created a day ago":        {age: 24 * time.Hour},
		"issued an hour ago":       {age: 2 * time.Hour, decided: time.Hour, condition: certificatesv1.CertificateApproved, issued: true},
		"of another type long ago": {age: 2 * time.Hour, decided: 61 * time.Minute, condition: "Other"},
	} {
		r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-test.age))}}
		if test.condition != "" {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: test.condition, LastUpdateTime: metav1.NewTime(now.Add(-test.decided))}}
		}
		if test.issued {
			r.Status.Certificate = []byte("x")
		}
		if got := isOld(r, now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSigns: only an approved request to the signer of clients, which exists and was neither signed nor refused, is looked at.
func TestSigns(t *testing.T) {
	looked := errors.New("looked at")
	s := &Signer{User: func(context.Context, string) (types.UID, error) { return "", looked }}
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		change func(*certificatesv1.CertificateSigningRequest)
		want   bool
	}{
		"approved":          {func(*certificatesv1.CertificateSigningRequest) {}, true},
		"of another signer": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = "example.com/x" }, false},
		"signed":            {func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }, false},
		"being deleted":     {func(r *certificatesv1.CertificateSigningRequest) { r.DeletionTimestamp = &deleted }, false},
		"not approved":      {func(r *certificatesv1.CertificateSigningRequest) { r.Status.Conditions = nil }, false},
		"failed": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions[1].Type = certificatesv1.CertificateFailed
		}, false},
	} {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: requestOf(t), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		}}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}, {Type: "Other"}}
		test.change(r)
		if err := s.sign(t.Context(), r); errors.Is(err, looked) != test.want || err != nil && !test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSignsForTheUserWhoAsked: the certificate is for the User who asked, not for a later one of that name.
func TestSignsForTheUserWhoAsked(t *testing.T) {
	signed := errors.New("signed")
	s := &Signer{
		User: func(context.Context, string) (types.UID, error) { return "second", nil },
		Sign: func(*x509.CertificateRequest, types.UID, time.Duration, time.Time) ([]byte, error) {
			return nil, signed
		},
		Now: time.Now,
	}
	for uid, want := range map[string]bool{"first": false, "second": true, "": true} { // the client that asked is no User
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: requestOf(t), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Username: "jane", Extra: map[string]certificatesv1.ExtraValue{UserKey: {uid}},
		}}
		if uid == "" {
			r.Spec.Extra = nil
		}
		if _, err := s.certificate(t.Context(), r); errors.Is(err, signed) != want {
			t.Errorf("asked by the %s jane: %v", uid, err)
		}
	}
}

// approve is what an approver does to a request.
func approve(t *testing.T, w objects.Writer, name string) {
	t.Helper()
	old, err := w.Get(t.Context(), Requests, "", name)
	if err != nil {
		t.Fatal(err)
	}
	next, at := old.DeepCopyObject().(*certificatesv1.CertificateSigningRequest), metav1.Now()
	next.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "x", LastUpdateTime: at, LastTransitionTime: at}}
	v, _ := w.Kinds.Snapshot().Lookup(Requests)
	body, err := v.Encode(next)
	if err == nil {
		var o object.Object
		o, err = w.Store.Get(t.Context(), object.Key{Kind: builtin.SigningRequests, Name: name})
		if err == nil {
			_, err = w.Store.Update(t.Context(), store.UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: object.MetaOf(next), Body: body})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

var client = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}

func ask(t *testing.T, w objects.Writer, name string, subject pkix.Name, usages []certificatesv1.KeyUsage, seconds *int32) {
	t.Helper()
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: requestFor(t, subject), Usages: usages, ExpirationSeconds: seconds,
	}}
	if err := w.Create(t.Context(), Requests, r); err != nil {
		t.Fatal(err)
	}
}

// TestFaults: a request that cannot be handled, in a sweep or when it changes, holds up no other one, and the fault is
// reported, so that the request is tried again. A request that was changed or removed meanwhile is no fault.
func TestFaults(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		w := objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}
		down := errors.New("the directory is down")
		meanwhile := map[string]func(key object.Key) error{
			"broken": func(object.Key) error { return down },
			"changed": func(key object.Key) error {
				storetest.Update(t, st, key, lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} })
				return nil
			},
			"removed": func(key object.Key) error {
				_, err := st.Delete(t.Context(), store.DeleteRequest{Key: key, Actor: "someone"})
				return err
			},
			"z-last": func(object.Key) error { return nil },
		}
		s := &Signer{
			Writer: w, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
			User: func(_ context.Context, name string) (types.UID, error) {
				return "1", meanwhile[name](object.Key{Kind: builtin.SigningRequests, Name: name})
			},
			Sign: func(r *x509.CertificateRequest, _ types.UID, _ time.Duration, _ time.Time) ([]byte, error) {
				return signed(t, r.Subject.CommonName), nil
			},
		}
		begin := st.Revision()
		for _, name := range slices.Sorted(maps.Keys(meanwhile)) {
			ask(t, w, name, pkix.Name{CommonName: name}, client, nil)
			approve(t, w, name)
		}
		err := s.Sweep(t.Context())
		if !errors.Is(err, down) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("the sweep reports %v, want the one request that is broken", err)
		}
		last, err := w.Get(t.Context(), Requests, "", "z-last")
		if err != nil || len(last.(*certificatesv1.CertificateSigningRequest).Status.Certificate) == 0 {
			t.Errorf("the last one has no certificate: %v", err)
		}
		dbtest.Await(t, "the feed has all", func() bool { return st.Revision() > begin })
		if err := s.follow(t.Context(), begin); !errors.Is(err, down) {
			t.Errorf("the change of a broken one is handled with %v", err)
		}
	})
}

// TestRun: approved requests get their certificate, from before the start and after it, for the time that they ask for and
// a year at most. One that must not be signed fails, and says why.
func TestRun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		w := objects.Writer{Store: st, Kinds: kind.NewRegistry(builtin.Kinds())}
		s := &Signer{
			Writer: w, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
			User: func(context.Context, string) (types.UID, error) { return "1", nil },
			Sign: func(r *x509.CertificateRequest, uid types.UID, life time.Duration, _ time.Time) ([]byte, error) {
				return signed(t, r.Subject.CommonName+" "+string(uid)+" "+life.String()), nil
			},
		}
		hour, years := int32(3600), int32(10*365*24*3600)
		rows := []struct {
			name    string
			subject pkix.Name
			usages  []certificatesv1.KeyUsage
			seconds *int32
			want    string // the certificate is for; or "failed: " and why
		}{
			{"plain", pkix.Name{CommonName: "jane"}, client, nil, "jane 1 8760h0m0s"},
			{"short", pkix.Name{CommonName: "jane"}, client, &hour, "jane 1 1h0m0s"},
			{"long", pkix.Name{CommonName: "jane"}, client, &years, "jane 1 8760h0m0s"},
			{"server", pkix.Name{CommonName: "jane"}, append([]certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}, client...), nil, "failed: invalid usage for client certificate: server auth"},
			{"useless", pkix.Name{CommonName: "jane"}, client[1:], nil, "failed: missing required usage for client certificate: client auth"},
			{"nameless", pkix.Name{Organization: []string{"ops"}}, client, nil, "failed: the request has no common name, which is the name of the user"},
			{"admin", pkix.Name{CommonName: "jane", Organization: []string{"system:masters"}}, client, nil, "failed: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		}
		for i, row := range rows {
			ask(t, w, row.name, row.subject, row.usages, row.seconds)
			approve(t, w, row.name)
			if i == 0 { // the others come while it runs
				storetest.Background(t, s.Run)
			}
		}
		for _, row := range rows {
			var got string
			dbtest.Await(t, row.name+" is answered", func() bool {
				obj, err := w.Get(t.Context(), Requests, "", row.name)
				if err != nil {
					t.Fatal(err)
				}
				r := obj.(*certificatesv1.CertificateSigningRequest)
				for _, c := range r.Status.Conditions {
					if c.Type == certificatesv1.CertificateFailed {
						got = "failed: " + c.Message
					}
				}
				if block, _ := pem.Decode(r.Status.Certificate); block != nil {
					certificate, err := x509.ParseCertificate(block.Bytes)
					if err != nil {
						t.Fatal(err)
					}
					got += certificate.Subject.CommonName
				}
				return got != ""
			})
			if got != row.want {
				t.Fatalf("%s: %q, want %q", row.name, got, row.want)
			}
		}
	})
}

// signed is a certificate with this name.
func signed(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
