package access

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// WriteKubeconfig writes a kubeconfig for the administrator, with mode 0600.
func (id *Identity) WriteKubeconfig(path, server string, now time.Time) error {
	admin, _, err := id.administrator(now)
	if err != nil {
		return err
	}
	return id.writeKubeconfig(path, server, admin)
}

// RenewKubeconfig replaces the administrator's certificate and the kubeconfig if the
// certificate expires soon, and reports whether it did. Otherwise it leaves the
// file, which its owner may have changed. After a crash between the two, the next
// start writes the kubeconfig.
func (id *Identity) RenewKubeconfig(path, server string, now time.Time) (renewed bool, err error) {
	admin, renewed, err := id.administrator(now)
	if err != nil || !renewed {
		return false, err
	}
	return true, id.writeKubeconfig(path, server, admin)
}

// BrokerFiles returns the paths of the certificate and key with which the broker acts in
// its own name, and issues them if they are missing or expire soon.
func (id *Identity) BrokerFiles(now time.Time) (cert, key string, err error) {
	_, _, err = id.readOrIssue("broker", &x509.Certificate{
		Subject:     pkix.Name{CommonName: brokerName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil, now)
	return filepath.Join(id.dir, "broker.crt"), filepath.Join(id.dir, "broker.key"), err
}

func (id *Identity) administrator(now time.Time) (admin pair, renewed bool, err error) {
	return id.readOrIssue("admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "exeunt-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil, now)
}

func (id *Identity) writeKubeconfig(path, server string, admin pair) error {
	encode := base64.StdEncoding.EncodeToString
	return writePrivate(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: exeunt
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: exeunt-admin
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: exeunt
  context:
    cluster: exeunt
    user: exeunt-admin
current-context: exeunt
`, server, encode(id.AuthorityPEM()), encode(slices.Concat(admin.cert, id.rotation.crossPEM())), encode(admin.key)))
}

// brokerName is the user that the broker acts as.
const brokerName = "system:exeunt:broker"

// brokerRights lets the broker write what Blueprints ask for, which no role can name in
// advance: composite resources and ProviderConfigs, of custom kinds, and the Secrets of
// bootstrap tokens in the namespaces of projects. It excludes the groups of Kubernetes and
// of this server, so that a Blueprint cannot make the broker create a Pod, a role or a
// User, and the Secrets of the system's namespaces. What else the broker may do is in its
// ClusterRole of the same name.
func brokerRights(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser() == nil || a.GetUser().GetName() != brokerName || !a.IsResourceRequest() || a.GetSubresource() != "" {
		return authorizer.DecisionNoOpinion, "", nil
	}
	group, namespace := a.GetAPIGroup(), a.GetNamespace()
	var verbs []string
	switch {
	case strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") && !strings.HasSuffix(group, ".exeunt.dev"):
		verbs = []string{"create", "delete", "get", "list", "patch", "watch"}
	case group == "" && a.GetResource() == "secrets" && namespace != "" && !strings.HasPrefix(namespace, "kube-"):
		verbs = []string{"create", "delete", "get", "patch"}
	}
	if slices.Contains(verbs, a.GetVerb()) {
		return authorizer.DecisionAllow, "the broker writes what Blueprints ask for", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
