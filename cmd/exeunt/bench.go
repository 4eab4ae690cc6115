package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exeunt/exeunt/bench"
)

// workloads are the arguments of bench, in the order in which "all" runs them.
var workloads = []struct {
	name string
	run  func(context.Context, bench.Config) (bench.Result, error)
}{
	{"create", bench.RunCreate},
	{"get", bench.RunGet},
	{"list", bench.RunList},
	{"page", bench.RunPage},
	{"watch", bench.RunWatch},
	{"update", bench.RunUpdate},
	{"patch", bench.RunPatch},
	{"delete", bench.RunDelete},
	{"finalize", bench.RunFinalize},
	{"collection", bench.RunCollection},
	{"cascade", bench.RunCascade},
}

func workloadNames() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

func newBench() *cobra.Command {
	var t target
	var c bench.Config
	var o output
	var asJSON, keep bool
	cmd := &cobra.Command{
		Use:   "bench [" + strings.Join(workloadNames(), "|") + "|all] | bench start -- COMMAND [ARGUMENT...]",
		Short: "Put load on a Kubernetes API server and measure it",
		Long: `Put load on any Kubernetes API server and measure it. Without a workload, all
run one after the other.

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
  start       start COMMAND, and measure the time until it answers /readyz

The command works in namespaces of its own and removes them afterwards. It never
touches a namespace that it did not create. It fails if an operation failed or an
event did not arrive.`,
		Example: `  exeunt bench --kubeconfig data/kubeconfig --pid $(pidof exeunt)
  exeunt bench watch --watchers 1000 --duration 30s
  exeunt bench start --kubeconfig data/kubeconfig -- exeunt serve`,
		Args: cobra.ArbitraryArgs, // workloads; "registry" is a command of its own
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON {
				o.format = "json"
			}
			if err := o.check(); err != nil {
				return err
			}
			results, err := runBench(cmd, &t, &c, args, keep)
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
	f.StringVar(&c.Namespace, "namespace", "bench", "namespace to work in")
	f.IntVar(&c.Clients, "clients", 32, "concurrent requests")
	f.IntVar(&c.Connections, "connections", 8, "TCP connections that the clients share, and as many for the watchers")
	f.IntVar(&c.Objects, "objects", 10_000, "number of ConfigMaps")
	f.IntVar(&c.Size, "size", 1024, "bytes of data in each object")
	f.DurationVar(&c.Duration, "duration", 10*time.Second, "how long the workloads get and watch run")
	f.IntVar(&c.Rounds, "rounds", 10, "number of lists of each kind, and of starts")
	f.IntVar(&c.Watchers, "watchers", 100, "watches to open")
	f.IntVar(&c.Writers, "writers", 4, "clients that write for the watchers")
	f.IntVar(&c.Events, "events", 0, "number of writes for the watchers, instead of --duration")
	f.IntVar(&c.Rate, "rate", 0, "writes for the watchers in a second; 0 is as many as the server answers")
	f.IntVar(&c.PID, "pid", 0, "process of the server on this machine: its CPU time and memory are measured too")
	f.BoolVar(&asJSON, "json", false, "the same as -o json")
	o.addFlag(cmd)
	f.BoolVar(&keep, "keep", false, "leave the namespace and its objects")
	cmd.ValidArgs = append(workloadNames(), "all", "start")
	cmd.AddCommand(newBenchRegistry())
	return cmd
}

func printResults(cmd *cobra.Command, o *output, results []bench.Result) error {
	return o.print(cmd.OutOrStdout(), document{value: results, text: func(w io.Writer) error { return bench.WriteTable(w, results) }})
}

// runBench runs the workloads that the arguments name. If one fails, runBench
// returns the results of those before it and the error.
func runBench(cmd *cobra.Command, t *target, c *bench.Config, args []string, keep bool) (results []bench.Result, err error) {
	ctx := cmd.Context()
	c.Kubeconfig = t.kubeconfig
	if len(args) > 0 && args[0] == "start" {
		c.Command = args[1:]
		r, err := bench.RunStart(ctx, *c)
		if err != nil {
			return nil, err
		}
		return []bench.Result{r}, nil
	}
	selected, err := selectWorkloads(args)
	if err != nil {
		return nil, err
	}
	if c.REST, err = t.restConfig(); err != nil {
		return nil, err
	}
	if !keep {
		defer func() {
			// Also after Ctrl-C: a run removes what it created.
			err = errors.Join(err, bench.Cleanup(context.WithoutCancel(ctx), *c))
		}()
	}
	for _, i := range selected {
		r, err := workloads[i].run(ctx, *c)
		if err != nil {
			return results, fmt.Errorf("%s: %w", workloads[i].name, err)
		}
		results = append(results, r)
		switch workloads[i].name {
		case "create":
			c.Seeded = r.Err() == nil
		case "delete", "collection":
			c.Seeded = false
		}
	}
	return results, nil
}

// selectWorkloads returns the indexes in workloads of the arguments.
func selectWorkloads(args []string) ([]int, error) {
	var chosen []int
	for i, w := range workloads {
		if len(args) == 0 || slices.Contains(args, "all") || slices.Contains(args, w.name) {
			chosen = append(chosen, i)
		}
	}
	for _, arg := range args {
		known := arg == "all"
		for _, w := range workloads {
			known = known || arg == w.name
		}
		if !known {
			return nil, fmt.Errorf("no workload %q: want %s, all or start", arg, strings.Join(workloadNames(), ", "))
		}
	}
	return chosen, nil
}
