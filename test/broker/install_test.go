//go:build crossplane

package broker_test

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
	"github.com/exeunt/exeunt/test/peers"
)

// system is Crossplane's namespace.
const system = "crossplane-system"

// real is an installation of Crossplane.
type real struct{ bin, dir string }

// installCrossplane installs the chart, and runs what its Deployments would run: no kubelet
// does it here.
func (w *world) installCrossplane() real {
	w.Helper()
	c := real{bin: os.Getenv("EXEUNT_PEERS_BIN"), dir: w.TempDir()}
	group, err := peers.NewGroup(c.bin, c.dir)
	if err != nil {
		w.Fatal(err)
	}
	w.kubectl("create", "namespace", system)
	w.apply(c.chart(w))
	core, rbac := c.kubeconfig(w, "crossplane"), c.kubeconfig(w, "rbac-manager")
	c.run(w, []string{core, "WEBHOOK_SERVICE_NAME=crossplane-webhooks", "WEBHOOK_SERVICE_NAMESPACE=" + system, "WEBHOOK_SERVICE_PORT=9443",
		"TLS_CA_SECRET_NAME=crossplane-root-ca", "TLS_SERVER_SECRET_NAME=crossplane-tls-server", "TLS_CLIENT_SECRET_NAME=crossplane-tls-client",
		"CRDS_PATH=" + filepath.Join(c.bin, "crds"), "WEBHOOK_CONFIGS_PATH=" + filepath.Join(c.bin, "webhookconfigurations")}, "core", "init")
	webhooks, health := freePort(w), freePort(w)
	w.apply(fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"crossplane-webhooks-1","namespace":%q,
		"labels":{"kubernetes.io/service-name":"crossplane-webhooks"}},"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"]}],"ports":[{"name":"","port":%d}]}`, system, webhooks))
	_, err = group.StartWith([]string{core, "TLS_SERVER_CERTS_DIR=" + c.secret(w, "crossplane-tls-server"), "TLS_CLIENT_CERTS_DIR=" + c.secret(w, "crossplane-tls-client"),
		"XPKG_CACHE_DIR=" + w.TempDir(), fmt.Sprintf("WEBHOOK_PORT=%d", webhooks), fmt.Sprintf("HEALTH_PROBE_PORT=%d", health), "METRICS_PORT=0"},
		"crossplane", "core", "start", "--debug", "--package-runtime=External")
	if err != nil {
		w.Fatal(err)
	}
	c.run(w, []string{rbac}, "rbac", "init")
	if _, err := group.StartWith([]string{rbac}, "crossplane", "rbac", "start", "--debug", "--provider-clusterrole=crossplane:allowed-provider-permissions"); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := group.Stop(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			log, _ := exec.Command("tail", "-n", "80", filepath.Join(c.dir, "crossplane.log")).Output()
			w.Logf("Crossplane's log ends:\n%s", log)
		}
	})
	harness.Until(w, "Crossplane is ready", func() error {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errorf("%s", resp.Status)
		}
		return nil
	})
	return c
}

// chart renders Crossplane's chart with its own values.
func (c real) chart(w *world) string {
	w.Helper()
	chart, err := loader.Load(filepath.Join(c.bin, "chart"))
	if err != nil {
		w.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(chart, nil, chartutil.ReleaseOptions{Name: "crossplane", Namespace: system, IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		w.Fatal(err)
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		w.Fatal(err)
	}
	var texts []string
	for name, text := range files {
		if filepath.Ext(name) == ".yaml" && strings.TrimSpace(text) != "" {
			texts = append(texts, text)
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n---\n")
}

// kubeconfig writes one for a service account of Crossplane, and returns it as a variable of the
// environment.
func (c real) kubeconfig(w *world, account string) string {
	w.Helper()
	config := api.NewConfig()
	admin := w.server.Config()
	config.Clusters["c"] = &api.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["u"] = &api.AuthInfo{Token: strings.TrimSpace(w.kubectl("create", "token", account, "-n", system, "--duration=1h"))}
	config.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	file := filepath.Join(c.dir, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		w.Fatal(err)
	}
	return "KUBECONFIG=" + file
}

// run runs a command of Crossplane until it succeeds, as a kubelet does with an init container: "core
// init" does not wait until the definitions that it creates are established.
func (c real) run(w *world, environment []string, args ...string) {
	w.Helper()
	tries := 0
	harness.Until(w, "crossplane "+strings.Join(args, " "), func() error {
		tries++
		cmd := exec.CommandContext(w.Context(), filepath.Join(c.bin, "crossplane"), args...)
		cmd.Env = append(os.Environ(), environment...)
		cmd.SysProcAttr = leash.Leash()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	w.Logf("crossplane %s: %d tries", strings.Join(args, " "), tries)
}

// secret writes the files of a Secret into a directory, as a kubelet mounts it.
func (c real) secret(w *world, name string) (dir string) {
	w.Helper()
	var secret struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(w.kubectl("get", "secret", name, "-n", system, "-o", "json")), &secret); err != nil {
		w.Fatal(err)
	}
	dir = filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.Fatal(err)
	}
	for file, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			w.Fatal(err)
		}
	}
	return dir
}

func freePort(w *world) int {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

const functionPackage = `
apiVersion: meta.pkg.crossplane.io/v1
kind: Function
metadata: {name: function-node}
spec: {capabilities: [composition]}
`

// installFunction pushes a package to the server's registry, lets Crossplane's package manager install it, and
// does what an external runtime does: it runs the function and writes its address.
func (w *world) installFunction(c real) {
	w.Helper()
	image := w.server.Registry() + "/" + system + "/function-node:v1.0.0"
	w.pushPackage(image)
	w.kubectl("create", "secret", "docker-registry", "registry", "-n", system, "--docker-server="+w.server.Registry(),
		"--docker-username="+harness.RegistryUser, "--docker-password="+w.server.RegistryToken())
	w.apply(fmt.Sprintf(`{"apiVersion":"pkg.crossplane.io/v1","kind":"Function","metadata":{"name":"function-node"},
		"spec":{"package":%q,"packagePullSecrets":[{"name":"registry"}]}}`, image))
	w.kubectl("wait", "function/function-node", "--for=condition=Installed", "--timeout=60s")
	address, err := crossplane.ServeFunction(w.Context(), c.certificate(w), func(line string) { w.Log(line) })
	if err != nil {
		w.Fatal(err)
	}
	revision := strings.TrimSpace(w.kubectl("get", "functionrevisions", "-o", "name"))
	w.kubectl("patch", revision, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"endpoint":%q,"tlsServerSecretName":"crossplane-tls-server"}}`, address))
	w.kubectl("wait", revision, "--for=condition=RevisionHealthy", "--timeout=60s")
}

// pushPackage pushes a package: an image with a layer that has package.yaml.
func (w *world) pushPackage(image string) {
	w.Helper()
	var layer bytes.Buffer
	file := tar.NewWriter(&layer)
	err := file.WriteHeader(&tar.Header{Name: "package.yaml", Mode: 0o644, Size: int64(len(functionPackage))})
	if err == nil {
		_, err = io.WriteString(file, functionPackage)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		w.Fatal(err)
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		w.Fatal(err)
	}
	made, err := mutate.Append(empty.Image, mutate.Addendum{Layer: content, Annotations: map[string]string{"io.crossplane.xpkg": "base"}})
	if err != nil {
		w.Fatal(err)
	}
	if err := crane.Push(made, image, crane.Insecure); err != nil {
		w.Fatal(err)
	}
}

// certificate makes the function's certificate with Crossplane's CA, as its package manager does
// for a Deployment. Only clients with a certificate of that CA may call it.
func (c real) certificate(w *world) *tls.Config {
	w.Helper()
	dir := c.secret(w, "crossplane-root-ca")
	authority, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		w.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		w.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12,
	}
}

const definition = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: compose-machines, labels: {rbac.crossplane.io/aggregate-to-crossplane: "true"}}
rules:
- {apiGroups: [infra.example.org], resources: [machines], verbs: ["*"]}
---
apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {name: xnodes.infra.example.org}
spec:
  scope: Namespaced
  group: infra.example.org
  names: {kind: XNode, plural: xnodes}
  versions:
  - name: v1
    served: true
    referenceable: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              region: {type: string}
              tokenSecret: {type: string}
              providerConfigRef: {type: object, properties: {name: {type: string}}}
---
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: xnodes}
spec:
  compositeTypeRef: {apiVersion: infra.example.org/v1, kind: XNode}
  mode: Pipeline
  pipeline:
  - {step: machine, functionRef: {name: function-node}}
`

// define defines XNode and how it is composed.
func (w *world) define() {
	w.Helper()
	w.apply(definition)
	w.kubectl("wait", "xrd/xnodes.infra.example.org", "--for=condition=Established", "--timeout=60s")
	w.kubectl("wait", "crd/xnodes.infra.example.org", "--for=condition=Established", "--timeout=60s")
	harness.Until(w, "the composition has a revision", func() error {
		if w.kubectl("get", "compositionrevisions", "-o", "name") == "" {
			return errorf("there is none")
		}
		return nil
	})
	w.kubectl("wait", "compositionrevisions", "--all", "--for=condition=ValidPipeline", "--timeout=60s")
}
