package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func newConsole() *cobra.Command {
	var t target
	var o output
	var open bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that signs you in to the console, the server's web page",
		Long: `Print a link that signs you in to the console, the server's web page.

The link works once, within a minute, and signs in with the credential of the
kubeconfig: the session ends when that does. It needs the ClusterRole
system:exeunt-console, or any that may post to /exeunt/console/links.
The server's certificate is its own: the browser asks whether to trust it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := t.connect()
			if err != nil {
				return err
			}
			var link struct{ Path string }
			base := strings.TrimSuffix(server.Get().AbsPath("/").URL().String(), "/")
			err = answer(server.Verb(http.MethodPost).AbsPath("/exeunt/console/links").Do(cmd.Context()), &link)
			if apierrors.IsForbidden(err) {
				return fmt.Errorf("%w; sign in at %s/console/ with a token, or have an administrator bind you to the ClusterRole system:exeunt-console", err, base)
			}
			if err != nil {
				return err
			}
			url := base + link.Path
			if open {
				if err := openBrowser(url); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "no browser could be opened (%v): open the link yourself\n", err)
				}
			}
			return o.print(cmd.OutOrStdout(), document{value: map[string]string{"url": url}, names: []string{url}, text: func(p *printer) { p.line("%s", url) }})
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "open the link in the browser of this machine")
	t.addServerFlags(cmd)
	o.addFlag(cmd)
	return cmd
}

// openBrowser starts the machine's browser and does not wait for it.
func openBrowser(url string) error {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.Command(name, url).Start()
}
