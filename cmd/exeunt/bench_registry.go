package main

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/bench"
)

func newBenchRegistry() *cobra.Command {
	var c bench.RegistryConfig
	var o output
	var asJSON, leave bool
	var t target
	cmd := &cobra.Command{
		Use:   "registry URL",
		Short: "Put load on an OCI registry and measure it",
		Long: `Put load on any OCI registry and measure it: small images pushed by several
clients, manifests read by tag, blobs asked for, a long list of tags, and large
layers pushed and pulled.

All images go to one repository and are deleted afterwards. OCI registries have no
request that removes an empty repository, so the command refuses to start unless
one of these flags says what becomes of it:

  --kubeconfig FILE   an Exeunt server: the run creates the namespace of the
                      repository and removes it with the repository
  --leave-repository  another registry: the empty repository stays
  --keep              the images stay too`,
		Example: `  exeunt bench registry http://127.0.0.1:5000 --kubeconfig data/kubeconfig --pid $(pidof exeunt)
  exeunt bench registry http://127.0.0.1:5001 --leave-repository --images 2000 --large -1`,
		Args: exactly(1, "URL, for instance http://127.0.0.1:5000"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				o.format = "json"
			}
			c.URL = args[0]
			switch {
			case t.kubeconfig != "" || t.context != "":
				var err error
				if c.REST, err = t.restConfig(); err != nil {
					return err
				}
				if to, err := url.Parse(c.URL); err == nil {
					c.Password = t.registryPassword(to)
				}
			case !leave && !c.Keep:
				return fmt.Errorf("the run would leave the empty repository %s behind, which a registry cannot remove: give --kubeconfig of the Exeunt server, "+
					"so that the run creates and removes its namespace; for another registry, give --leave-repository", c.Repository)
			}
			result, err := bench.RunRegistry(cmd.Context(), c)
			if len(result.Measures) > 0 {
				err = errors.Join(err, printResults(cmd, &o, []bench.Result{result}))
			}
			return errors.Join(err, result.Err())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Repository, "repository", "bench/images", "repository to push to")
	t.addServerFlags(cmd)
	f.Lookup("kubeconfig").Usage = "`file` that leads to the API of an Exeunt server: the run creates and removes the namespace of the repository there"
	f.BoolVar(&leave, "leave-repository", false, "leave the empty repository: for a registry that is not an Exeunt server")
	f.BoolVar(&c.Keep, "keep", false, "leave the pushed images")
	f.IntVar(&c.Clients, "clients", 8, "concurrent requests")
	f.IntVar(&c.Images, "images", 400, "small images to push, each a config and three layers")
	f.IntVar(&c.LayerSize, "layer-size", 16<<10, "bytes in each of those layers")
	f.IntVar(&c.Tags, "tags", 5_000, "tags in the list")
	f.Int64Var(&c.Large, "large", 1<<30, "bytes in the large layer; -1 for none")
	f.DurationVar(&c.Duration, "duration", 5*time.Second, "how long each kind of read runs")
	f.IntVar(&c.Rounds, "rounds", 10, "number of tag lists; a large layer is pushed and pulled a third as often")
	f.StringVar(&c.Yardstick, "yardstick", "", "directory on the registry's disk: for comparison, the run also hashes, writes and syncs large layers there, and sends them by sendfile")
	f.IntVar(&c.PID, "pid", 0, "process of the registry on this machine: its CPU time and memory are measured too")
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	o.addFlag(cmd)
	return cmd
}
