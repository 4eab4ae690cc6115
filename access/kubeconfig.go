package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
)

// WriteKubeconfig writes a kubeconfig for the administrator, readable by its
// owner only.
func (id *Identity) WriteKubeconfig(path, server string) error {
	admin, err := id.issued("admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "exeunt-admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, nil)
	if err != nil {
		return err
	}
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
`, server, encode(id.authority.cert), encode(admin.cert), encode(admin.key)))
}
