package testprogram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// dataPath is where NewEtcd says which folder it has.
const dataPath = "/exeunt/data-dir"

// DataDir returns the folder for the data: that of the first etcd that is ours, so that the
// data outlives a restart of kube-apiserver as with envtest, or else a new one that remove
// removes.
func DataDir(ctx context.Context, stores []string) (dir string, remove func(), err error) {
	if len(stores) > 0 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, stores[0]+dataPath, nil)
		if err != nil {
			return "", nil, fmt.Errorf("--etcd-servers: %w", err)
		}
		if answer, err := http.DefaultClient.Do(req); err == nil {
			defer answer.Body.Close()
			text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
			if err == nil && answer.StatusCode == http.StatusOK && filepath.IsAbs(string(text)) {
				return filepath.Join(string(text), "exeunt"), func() {}, nil
			}
		}
	}
	if dir, err = os.MkdirTemp("", "exeunt-"); err != nil {
		return "", nil, fmt.Errorf("make data directory: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// NewEtcd returns the command that answers as a healthy etcd, and lends its folder to
// kube-apiserver.
func NewEtcd() *cobra.Command {
	var listen []string
	var dir string
	cmd := &cobra.Command{
		Use: "etcd", Short: "Exeunt as the etcd of envtest: it answers /health, and its kube-apiserver keeps the data in --data-dir",
		Args: cobra.ArbitraryArgs, SilenceUsage: true, SilenceErrors: true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"health":"true","reason":""}`) })
			mux.HandleFunc("GET "+dataPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, dir) })
			web := &http.Server{Handler: mux}
			failed := make(chan error, len(listen))
			for _, text := range listen {
				u, err := url.Parse(text)
				if err != nil || u.Scheme != "http" {
					return fmt.Errorf("--listen-client-urls %s: want http://HOST:PORT", text)
				}
				l, err := net.Listen("tcp", u.Host)
				if err != nil {
					return err
				}
				go func() { failed <- web.Serve(l) }()
			}
			select {
			case <-cmd.Context().Done():
				return web.Close()
			case err := <-failed:
				return err
			}
		},
	}
	cmd.Flags().StringSliceVar(&listen, "listen-client-urls", []string{"http://localhost:2379"}, "URLs to listen on")
	cmd.Flags().StringVar(&dir, "data-dir", "default.etcd", "folder for the data of kube-apiserver")
	return cmd
}

// inKubectl is set for the kubectl that NewKubectl runs: two versions of this program would run each other without an end.
const inKubectl = "EXEUNT_ENVTEST_KUBECTL"

// NewKubectl returns the command that runs the kubectl in PATH. This program is none.
func NewKubectl() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", DisableFlagParsing: true, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			if os.Getenv(inKubectl) != "" {
				return errors.New("every kubectl in $PATH is made by exeunt envtest: install kubectl")
			}
			for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
				found, err := exec.LookPath(filepath.Join(dir, "kubectl"))
				if err != nil || sameFile(found, self) {
					continue
				}
				run := exec.CommandContext(cmd.Context(), found, args...)
				run.Env = append(os.Environ(), inKubectl+"=1")
				run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
				err = run.Run()
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					os.Exit(exit.ExitCode()) // kubectl has printed its error
				}
				return err
			}
			return errors.New("exeunt has no kubectl of its own, and there is none in $PATH: install kubectl")
		},
	}
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
