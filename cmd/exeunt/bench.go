package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/bench"
)

func newBench() *cobra.Command {
	var t target
	var c bench.Config
	var o output
	var asJSON, keep bool
	cmd := &cobra.Command{
		Use:   "bench [" + strings.Join(bench.Workloads(), "|") + "|all] | bench start -- COMMAND [ARGUMENT...]",
		Short: "Put load on a Kubernetes API server and measure it",
		Long: `Put load on any Kubernetes API server and measure it: the workloads, or all in turn.

  create      create ConfigMaps with concurrent clients
  get         read them at random
  list        list all of them: plain and compressed, read and decoded
  page        list all of them, 500 in each request
  watch       follow writes with many watchers, and verify that every event arrives
  update      replace each of them
  patch       change a field of each by a merge patch
  delete      delete them one by one
  finalize    create each with a finalizer, delete it, remove the finalizer
  collection  delete all of them by one request
  cascade     delete the owner of all of them, with each policy, and a chain of 200
  history     give each 20 versions, read the past, revert the namespace (not in "all")
  expiry      let them expire over --duration, beside --rate writes a second (not in "all")
  expiry-jobs the same with finished Jobs and ttlSecondsAfterFinished, on any server
  start       start COMMAND, and measure the time until it answers /readyz

The command works in namespaces of its own, and removes only those. It fails if an
operation failed or an event did not arrive.`,
		Example: `  exeunt bench --kubeconfig data/kubeconfig --pid $(pidof exeunt)
  exeunt bench watch --watchers 1000 --duration 30s
  exeunt bench start --kubeconfig data/kubeconfig -- exeunt serve`,
		Args: cobra.ArbitraryArgs, // workloads; "registry" is a command of its own
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				o.format = "json"
			}
			results, err := runBench(cmd.Context(), &t, c, args, keep)
			if len(results) > 0 {
				err = errors.Join(err, printResults(cmd, &o, results))
			}
			for _, r := range results {
				err = errors.Join(err, r.Err())
			}
			return err
		},
	}
	f := cmd.Flags()
	t.addServerFlags(cmd)
	c.AddFlags(f)
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	o.addFlag(cmd)
	f.BoolVar(&keep, "keep", false, "leave the namespace and its objects")
	cmd.ValidArgs = append(bench.Workloads(), "all", "start")
	cmd.AddCommand(newBenchRegistry())
	return cmd
}

func printResults(cmd *cobra.Command, o *output, results []bench.Result) error {
	return o.print(cmd.OutOrStdout(), document{value: results, text: func(p *printer) { p.err = bench.WriteTable(p, results) }})
}

// runBench runs what the arguments name.
func runBench(ctx context.Context, t *target, c bench.Config, args []string, keep bool) (results []bench.Result, err error) {
	c.Kubeconfig = t.kubeconfig
	if len(args) > 0 && args[0] == "start" {
		c.Command = args[1:]
		r, err := bench.RunStart(ctx, c)
		if err != nil {
			return nil, err
		}
		return []bench.Result{r}, nil
	}
	if err := bench.Check(args); err != nil {
		return nil, err
	}
	if c.REST, err = t.restConfig(); err != nil {
		return nil, err
	}
	return bench.Run(ctx, c, args, keep)
}

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
	c.AddFlags(f)
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	o.addFlag(cmd)
	return cmd
}
