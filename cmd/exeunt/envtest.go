package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/internal/testprogram"
	"github.com/exeunt/exeunt/server"
)

// testPrograms are the programs that envtest starts, which this program is under their names.
var testPrograms = map[string]func(args []string) *cobra.Command{
	"kube-apiserver": func(args []string) *cobra.Command { return newKubeAPIServer(args, server.Run) },
	"etcd":           func([]string) *cobra.Command { return testprogram.NewEtcd() },
	"kubectl":        func([]string) *cobra.Command { return testprogram.NewKubectl() },
}

// controllersDir is the folder whose kube-apiserver runs the controllers.
const controllersDir = "controllers"

func newEnvtest() *cobra.Command {
	var controllers, layout bool
	var dir string
	var o output
	cmd := &cobra.Command{
		Use:   "envtest",
		Short: "Make the programs that controller-runtime's envtest starts",
		Long: `Make a folder with kube-apiserver, etcd and kubectl, which are this program under their
names, and print it. A suite that uses envtest then runs on Exeunt, unchanged.

The kube-apiserver is as envtest's: no garbage collector, namespaces stay terminating, and
no default ServiceAccounts. With --controllers, or EXEUNT_ENVTEST=controllers in the
environment of the suite, it has them. kubectl runs the kubectl in $PATH.

--setup-envtest makes the folder where setup-envtest does, below --bin-dir: kubebuilder's
suites find it in bin/k8s without a variable.`,
		Example: `  KUBEBUILDER_ASSETS=$(exeunt envtest) go test ./...
  KUBEBUILDER_ASSETS=$(exeunt envtest --controllers) go test ./...
  exeunt envtest --setup-envtest --bin-dir bin && go test ./...`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if dir == "" {
				// One folder for each binary: two versions do not take each other's links.
				cache, err := os.UserCacheDir()
				if err != nil { // a known place that all users may write to would let others choose the programs
					return fmt.Errorf("%w: name a folder with --bin-dir", err)
				}
				dir = filepath.Join(cache, "exeunt", fmt.Sprintf("envtest-%.8x", sha256.Sum256([]byte(self))))
			}
			if layout {
				dir = filepath.Join(dir, "k8s", fmt.Sprintf("1.%s.0-%s-%s", server.KubernetesMinor, runtime.GOOS, runtime.GOARCH))
			}
			if controllers {
				dir = filepath.Join(dir, controllersDir)
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			if err := testprogram.Link(dir, slices.Collect(maps.Keys(testPrograms))...); err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), document{value: map[string]string{"assets": dir}, text: func(p *printer) { p.line("%s", dir) }})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&controllers, "controllers", false, "with the garbage collector, default ServiceAccounts and the other controllers")
	f.BoolVar(&layout, "setup-envtest", false, "make the folder k8s/VERSION-OS-ARCH below --bin-dir, as setup-envtest does")
	f.StringVar(&dir, "bin-dir", "", "`DIR` for the programs (default: one in the user's cache)")
	o.addFlag(cmd)
	return cmd
}

// sharedFlags are the flags of kube-apiserver that "exeunt serve" has too, with the same
// meaning.
var sharedFlags = []string{
	"authentication-config", "authorization-config", "audit-log-maxage", "audit-log-maxbackup", "audit-log-maxsize", "audit-log-path", "audit-policy-file", "client-ca-file",
	"encryption-provider-config", "event-ttl", "max-requests-inflight", "oidc-ca-file", "oidc-client-id", "oidc-groups-claim", "oidc-groups-prefix",
	"oidc-issuer-url", "oidc-username-claim", "oidc-username-prefix", "service-account-issuer", "service-account-key-file", "service-account-signing-key-file", "service-cluster-ip-range",
	"tls-cert-file", "tls-private-key-file",
}

// newKubeAPIServer returns the command that calls run as envtest's kube-apiserver would serve:
// with the flags of that program.
func newKubeAPIServer(args []string, run func(context.Context, server.Config) error) *cobra.Command {
	var address, port, certs string
	var stores, off []string
	controllers := os.Getenv("EXEUNT_ENVTEST") == "controllers" || filepath.Base(filepath.Dir(args[0])) == controllersDir
	serve := newServe(func(ctx context.Context, c server.Config) error {
		c.Ephemeral, c.NoControllers, c.NoAccountAdmission = true, !controllers, slices.Contains(off, "ServiceAccount")
		return run(ctx, c)
	})
	serve.SetOut(io.Discard) // a suite that shows the output expects a log
	cmd := &cobra.Command{
		Use: "kube-apiserver", Short: "Exeunt as the kube-apiserver of envtest: data goes with the process, and nothing waits for the disk",
		Args: cobra.ArbitraryArgs, SilenceUsage: true, SilenceErrors: true, Version: fmt.Sprintf("v1.%s.0", server.KubernetesMinor),
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			noteIgnored(cmd, args[1:])
			data, remove, err := testprogram.DataDir(cmd.Context(), stores)
			if err != nil {
				return err
			}
			defer remove()
			values := map[string]string{
				"data": data, "database": "", "listen": net.JoinHostPort(address, port), "registry-listen": "", "archive-for": "0", "log-level": "WARN",
			}
			if pair := filepath.Join(certs, "apiserver"); certs != "" && exists(pair+".crt") {
				values["tls-cert-file"], values["tls-private-key-file"] = pair+".crt", pair+".key"
			}
			for name, value := range values {
				if err := serve.Flags().Set(name, value); err != nil {
					return err
				}
			}
			serve.SetContext(cmd.Context())
			return serve.RunE(serve, nil)
		},
	}
	cmd.SetVersionTemplate("Kubernetes {{.Version}}\n")
	f := cmd.Flags()
	for _, name := range sharedFlags {
		f.AddFlag(serve.Flags().Lookup(name))
	}
	f.StringVar(&address, "bind-address", "127.0.0.1", "address to listen on")
	f.StringVar(&port, "secure-port", "6443", "port to listen on")
	f.StringVar(&certs, "cert-dir", "", "folder with apiserver.crt and apiserver.key")
	f.StringSliceVar(&stores, "etcd-servers", nil, "URL of the etcd whose folder keeps the data")
	f.StringSliceVar(&off, "disable-admission-plugins", nil, "ServiceAccount leaves pods without its token; the others are ignored")
	f.String("authorization-mode", "RBAC", "always RBAC")
	f.Bool("allow-privileged", true, "always true")
	f.Bool("version", false, "print the version of Kubernetes that it is like") // cobra's own would take -v, the level of the log
	return cmd
}

// noteIgnored names the flags that have no effect, in one line.
func noteIgnored(cmd *cobra.Command, args []string) {
	var ignored []string
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch flag := cmd.Flags().Lookup(name); {
		case !strings.HasPrefix(arg, "--"):
		case flag == nil:
			ignored = append(ignored, "--"+name)
		case name == "authorization-mode" && !strings.Contains(value, "RBAC"),
			name == "disable-admission-plugins" && value != "ServiceAccount" && value != "":
			ignored = append(ignored, arg)
		}
	}
	if len(ignored) > 0 {
		slices.Sort(ignored)
		cmd.PrintErrln("exeunt as kube-apiserver ignores", strings.Join(slices.Compact(ignored), " "))
	}
}
