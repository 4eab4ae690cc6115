package peers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// APIServer starts etcd and a kube-apiserver with RBAC and returns the path of its
// administrator's kubeconfig. Further flags are added to those of the kube-apiserver.
func (g *Group) APIServer(ctx context.Context, flags ...string) (kubeconfig string, err error) {
	etcd, err := g.etcd(ctx)
	if err != nil {
		return "", err
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	key, err := g.signingKey()
	if err != nil {
		return "", err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := hex.EncodeToString(random)
	tokens := filepath.Join(g.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",kubernetes-admin,admin,system:masters\n"), 0o600); err != nil {
		return "", err
	}
	_, err = g.Start("kube-apiserver", append([]string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(g.dir, "certificates"), "--authorization-mode=RBAC", "--token-auth-file=" + tokens,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.96.0.0/12", "--endpoint-reconciler-type=none", "--allow-privileged=true",
	}, flags...)...)
	if err != nil {
		return "", err
	}
	host := fmt.Sprintf("https://127.0.0.1:%d", port)
	kubeconfig = filepath.Join(g.dir, "kubeconfig")
	if err := writeKubeconfig(kubeconfig, host, token); err != nil {
		return "", err
	}
	return kubeconfig, g.until(ctx, "kube-apiserver", func() error { return healthy(host + "/readyz") })
}

// CertificateFile is the path of the certificate that the kube-apiserver signed itself.
func (g *Group) CertificateFile() string {
	return filepath.Join(g.dir, "certificates", "apiserver.crt")
}

// etcd starts an etcd and returns its URL.
func (g *Group) etcd(ctx context.Context) (string, error) {
	client, err := freePort()
	if err != nil {
		return "", err
	}
	peer, err := freePort()
	if err != nil {
		return "", err
	}
	url, peerURL := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	_, err = g.Start("etcd", "--data-dir", filepath.Join(g.dir, "etcd"), fmt.Sprintf("--unsafe-no-fsync=%t", !g.Sync), "--log-level", "warn",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peerURL,
		"--initial-advertise-peer-urls", peerURL, "--initial-cluster", "default="+peerURL)
	if err != nil {
		return "", err
	}
	return url, g.until(ctx, "etcd", func() error { return healthy(url + "/health") })
}

// signingKey writes the key that signs service account tokens.
func (g *Group) signingKey() (path string, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	path = filepath.Join(g.dir, "service-account.key")
	data := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return path, os.WriteFile(path, data, 0o600)
}

func writeKubeconfig(path, host, token string) error {
	config := api.NewConfig()
	// The kube-apiserver signs its certificate itself, and listens on loopback only.
	config.Clusters["peer"] = &api.Cluster{Server: host, InsecureSkipTLSVerify: true}
	config.AuthInfos["admin"] = &api.AuthInfo{Token: token}
	config.Contexts["peer"] = &api.Context{Cluster: "peer", AuthInfo: "admin"}
	config.CurrentContext = "peer"
	return clientcmd.WriteToFile(*config, path)
}

// ControllerManager starts a kube-controller-manager on the server of a kubeconfig.
// controllers is what --controllers takes.
func (g *Group) ControllerManager(kubeconfig, controllers string, flags ...string) (*Process, error) {
	return g.Start("kube-controller-manager", append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--controllers=" + controllers, "--leader-elect=false", "--secure-port=0",
	}, flags...)...)
}

// Scheduler starts a kube-scheduler on the server of a kubeconfig.
func (g *Group) Scheduler(kubeconfig string, flags ...string) (*Process, error) {
	return g.Start("kube-scheduler", append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false", "--secure-port=0",
	}, flags...)...)
}

// Kwok starts kwok, which plays the kubelets of all nodes on the server of a kubeconfig. The
// addresses of nodes and pods are of the range that is reserved for benchmarks (RFC 2544), so that no
// client reaches a real host by them.
func (g *Group) Kwok(kubeconfig string, flags ...string) (*Process, error) {
	return g.Start("kwok", append([]string{"--kubeconfig=" + kubeconfig, "--manage-all-nodes=true", "--node-ip=198.19.0.1", "--cidr=198.18.0.0/16", "--node-lease-duration-seconds=40", "--config=" + filepath.Join(g.bin, "kwok.yaml")}, flags...)...)
}
