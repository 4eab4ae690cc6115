package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
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
			if err := c.check(); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
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

func (c *registryImport) run(ctx context.Context, dir string, out, errs io.Writer) error {
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
	show := newShower(out, errs)
	if c.format != "" {
		show.out = errs // out has only the result
	}
	show.run = importer.New(importer.Config{
		Tree: tree, URL: c.registry, Client: client, Jobs: c.jobs, MoveTags: c.moveTags,
		Failed: show.failed, Done: show.done,
	})
	stop := show.start(ctx)
	err = show.run.Run(ctx)
	stop()
	var printed error
	if err == nil || show.run.AllRepositories.Load() > 0 {
		printed = c.print(out, imported(show))
	}
	if n := show.run.Failed.Load(); err == nil && n > 0 {
		err = fmt.Errorf("not imported: %s", counted(n, "item"))
	}
	return errors.Join(err, printed)
}

// importResult is the result of an import for scripts. It has no list of problems,
// which may be long: they are lines on the standard error.
type importResult struct {
	Repositories      int64 `json:"repositories"`
	RepositoriesTotal int64 `json:"repositoriesTotal"`
	Manifests         int64 `json:"manifests"`
	ManifestsTotal    int64 `json:"manifestsTotal"`
	ManifestsSent     int64 `json:"manifestsSent"`
	TagsSet           int64 `json:"tagsSet"`
	BlobsSent         int64 `json:"blobsSent"`
	BytesSent         int64 `json:"bytesSent"`
	BlobsMounted      int64 `json:"blobsMounted"`
	BlobsUnused       int64 `json:"blobsUnused"`
	Failed            int64 `json:"failed"`
}

// imported is the result in every format. The names are those of the repositories
// that were processed.
func imported(show *shower) document {
	s := &show.run.Progress
	return document{
		value: importResult{
			Repositories: s.Repositories.Load(), RepositoriesTotal: s.AllRepositories.Load(),
			Manifests: s.Manifests.Load(), ManifestsTotal: s.AllManifests.Load(), ManifestsSent: s.ManifestsSent.Load(), TagsSet: s.TagsSet.Load(),
			BlobsSent: s.BlobsSent.Load(), BytesSent: s.BytesSent.Load(), BlobsMounted: s.BlobsMounted.Load(), BlobsUnused: s.BlobsUnused.Load(),
			Failed: s.Failed.Load(),
		},
		names: show.repositories,
		text: func(w io.Writer) error {
			p := &printer{out: w}
			writeImported(p, s)
			return p.err
		},
	}
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

// terminalWidth returns the width of a terminal; 0: w is not a terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
