package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	v1 "github.com/exeunt/exeunt/access/v1"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// people is a server and its users.
type people struct {
	*running
	key *ecdsa.PrivateKey
}

func (p *people) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// add creates a User with a token and returns its client.
func (p *people) add(name string) *kubernetes.Clientset {
	p.t.Helper()
	token := v1.NewToken()
	body, err := json.Marshal(v1.User{
		TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "User"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.UserSpec{Groups: []string{"developers"}, Tokens: []v1.Token{{Name: "first", SHA256: v1.Hash(token)}}},
	})
	p.must(err)
	p.must(p.client.RESTClient().Post().AbsPath("/apis/access.exeunt.dev/v1/users").Body(body).Do(p.t.Context()).Error())
	config := rest.AnonymousClientConfig(p.http)
	config.BearerToken = token
	return p.clientOf(config, name)
}

func (p *people) remove(name string) {
	p.t.Helper()
	p.must(p.client.RESTClient().Delete().AbsPath("/apis/access.exeunt.dev/v1/users/" + name).Do(p.t.Context()).Error())
}

// clientOf waits until the server knows the client by a name.
func (p *people) clientOf(config *rest.Config, name string) *kubernetes.Clientset {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(config)
	p.must(err)
	dbtest.Await(p.t, "the server knows "+name, func() bool { return p.whoami(client).Username == name })
	return client
}

func (p *people) whoami(client *kubernetes.Clientset) authenticationv1.UserInfo {
	answer, err := client.AuthenticationV1().SelfSubjectReviews().Create(p.t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}
	}
	return answer.Status.UserInfo
}

// grant lets a user do something in the whole cluster.
func (p *people) grant(name, verb, resource, object string) {
	p.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + verb}, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{verb}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{resource},
	}}}
	if object != "" {
		role.Rules[0].ResourceNames = []string{object}
	}
	_, err := p.client.RbacV1().ClusterRoles().Create(p.t.Context(), role, metav1.CreateOptions{})
	p.must(err)
	_, err = p.client.RbacV1().ClusterRoleBindings().Create(p.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{})
	p.must(err)
}

// request asks for a certificate of a subject.
func (p *people) request(client *kubernetes.Clientset, name string, subject pkix.Name, usages ...certificatesv1.KeyUsage) (*certificatesv1.CertificateSigningRequest, error) {
	p.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, p.key)
	p.must(err)
	hour := int32(3600)
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: append(usages, certificatesv1.UsageClientAuth), ExpirationSeconds: &hour,
		Username: "root", UID: "1", Groups: []string{"system:masters"}, Extra: map[string]certificatesv1.ExtraValue{"access.exeunt.dev/user-uid": {"x"}},
	}}
	return client.CertificatesV1().CertificateSigningRequests().Create(p.t.Context(), r, metav1.CreateOptions{})
}

func (p *people) approve(client *kubernetes.Clientset, r *certificatesv1.CertificateSigningRequest) error {
	r = r.DeepCopy()
	r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "KubectlApprove"}}
	_, err := client.CertificatesV1().CertificateSigningRequests().UpdateApproval(p.t.Context(), r.Name, r, metav1.UpdateOptions{})
	return err
}

// settled waits until a request has its certificate, or has failed.
func (p *people) settled(name string) *certificatesv1.CertificateSigningRequest {
	p.t.Helper()
	var r *certificatesv1.CertificateSigningRequest
	dbtest.Await(p.t, name+" is signed or fails", func() (done bool) {
		var err error
		r, err = p.client.CertificatesV1().CertificateSigningRequests().Get(p.t.Context(), name, metav1.GetOptions{})
		return err == nil && (len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 1)
	})
	return r
}

// failed checks that an approved request gets no certificate, for a reason.
func (p *people) failed(r *certificatesv1.CertificateSigningRequest, why string) {
	p.t.Helper()
	got := p.settled(r.Name).Status
	if len(got.Certificate) > 0 || got.Conditions[1].Type != certificatesv1.CertificateFailed || !strings.Contains(got.Conditions[1].Message, why) {
		p.t.Errorf("%s: %+v, want a failure: %s", r.Name, got, why)
	}
}

// withCertificate is a client by the certificate of a request.
func (p *people) withCertificate(r *certificatesv1.CertificateSigningRequest) *rest.Config {
	p.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(p.key)
	p.must(err)
	config := rest.AnonymousClientConfig(p.http)
	config.CertData, config.KeyData = r.Status.Certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return config
}

// TestCertificateRequests: a user gets a certificate by a request that another approves;
// neither name nor groups nor uid can be forged; removing the user ends the certificate.
func TestCertificateRequests(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &people{start(t, Config{Data: t.TempDir()}), key}
	jane, carl := p.add("jane"), p.add("carl")
	p.grant("jane", "create", "certificatesigningrequests", "")
	p.grant("jane", "update", "certificatesigningrequests/approval", "")
	p.grant("carl", "update", "certificatesigningrequests/approval", "")
	p.grant("carl", "approve", "signers", certificatesv1.KubeAPIServerClientSignerName)
	var made *certificatesv1.CertificateSigningRequest
	dbtest.Await(t, "jane may ask", func() bool {
		made, err = p.request(jane, "jane-1", pkix.Name{CommonName: "jane", Organization: []string{"ops"}, ExtraNames: []pkix.AttributeTypeAndValue{
			{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "forged"},
		}})
		return err == nil
	})
	if who := p.whoami(jane); made.Spec.Username != "jane" || made.Spec.UID != who.UID || slices.Contains(made.Spec.Groups, "system:masters") ||
		len(made.Spec.Extra["access.exeunt.dev/user-uid"]) != 1 || made.Spec.Extra["access.exeunt.dev/user-uid"][0] != who.UID {
		t.Errorf("the requestor is %+v, jane is %+v", made.Spec, who)
	}
	if _, err := p.request(p.client, "masters", pkix.Name{CommonName: "x", Organization: []string{"system:masters"}}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed") {
		t.Errorf("a request for system:masters: %v", err)
	}
	dbtest.Await(t, "jane's approval is refused for the signer alone", func() bool {
		err := p.approve(jane, made)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `cannot approve resource "signers" in API group "certificates.k8s.io"`)
	})
	dbtest.Await(t, "carl may approve", func() bool { return p.approve(carl, made) == nil })
	signed := p.settled("jane-1")
	block, _ := pem.Decode(signed.Status.Certificate)
	cert, err := x509.ParseCertificate(block.Bytes)
	p.must(err)
	if left := time.Until(cert.NotAfter); left > time.Hour || left < 50*time.Minute || !slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || cert.IsCA {
		t.Errorf("the certificate ends in %s, usages %v, authority %v", left, cert.ExtKeyUsage, cert.IsCA)
	}
	byCertificate := p.clientOf(p.withCertificate(signed), "jane")
	if who := p.whoami(byCertificate); slices.Contains(who.Groups, "developers") || !slices.Contains(who.Groups, "ops") || who.UID != p.whoami(jane).UID {
		t.Errorf("by her certificate jane is %+v", who)
	}

	// A request that was approved after its user was removed fails, also if the name is
	// back; the certificate from before ends.
	late, err := p.request(jane, "jane-2", pkix.Name{CommonName: "jane"})
	p.must(err)
	gone, err := p.request(jane, "jane-3", pkix.Name{CommonName: "jane"})
	p.must(err)
	usage, err := p.request(p.client, "server", pkix.Name{CommonName: "x"}, certificatesv1.UsageServerAuth)
	p.must(err)
	p.remove("jane")
	dbtest.Await(t, "the certificate ends with its user", func() bool { return p.whoami(byCertificate).Username == "" })
	p.must(p.approve(p.client, gone)) // while nobody has the name
	p.failed(gone, "was removed")
	p.add("jane")
	if who := p.whoami(byCertificate); who.Username != "" {
		t.Errorf("the certificate of the first jane is good for the second: %+v", who)
	}
	for r, why := range map[*certificatesv1.CertificateSigningRequest]string{late: "was removed", usage: "invalid usage for client certificate: server auth"} {
		p.must(p.approve(p.client, r))
		p.failed(r, why)
	}
	p.stop()
}
