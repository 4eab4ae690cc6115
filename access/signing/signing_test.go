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
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
func requestOf(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
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
	for uid, want := range map[string]bool{"first": false, "second": true} {
		r := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientSignerName, Request: requestOf(t), Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			Username: "jane", Extra: map[string]certificatesv1.ExtraValue{UserKey: {uid}},
		}}
		if _, err := s.certificate(t.Context(), r); errors.Is(err, signed) != want {
			t.Errorf("asked by the %s jane: %v", uid, err)
		}
	}
}
