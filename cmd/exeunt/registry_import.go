package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/registry/importer"
)

func newRegistryImport() *cobra.Command {
	var c registryImport
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Copy the storage of a distribution registry into this one",
		Long: `Copy the storage of a distribution registry (registry:2, registry:3) into this
one, while this one serves. DIR is the rootdirectory in the configuration of the
other registry; the import only reads it. The other registry may serve too: the
next run copies what is pushed to it meanwhile.

The import does not send what the registry has, so an interrupted import continues
when you run it again. It names each item that cannot be imported and continues;
then the exit code is 1.

It leaves out blobs that no manifest uses, and unfinished uploads. It copies
manifests without a tag, a list or a subject that keeps them; they are collected
later like any other, unless the Repository has spec.hold.`,
		Example: `  exeunt registry import /var/lib/registry
  exeunt registry import /var/lib/registry --registry https://registry.shop.example:5000 --jobs 16`,
		Args: exactly(1, "DIR, the rootdirectory of the other registry, for instance /var/lib/registry"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.registry, "registry", "http://127.0.0.1:5000", "`URL` of the registry to import into")
	c.addServerFlags(cmd)
	f.Lookup("kubeconfig").Usage = "`file` with the login to the registry (default: $KUBECONFIG, then ./data/kubeconfig, then ~/.kube/config)"
	f.IntVar(&c.jobs, "jobs", 4, "concurrent requests")
	c.addFlag(cmd, "name")
	f.BoolVar(&c.moveTags, "move-tags", false, "move tags that point at another manifest in the registry; without it they stay, and the import names them")
	return cmd
}

type registryImport struct {
	target
	output
	registry string
	jobs     int
	moveTags bool
}

func (c *registryImport) run(cmd *cobra.Command, dir string) error {
	out := cmd.OutOrStdout()
	if c.jobs < 1 {
		return fmt.Errorf("--jobs %d: want at least 1", c.jobs)
	}
	tree, err := importer.OpenTree(dir)
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if c.format != "" {
		out = cmd.ErrOrStderr() // the standard output has only the result
	}
	line := newStepLine(cmd)
	var names []string
	var run *importer.Import
	run = importer.New(importer.Config{
		Tree: tree, URL: c.registry, Client: client, Jobs: c.jobs, MoveTags: c.moveTags,
		Failed: func(p importer.Problem) { line.print(p.String() + "\n") },
		Done: func(r importer.Repository) {
			names = append(names, r.Name)
			if line.silent {
				fmt.Fprintf(out, "%s: %s (%d of %s)\n", r.Name, counted(r.Manifests, "manifest"), run.Repositories.Load(), counted(run.AllRepositories.Load(), "repository"))
			}
		},
	})
	stop := line.follow(func() string { return describeImport(&run.Progress) })
	err = run.Run(cmd.Context())
	stop()
	var printed error
	if err == nil || run.AllRepositories.Load() > 0 {
		printed = c.print(cmd.OutOrStdout(), document{value: &run.Progress, names: names, text: func(p *printer) { writeImported(p, &run.Progress) }})
	}
	if n := run.Failed.Load(); err == nil && n > 0 {
		err = fmt.Errorf("not imported: %s", counted(n, "item"))
	}
	return errors.Join(err, printed)
}

func describeImport(p *importer.Progress) string {
	text := fmt.Sprintf("%d of %s, %s sent", p.Manifests.Load(), counted(p.AllManifests.Load(), "manifest"), humanBytes(p.BytesSent.Load()))
	if n := p.Failed.Load(); n > 0 {
		text += fmt.Sprintf(", %d failed", n)
	}
	return text
}

// client returns an HTTP client for the registry, with the login of the kubeconfig.
func (c *registryImport) client() (*http.Client, error) {
	to, err := url.Parse(c.registry)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, fmt.Errorf("--registry %q: want http://HOST:PORT or https://HOST:PORT", c.registry)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = c.jobs
	// How long a request with a large body waits for "100 Continue": longer than a
	// busy registry needs to say whether it has the blob.
	transport.ExpectContinueTimeout = 10 * time.Second
	if to.Scheme == "https" {
		config, err := c.restConfig()
		if err != nil {
			return nil, err
		}
		if transport.TLSClientConfig, err = rest.TLSConfigFor(config); err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
	}
	if password := c.registryPassword(to); password != "" {
		return &http.Client{Transport: passwordTransport{transport, password}}, nil
	}
	return &http.Client{Transport: transport}, nil
}

func writeImported(p *printer, s *importer.Progress) {
	p.line("looked at %d of %s, %d of %s", s.Repositories.Load(), counted(s.AllRepositories.Load(), "repository"), s.Manifests.Load(), counted(s.AllManifests.Load(), "manifest"))
	p.line("sent: %s, %s, %s (%s); already in another repository: %s", counted(s.ManifestsSent.Load(), "manifest"), counted(s.TagsSet.Load(), "tag"),
		counted(s.BlobsSent.Load(), "blob"), humanBytes(s.BytesSent.Load()), counted(s.BlobsMounted.Load(), "large blob"))
	if n := s.BlobsUnused.Load(); n > 0 {
		p.line("left behind, because no manifest uses them: %s", counted(n, "blob"))
	}
	if n := s.Failed.Load(); n > 0 {
		p.line("NOT imported: %s, named above", counted(n, "item"))
	}
}

// registryPassword returns the password for a registry of this server: the token in the
// kubeconfig or, for a registry on loopback, the file registry-token beside the
// kubeconfig, which the server wrote. It is "" if there is none: the registry may be
// another one, or know the client's certificate. By plain HTTP no password leaves this
// machine.
func (t *target) registryPassword(to *url.URL) string {
	ip := net.ParseIP(to.Hostname())
	local := to.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if !local && to.Scheme != "https" {
		return ""
	}
	l, err := t.load()
	if err != nil {
		return ""
	}
	if config, err := l.rest(); err == nil && config.BearerToken != "" {
		return config.BearerToken
	}
	if !local {
		return ""
	}
	files, _, err := t.files()
	if err != nil || len(files) == 0 {
		return ""
	}
	token, _ := os.ReadFile(filepath.Join(filepath.Dir(files[0]), "registry-token"))
	return strings.TrimSpace(string(token))
}

// passwordTransport logs in with every request.
type passwordTransport struct {
	http.RoundTripper
	password string
}

func (t passwordTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.SetBasicAuth("exeunt", t.password)
	return t.RoundTripper.RoundTrip(req)
}
