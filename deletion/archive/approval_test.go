package archive

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"testing"

	"github.com/tidwall/gjson"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestApprovalIsNotRestored: a restored request for a certificate is not approved, whoever
// restores it: one approval is for one certificate. The client that restores is the
// requestor, as of a new request.
func TestApprovalIsNotRestored(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	for name, status := range map[string]string{
		"approved": `{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}`,
		"signed":   `{"certificate":"eA==","conditions":[{"type":"Approved","status":"True","reason":"Test"}]}`,
		"denied":   `{"conditions":[{"type":"Denied","status":"True","reason":"Test"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				r := storetest.Object(w, object.Key{Kind: object.SigningRequests, Name: "r"}, fmt.Sprintf(
					`,"spec":{"request":%q,"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"username":"jane","groups":["system:authenticated"]},"status":%s`, text, status))
				o := storetest.Create(w, w.store, r)
				w.delete(o, background)
				code, answer := w.serve("op cluster-admin")("POST", group+"/restores", fmt.Sprintf(
					`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"uid":%q}}`, o.UID), "Impersonate-User: op")
				if code != http.StatusCreated || gjson.Get(answer, "status.results.0.outcome").String() != string(v1.Created) {
					w.Fatalf("restore: %d %s", code, answer)
				}
				now, _ := w.get(object.SigningRequests + ":/r")
				if got := gjson.GetBytes(now.Body, "status"); got.Get("conditions").Exists() || got.Get("certificate").Exists() {
					w.Errorf("the status came back: %s", got)
				}
				if who := gjson.GetBytes(now.Body, "spec.username").String(); who != "op" {
					w.Errorf("the requestor is %q", who)
				}
			})
		})
	}
}
