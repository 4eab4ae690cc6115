package signing

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
