package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// workloads are in the order in which "all" runs them.
var workloads = []struct {
	name string
	run  func(context.Context, Config) (Result, error)
}{
	{"create", RunCreate},
	{"get", RunGet},
	{"list", RunList},
	{"page", RunPage},
	{"watch", RunWatch},
	{"update", RunUpdate},
	{"patch", RunPatch},
	{"delete", RunDelete},
	{"finalize", RunFinalize},
	{"collection", RunCollection},
	{"cascade", RunCascade},
	{"history", RunHistory},
	{"expiry", RunExpiry},
	{"expiry-jobs", RunExpiryOfJobs},
}

// onDemand are the workloads that run only if they are named: they take long.
var onDemand = []string{"history", "expiry", "expiry-jobs"}

// Workloads returns the names of all workloads.
func Workloads() []string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.name)
	}
	return names
}

// Check returns an error if a name is neither a workload nor "all".
func Check(names []string) error {
	for _, name := range names {
		if name != "all" && !slices.Contains(Workloads(), name) {
			return fmt.Errorf("no workload %q: want %s, all or start", name, strings.Join(Workloads(), ", "))
		}
	}
	return nil
}

// Run runs the workloads of these names, or all if there are none, and then removes what they
// created, unless keep is set. If one fails, it returns the results of those before it and the
// error.
func Run(ctx context.Context, c Config, names []string, keep bool) (results []Result, err error) {
	if !keep {
		defer func() {
			// Also after Ctrl-C: a run removes what it created.
			err = errors.Join(err, Cleanup(context.WithoutCancel(ctx), c))
		}()
	}
	for _, w := range workloads {
		all := len(names) == 0 || slices.Contains(names, "all")
		if !slices.Contains(names, w.name) && (!all || slices.Contains(onDemand, w.name)) {
			continue
		}
		r, err := w.run(ctx, c)
		if err != nil {
			return results, fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
		switch w.name {
		case "create":
			c.Seeded = r.Err() == nil
		case "delete", "collection":
			c.Seeded = false
		}
	}
	return results, nil
}
